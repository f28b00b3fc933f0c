// What a card says: each of its numbers is the answer to one query, and so is what would refute it.
//
// The annotation `card` of the alerts is made of it, and what `argus-l3-worker explain` prints (`make generate` writes it there),
// so both say the same. The annotation is filled at each evaluation, so all that is asked here reads few series, also of a
// job of 10,240 ranks: those of one rank, of one group, or what rules have recorded.
//
// A fact is [id, unit, source, claim, query, says]. `size.ratio` becomes `ratio` of the object `size` of the JSON; what begins with
// `more` is evidence alone. The unit is `s`, `share` (of the job's time), `change`, `times`, `GPUs`, `GPU-hours`, `count`, `Unix s`
// or `minute` (also Unix seconds); the source what measures it. `says` is where it stands on the card, and how: digits of the line
// (`lines`) and of the place in it, and a text that begins
// with two characters which the first of a line loses; # is the number, @ the phase.
// In a query <job> stands for the matchers of the job, <who> for those of the accused; any other <name> for a value in quotes,
// or for an earlier query by its id.
local mean = 'rank:argus_phase_duration_seconds:mean{<job>,phase=<phase>,group=<part_group>';
local set = 'rank:argus_evidence:lost_ratio{<job>,set=<set>}';
local inGroup = '{<job>,phase=<phase>,group=<part_group>}';
// Where it says something: not within 2 % of 1.
local unusual(query) = query + ' > 1.02 or ' + query + ' < 0.98';
local median = ['size.baseline_s', 's', 'L2', 'the median of its group', 'max(group:argus_phase_duration_seconds:median' + inGroup + ')', { '41': ", the group's median #" }];
local peers = ['size.peers', 'count', 'L2', 'ranks that it is compared with', 'max(group:argus_phase_ranks:count' + inGroup + ') - 1', { '42': ' (# others)' }];
local ratio(says) = ['size.ratio', 'times', 'L2', 'ratio of the two', '<size.observed_s> / <size.baseline_s>', says];
local kernels = ['more.kernels', 'change', 'L3', 'its kernels', 'max(argus_l3_anomaly{<job>,rank=<rank>,kernel="all",verdict="culprit"})', { '45': ', its kernels #' }];
local clock = ['more.clock', 'times', 'hardware', 'SM clock of its GPU', unusual('max(rank:argus_hardware:current{<job>,rank=<rank>,field="sm_clock_to_peers_ratio"})'), { '48': ", its clock # of its peers'" }];
local work = 'max(rank:argus_work:rate{<job>,rank=<rank>})';
local ofWork = ['more.work', 'times', 'L2', "against the job's average work", unusual(work), { '47': ', its work # the average' }];
local observed(selected, says) = ['size.observed_s', 's', 'L2', 'it takes', 'max(' + selected + ')', { '40': says }];
// A step loses more than the named phase where the accused is slow in others, too.
local elsewhere = ['more.elsewhere_s', 's', 'L2', 'it loses in other phases', '<job.iteration_s> * <cost.lost_ratio> - <size.observed_s> + <size.baseline_s> > 0.1 * <job.iteration_s> * <cost.lost_ratio>', { '44': ', # more in other phases' }];
local slow(selected) = [observed(selected, ', @ takes #'), median, ratio({ '01': ', # in @' }), peers, elsewhere];
local ofRank = slow(mean + ',rank=<rank>}') + [
  kernels,
  ['more.pause', 'share', 'L2', 'it pauses for', 'max(rank:argus_pause:ratio{<job>,rank=<rank>,pause=<cause>})', { '46': ', it pauses for # of the time' }],
  ofWork,
  clock,
];
local few = ['too few peers are heard', 'max(group:argus_phase_coverage:low_ratio' + inGroup + ')'];
local transfer = 'group:argus_collective_transfer:ratio{<job>,phase=<phase>';
local lost(source, query) = ['cost.lost_ratio', 'share', source, "share of the job's time that it costs", query, { '05': '; # of the time lost', '30': ', # of the time' }];
local gpus(source) = [
  ['cost.lost_gpus', 'GPUs', source, 'GPUs that produce nothing', '<cost.lost_ratio> * <job.world_size>', { '31': ', #' }],
  ['cost.gpus', 'count', source, 'of so many', '<job.world_size> and <cost.lost_ratio>', { '32': ' of # GPUs' }],
];
local began(source, claim, query) = ['onset.time', 'minute', source, claim, query, { '20': ', #' }];
// Whole seconds since then.
local lasted = ['onset.lasted_s', 's', 'L2', 'for so long', 'clamp_min(floor(vector(time())) - floor(<onset.time>), 1)', { '21': ', for #' }];
// What was on the host before: within 14 days, as config.libsonnet's history.window; when, to ten minutes.
local before = [
  ['history.other_jobs', 'count', 'L2', 'other jobs of which a rank was named on the host', 'max(group:argus_named_jobs:count{node=<node>} and on (cluster) job:argus_ranks:count{<job>}) - 1 > 0', { '60': ', other jobs with a rank named on this host: #' }],
  ['history.last_unix_s', 'minute', 'L2', 'when one of them last was', 'max_over_time((vector(time()) and on () last_over_time(rank:argus_finding:place{node=<node>,training_job!=<training_job>}[10m]))[14d:10m]) and <history.other_jobs>', { '61': ', the last at #' }],
];
local waiting(source, query) = ['victims.count', 'count', source, 'ranks that wait', query, { '50': ', ranks that wait for it: #' }];
{
  lines: ['', 'who', 'since', 'cost', 'why', 'others', 'before', 'wrong if'],
  axes: ['dp', 'tp', 'pp', 'cp', 'ep'],
  job: [
    ['job.world_size', 'count', 'L1', 'ranks that are alive', 'max(job:argus_ranks:count{<job>})', {}],
    ['job.iteration_s', 's', 'L1', 'an iteration takes', 'max(job:argus_iteration_recent:seconds{<job>,total="count"})', {}],
  ],
  abstained: [
    ['more.abstained', 'count', 'L2', 'groups and phases that are not judged', 'count(rank:argus_verdict:active{<job>,verdict="abstain"})', {}],
  ],

  // When it was first there. What the worker alone says is asked for as <series>; the hole that ends a spell is that of the rules.
  onset: [began('L2', 'first there', 'min(rank:argus_finding:onset_timestamp_seconds{<job>,<who>,cause=<cause>})'), lasted],
  onset_of_hang: [began('L1', 'the last iteration ended', 'min(timestamp(job:argus_stalled:seconds{<job>}) - job:argus_stalled:seconds{<job>})'), lasted],
  onset_of_worker: [began('L3', 'first there', 'max_over_time(timestamp(absent(max_over_time(<series>[5m])))[6h:1m])'), lasted],
  // Steps of subqueries over it, seconds, by how long it has lasted at most: some 1,440 of them.
  steps: [[21600, 15], [86400, 60], [1209600, 900], [31536000, 21600]],

  cost: [lost('L2', 'clamp_max(sum(max by (cause) (rank:argus_finding:lost_ratio{<job>,<who>})), 1)')] + gpus('L2') + [
    ['cost.step_s', 's', 'L2', 'an iteration', '<job.iteration_s> and <cost.lost_ratio>', { '34': '; step #' }],
    ['cost.step_without_s', 's', 'L2', 'an iteration without the fault', '<job.iteration_s> * (1 - <cost.lost_ratio>)', { '35': ', healthy #' }],
  ],
  cost_of_hang: [lost('L1', 'max(job:argus_stalled:seconds{<job>}) ^ 0')] + gpus('L1'),
  so_far: [
    ['cost.gpu_hours', 'GPU-hours', 'L2', 'lost so far', 'sum_over_time((<cost.lost_gpus>)[<lasted>:<step>]) * <step_s> / 3600', { '33': ', so far #' }],
  ] + before,
  so_far_of_hang: [
    ['cost.gpu_hours', 'GPU-hours', 'L1', 'lost so far', '<cost.lost_gpus> * <onset.lasted_s> / 3600', { '33': ', so far #' }],
  ] + before,
  victims: [waiting('L2', 'max(job:argus_waiting_ranks:count{<job>})')],
  victims_of_hang: [waiting('L1', 'count(max by (rank) (rank:argus_verdict:active{<job>,verdict="victim"}))')],

  // In which phase, of which group, and by which row of the table of causes it loses most, by what is accused.
  part: {
    rank: 'topk(1, max by (phase, group, row) (rank:argus_verdict:lost_ratio{<job>,rank=<rank>,set="",cause=<cause>}))',
    set: 'topk(1, max by (phase, group, row) (rank:argus_verdict:lost_ratio{<job>,set=<set>,cause=<cause>}))',
    group: 'topk(1, max by (phase, group, row) (rank:argus_verdict:lost_ratio{<job>,rank="",group=<group>,cause=<cause>}))',
    job: 'topk(1, max by (phase, group, row) (rank:argus_verdict:lost_ratio{<job>,rank="",set="",group="",cause=<cause>}))',
  },
  // Ranks of what is accused, hosts of a job in the order of their ranks, and where a rank is.
  members: {
    set: 'max by (rank) (argus_rank_number{<job>}) and on (rank) ' + set,
    group: 'max by (rank) (argus_rank_number{<job>}) and on (rank) argus_group_expected_ranks{<job>,group=<group>}',
    job: 'min by (node) (max by (rank) (argus_rank_number{<job>}) * on (rank) group_right () max by (rank, node) (argus_rank_info{<job>,node!=""}))',
  },
  place: 'topk(1, argus_rank_info{<job>,rank=<rank>})',
  // The newest trace of the rank; of others that of a suspect, and where there is none that of any rank of the job.
  trace: {
    rank: 'topk(1, argus_l3_trace_info{<job>,rank=<rank>})',
    other: 'topk(1, argus_l3_trace_info{<job>,suspect="true"}) or on () topk(1, argus_l3_trace_info{<job>})',
  },

  // What is told as an alert, with the label severity.
  decided: 'rank:argus_decision:lost_ratio{<job>,<who>,cause=<cause>}',
  decided_of_hang: 'ALERTS{<job>,alertname="ArgusTrainingStalled",alertstate="firing"}',

  size: {
    slow_rank: ofRank,
    data_stall: ofRank,
    suspect_set: slow(mean + '} and on (rank) ' + set),
    more_work: [
      ['size.ratio', 'times', 'L2', "against the job's average work", work, { '01': ', #', '40': ', its work is # the average of the job' }],
      kernels,
    ],
    late_rank: [
      observed(mean + ',rank=<rank>}', ', it waits # in @'),
      median,
      ratio({ '43': ': they wait for it' }),
      peers,
      ['size.late_s', 's', 'L2', 'it comes later by', '<size.baseline_s> - <size.observed_s>', { '01': ', by #' }],
      kernels,
      ofWork,
      clock,
    ],
    slow_link: [
      ['size.observed_s', 's', 'L2', 'a transfer takes', 'max(group:argus_collective_transfer:seconds{<job>,group=<group>,phase=<phase>})', { '40': ', a transfer in @ takes #' }],
      ['size.ratio', 'times', 'L2', 'ratio to the groups that do the same', 'max(' + transfer + ',group=<group>})', { '01': ', # in @' }],
      ['size.baseline_s', 's', 'L2', 'the median of the groups that do the same', '<size.observed_s> / <size.ratio>', { '41': ', the median of its peer groups #' }],
      ['size.peers', 'count', 'L2', 'groups that it is compared with', 'count(count by (group) (' + transfer + '})) - 1', { '42': ' (# others)' }],
    ],
    slow_group: [['more.kernels', 'change', 'L3', 'its kernels', 'max(<series>)', { '45': ', its kernels #' }]],
    hang: [
      ['size.stalled_s', 's', 'L1', 'no iteration has ended for', '<onset.lasted_s>', { '40': ', no iteration has ended for #' }],
      ['more.open', 'Unix s', 'L1', 'there since', 'max(rank:argus_stall_open:timestamp_seconds{<job>,rank=<rank>,phase=<phase>})', { '41': ', it is in @ since #' }],
      ['more.behind', 'count', 'L1', 'collectives that it is behind', 'max(rank:argus_stall_lag:collectives{<job>,rank=<rank>}) > 0', { '42': ', # collectives behind' }],
      ['more.gone', 'count', 'L1', 'processes of it that are gone', 'count(max by (rank) (argus_rank_up{<job>,rank=<rank>}) == 0)', { '43': ', its process is gone' }],
    ],
    job_regression: [
      ['size.observed_s', 's', 'L1', 'an iteration takes', '<job.iteration_s>', { '40': ', an iteration takes #' }],
      ['size.baseline_s', 's', 'L1', 'before', 'max(job:argus_iteration_healthy:seconds{<job>,total="count"})', { '41': ', before #' }],
      ratio({ '01': ', #' }),
      ['more.history', 'times', 'L1', 'against the best healthy run of its model', unusual('max(job:argus_history:slowdown_ratio{<job>})'), { '45': ', # against the best run of its model' }],
      ['more.longest', 'times', 'L1', 'its longest iteration against the mean', unusual('max(max_over_time(job:argus_iteration:jitter_ratio{<job>}[15m]))'), { '46': ', its longest # the mean' }],
    ],
  },

  // Claims that are true where their query has a sample; without a query people must say.
  refuted: {
    slow_rank: [['its peers do other work', ''], ['it has more to do', 'max(rank:argus_work:rate{<job>,rank=<rank>}) > 1.05'], few],
    data_stall: [['it is the first batch of an epoch', ''], few],
    suspect_set: [['their peers do other work', ''], few],
    more_work: [
      ['its unit of work is not what takes the time', ''],
      ['its kernels are slow, too', 'max(argus_l3_anomaly{<job>,rank=<rank>,cause="gpu-compute",verdict="culprit"})'],
    ],
    late_rank: [['the collective is asynchronous or has a root', ''], few],
    slow_link: [
      ['its messages or its size differ', ''],
      ['half of the groups are as slow', 'count(' + transfer + '} >= 1.5) / count(' + transfer + '}) >= 0.5'],
    ],
    slow_group: [['its hardware or its work differs by design', '']],
    hang: [
      ['iterations end again', 'max(job:argus_ranks:count{<job>}) unless max(job:argus_stalled:seconds{<job>})'],
      ['the job does something else', 'max(job:argus_other_activity:seconds{<job>}) < 60'],
    ],
    job_regression: [
      ['input or code changed', ''],
      ['a rank was not judged', 'count(rank:argus_verdict:active{<job>,verdict="abstain"})'],
      ['a rank or link is named', 'max(rank:argus_finding:lost_ratio{<job>,level!="L1"}) >= <cost.lost_ratio> / 3'],
    ],
  },

  // The first thing to do: <where> is its host.
  advice: {
    abstained: 'find out why so few are heard: the dashboard ARGUS / Itself, or argus-l3-worker doctor',
    suspect_set: 'compare clocks and Xid of each; else swap one at a checkpoint and see if all are fast then',
    'gpu-compute': 'check clocks and Xid; drain <where> at the next checkpoint and test it (dcgmi diag -r 3)',
    'gpu-memory': 'drain <where> at the next checkpoint and test its memory (dcgmi diag -r 3)',
    'gpu-transfer': 'look at PCIe width and speed on <where>',
    'host-cpu': 'look for other processes, CPU frequency and memory pressure on <where>',
    'host-gc': 'collect garbage on all ranks at the same step (gc.freeze, then gc.collect each n steps)',
    'host-jit': 'find what is compiled anew, in the stacks of the rank',
    'host-alloc': 'find what allocates or pins memory, in the stacks of the ranks',
    'data-input': 'look at loader workers, cache and storage on <where>',
    workload: 'balance the input over the ranks; the machine is sound',
    'work-uneven': 'balance the input over the ranks; the machines are sound',
    'collective-late': 'py-spy dump it before the collective; look at CPU and other processes on <where>',
    'link-slow': 'test the members in halves (nccl-tests); look at NIC, PCIe and NVLink counters',
    fabric: 'ask who runs the network what changed then; compare links',
    jitter: 'look at what happens at the long steps: checkpoint, evaluation, garbage collection',
    'hang-host': 'take stacks of it and of one that waits (py-spy dump), then restart without <where>',
    'hang-data': 'take stacks of it (py-spy dump); look at the storage mounts of <where>',
    'hang-comm': 'read the NCCL log, test the links between the members, restart',
    stalled: 'take stacks of all ranks (py-spy dump): who is not in the collective?',
    colocation: "look for other processes on the job's GPUs",
    other: 'ask what changed then: code, data, driver, power cap, neighbours',
  },

  // Names of pages, by the cause; of what rules find of jobs, and of what the worker says of kernels and rules do not, by kind.
  runbooks: {
    'gpu-compute': 'ArgusStragglerRank',
    'gpu-transfer': 'ArgusStragglerRank',
    'host-cpu': 'ArgusStragglerRank',
    'host-gc': 'ArgusHostStall',
    'host-jit': 'ArgusHostStall',
    'host-alloc': 'ArgusHostStall',
    'data-input': 'ArgusHostStall',
    workload: 'ArgusGroupImbalance',
    'collective-late': 'ArgusCollectiveLateRank',
    'link-slow': 'ArgusCollectiveSlowLink',
  },
  runbooks_of_jobs: {
    jitter: 'ArgusIterationJitter',
    'work-uneven': 'ArgusGroupImbalance',
    'hang-host': 'ArgusTrainingStalled',
    'hang-data': 'ArgusTrainingStalled',
    'hang-comm': 'ArgusTrainingStalled',
    stalled: 'ArgusTrainingStalled',
    other: 'ArgusIterationRegression',
  },
  runbooks_of_worker: { slow_group: 'ArgusKernelGroupShift', other: 'ArgusKernelDegraded' },
}
