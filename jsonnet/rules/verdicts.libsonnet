// From suspects of single phases to verdicts: who is to blame, who waits, and where we do not know.
//
// `rank:argus_verdict:lost_ratio` is the share of wall time that a verdict costs the job, by the verdict's labels;
// `rank:argus_verdict:active` is 1 with the same labels, and has the abstentions too.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

{
  local c = $._config,
  local suspect(matchers) = labels.selector('rank:argus_phase_suspect:lost_ratio', matchers),
  local culprits(matchers=[]) = labels.selector('rank:argus_verdict:lost_ratio', ['verdict="culprit"'] + matchers),
  local byVerdict(expr) = 'max by (%s) (\n%s\n)' % [labels.verdict, expr],
  local mostIn(job) = 'max by (training_job) (%s)' % job,
  // The others wait for all that a rank loses, in whichever phase.
  local ofRank(losses) = 'sum by (%s) (%s)' % [labels.rank, losses],

  // `who` less those whose cost is explained by `other`: a wait costs about what its culprit does.
  local unexplained(who, on, other) =
    '%s\nunless on (%s) (%s <= on (%s) group_left () %g * %s)'
    % [who, labels.verdict, who, on, c.explainedRatio, other],

  local waitingPhase = 'phase=~"%s"' % c.waitingPhases,
  local compute = suspect(['kind="compute"']),
  local late = 'rank:argus_collective_late:lost_ratio',
  local own = suspect(['kind!="comm"']),
  // Suspects whose span cannot contain a wait for a peer.
  local direct = suspect(['kind!="comm"', 'phase!~"%s"' % c.waitingPhases]),
  local directCompute = suspect(['kind="compute"', 'phase!~"%s"' % c.waitingPhases]),
  local suspectsOfWork = 'rank:argus_work_imbalance:lost_ratio{phase!~"%s"}' % c.waitingPhases,
  local inWaitingPhase = suspect(['kind="compute"', waitingPhase]),
  local excessOfOwn = 'rank:argus_phase_excess:lost_ratio',
  local unexcused = 'rank:argus_collective_late:unexcused_lost_ratio',
  local excused = 'rank:argus_phase_suspect:excused_lost_ratio',

  // Slow in compute and on the host alike: the host is slow (contention), not the GPU. Alike: the host's excess is
  // at least half of the other, or the noise of a short data phase would turn a slow GPU into a slow host. The same where
  // the queue of launches runs dry.
  local slowHost = 'rank:argus_slow_host:lost_ratio',
  local excess(matchers) =
    '(max by (%s) (%s) - 1)' % [labels.rank, labels.selector('rank:argus_phase_suspect:median_ratio', matchers)],
  local notSlowHost = 'unless on (%s) %s' % [labels.rank, slowHost],

  local evidence = [
    {
      record: slowHost,
      expr: |||
        %(compute)s
        and on (%(rank)s) (
          %(hostExcess)s >= %(share)g * %(computeExcess)s
          or on (%(rank)s) rank:argus_issue_latency:low_ratio
        )
      ||| % {
        compute: directCompute,
        rank: labels.rank,
        hostExcess: excess(['kind="host"']),
        share: c.slowHostShare,
        computeExcess: excess(['kind="compute"', 'phase!~"%s"' % c.waitingPhases]),
      },
    },
    {
      // Late arrivers without an excuse: their own phases are normal (what they lose there, suspicious or not,
      // does not come near to what they are late by), they were not kept waiting elsewhere (by a slow link of a group of
      // theirs or of another stage of their pipeline, or in tensor parallelism by a slow mate) nor held up by a pause, they have
      // no more to do than others, and no rank of the job loses so much in its own phases (the other stages of its pipeline
      // enter the data-parallel collective late with it).
      record: unexcused,
      expr: std.join('\n', [
        '%s\nunless on (%s) %s' % [late, labels.rank, own],
        'unless on (%s) (max by (%s) (%s) <= %g * %s)'
        % [labels.rank, labels.rank, late, c.excuseRatio, ofRank(excessOfOwn)],
      ] + [
        'unless on (%s) (%s <= on (%s) group_left () %g * %s)'
        % [labels.verdict, late, other.on, c.explainedRatio, other.loss]
        for other in [
          { on: labels.rank, loss: 'max by (%s) (rank:argus_collective_waiting:lost_ratio)' % labels.rank },
          { on: labels.rank, loss: ofRank('rank:argus_collective_slow_link:lost_ratio') },
          { on: labels.rank, loss: 'rank:argus_pipeline_slow_link:lost_ratio' },
          { on: labels.rank, loss: 'max by (%s) (rank:argus_host_pause:lost_ratio)' % labels.rank },
          { on: labels.rank, loss: 'rank:argus_work:excess_ratio' },
          { on: 'training_job', loss: mostIn(ofRank(excessOfOwn)) },
        ]
      ]),
    },
    {
      // Ranks that look slow in a phase which may contain the wait for a culprit found elsewhere.
      record: excused,
      expr: std.join('\nor ', [
        '(%s unless on (%s) %s) <= on (training_job) group_left () %g * %s'
        % [inWaitingPhase, labels.rank, direct, c.explainedRatio, mostIn(other)]
        for other in [direct, unexcused, suspectsOfWork]
      ]),
    },
  ],

  local verdict(name, kind, expr, level='L2') = {
    record: 'rank:argus_verdict:lost_ratio',
    labels: { verdict: name, cause: kind.cause, team: kind.team, level: level },
    expr: expr,
  },

  // A pause lies inside a span of another phase: that phase is slow only because of it, also where it is no habit.
  local withoutPauses(who) = |||
    (
      %(who)s
      unless on (training_job, rank, phase, group) (
        %(who)s <= on (training_job, rank) group_left () %(factor)g * max by (training_job, rank) (
          %(pauses)s or rank:argus_host_pause:lost_ratio
        )
        unless on (training_job, rank, phase) %(pauses)s
      )
    )
  ||| % { who: who, factor: c.explainedRatio, pauses: suspect(['kind="host"', 'phase=~"%s"' % c.pausePhases]) },

  // What many ranks lose, each at steps of its own, is known by a lower bound.
  local ofMany = 2 * c.explainedRatio,
  // Those of `who` whose cost is no more than what the job loses to collections that are not synchronised.
  local amongPauses(who, factor, pauses='job:argus_gc_unsynchronised:lost_ratio') =
    '(%s <= on (training_job) group_left () %g * max by (training_job) (%s))' % [who, factor, pauses],

  local codeCost = 'job:argus_stack_code:lost_ratio',
  local culpritRules =
    local named = c.causes.host;
    // Not whose turn it is in what the code has every rank do.
    local host(matchers) = |||
      (
        %(who)s
        unless on (training_job, rank, phase) (
          %(who)s <= on (training_job, phase) group_left () %(factor)g * max by (training_job, phase) (
            max_over_time(%(code)s[%(range)s])
          )
        )
      )
    ||| % {
      who: suspect(['kind="host"'] + matchers),
      factor: c.explainedRatio,
      code: codeCost,
      range: duration.range(c, c.pauseWindow),
    };
    local otherHost = host(['phase!~"%s"' % std.join('|', [kind.phases for kind in named])]);
    [
      verdict('culprit', c.causes.hostCpu, |||
        label_replace(
          %(excess)s and on (%(rank)s) %(slowHost)s
          or on (%(rank)s) max by (%(rank)s) (%(slowHost)s),
          "phase", "all", "", ""
        )
        or %(otherHost)s
        %(notSlowHost)s
      ||| % {
        // All that the host makes longer, also where others wait: phases inside others are counted with these.
        excess: ofRank(labels.selector(excessOfOwn, ['phase!~"%s"' % c.nestedPattern])),
        rank: labels.rank,
        slowHost: slowHost,
        otherHost: byVerdict(otherHost),
        notSlowHost: notSlowHost,
      }),
    ] + [
      verdict('culprit', kind, '%s\n%s%s' % [
        withoutPauses(byVerdict(host(['phase=~"%s"' % kind.phases]))),
        notSlowHost,
        // No rank: all collect alike, but never at the same step.
        if kind.cause == 'host-gc' then '\nor job:argus_gc_unsynchronised:lost_ratio'
        // Slow or late by what it compiles, though that is no habit yet.
        else if kind.cause == 'host-jit' then '\nor ' + byVerdict(|||
          (%(late)s or %(compute)s) <= on (%(rank)s) group_left () %(factor)g * rank:argus_host_pause:lost_ratio{phase="compile"}
          unless on (%(rank)s) %(habit)s
        ||| % {
          late: late,
          compute: compute,
          rank: labels.rank,
          factor: c.explainedRatio,
          habit: suspect(['kind="host"', 'phase=~"%s"' % kind.phases]),
        }) else '',
      ])
      for kind in named
    ] + [
      verdict('culprit', kind, 'max by (training_job, phase) (%s{cause="%s"})' % [codeCost, kind.cause])
      for kind in c.codeFrames
    ] + [
      // Of two ranks, the longer span in a waiting phase is as likely the one that waits: no verdict.
      verdict('culprit', c.causes.compute, '%s\n%s' % [
        withoutPauses(byVerdict(|||
          %(compute)s
          unless on (%(phaseRank)s) %(excused)s
          unless on (%(phaseRank)s) %(amongPauses)s
          unless on (%(phaseRank)s) %(layersAmongPauses)s
          unless on (%(phaseGroup)s) group:argus_phase_ranks:few{%(waitingPhase)s}
        ||| % {
          amongPauses: amongPauses(compute, c.explainedRatio),
          // A layer contains what its tensor-parallel mates keep it waiting for. A slow GPU shows in the phase around it, or,
          // where that is slow by less than counts, in its kernels. What collections cost them at once, their mean over
          // `pauseWindow` knows only later.
          layersAmongPauses: amongPauses(
            suspect(['kind="compute"', 'phase=~"%s"' % c.nestedPattern]),
            ofMany,
            'job:argus_gc_unsynchronised:lost_ratio or avg_over_time(job:argus_gc_pause:slowest_ratio[%s])'
            % duration.range(c, c.meanWindows[0])
          ),
          compute: compute,
          phaseRank: labels.phaseRank,
          excused: excused,
          phaseGroup: labels.phaseGroup,
          waitingPhase: waitingPhase,
        })),
        notSlowHost,
      ]),
      verdict('culprit', c.causes.workload, byVerdict('rank:argus_work_imbalance:lost_ratio')),
      verdict('culprit', c.causes.late, byVerdict(unexplained(
        unexcused,
        'training_job',
        // Not by history, which is itself silent where somebody late explains it: each would excuse the other for ever.
        mostIn(ofRank(culprits(['level!="L1"', 'cause!~"%s|%s"' % [c.causes.late.cause, c.causes.link.cause]])))
      ))),
      // Without a counter of the link itself the right answer is the group: no rank is named.
      // Nor is the link slow where a member loses as much on its own, or the job to pauses at steps of each rank's own: they
      // wait for one another.
      verdict('culprit', c.causes.link, |||
        max by (training_job, phase, group) (
          %(link)s
          unless on (%(group)s) (
            %(link)s <= on (%(group)s) %(factor)g * max by (%(group)s) (
              rank:argus_collective_slow_link:lost_ratio ^ 0
              * on (%(rank)s) group_left () max by (%(rank)s) (rank:argus_host_pause:lost_ratio or %(own)s)
            )
          )
          unless on (%(group)s) %(amongPauses)s
        )
      ||| % {
        link: 'group:argus_collective_slow_link:lost_ratio',
        amongPauses: amongPauses('group:argus_collective_slow_link:lost_ratio', ofMany),
        own: ofRank(excessOfOwn),
        group: labels.phaseGroup,
        rank: labels.rank,
        factor: c.explainedRatio,
      }),
      // A stalled job loses all its time.
      verdict('culprit', c.causes.hangData, 'rank:argus_stall_culprit:bool{phase=~"%s"}' % c.causes.hangData.phases, 'L1'),
      verdict('culprit', c.causes.hang, 'rank:argus_stall_culprit:bool{phase!~"%s"}' % c.causes.hangData.phases, 'L1'),
      verdict('culprit', c.causes.hangCollective, 'job:argus_stall_collective:bool', 'L1'),
      verdict('victim', { cause: 'waiting', team: 'none' }, 'rank:argus_stall_victim:bool', 'L1'),
      {
        // Cause and team are the worker's own.
        record: 'rank:argus_verdict:lost_ratio',
        labels: { level: 'L3' },
        expr: 'rank:argus_kernel_anomaly:lost_ratio{verdict="culprit"}',
      },
      {
        // All ranks alike are slower than in earlier runs, by more than any rank explains. Cause and team are those of
        // the evidence.
        record: 'rank:argus_verdict:lost_ratio',
        labels: { verdict: 'culprit', level: 'L1' },
        expr: |||
          max by (training_job, cause, team) (job:argus_history:lost_ratio)
          unless on (training_job) (
            max by (training_job) (job:argus_history:lost_ratio) <= on (training_job) group_left () %g * %s
          )
          unless on (training_job) (
            max by (training_job) (job:argus_history:lost_ratio) <= on (training_job) group_left () %g * %s
          )
        ||| % [
          c.explainedRatio,
          mostIn(culprits(['level=~"L2|L3"'])),
          ofMany,
          mostIn(culprits(['rank=""', 'level="L2"', 'cause=~"%s"' % std.join('|', [kind.cause for kind in c.causes.host + c.codeFrames])])),
        ],
      },
    ],

  local victimRule = verdict('victim', { cause: 'waiting', team: 'none' }, '(\n%s\n)\nunless on (%s) %s' % [
    byVerdict(|||
      rank:argus_collective_waiting:lost_ratio
      or %(late)s
      or %(excused)s
      or rank:argus_phase_waiting:lost_ratio
    ||| % { late: late, excused: excused }),
    labels.rank,
    culprits(['rank!=""']),
  ]),

  local abstain(cause, expr, level='L2') = {
    record: 'rank:argus_verdict:active',
    labels: { verdict: 'abstain', cause: cause, team: 'none', level: level },
    expr: '(%s) ^ 0' % expr,
  },
  local activeRules = [
    { record: 'rank:argus_verdict:active', expr: 'rank:argus_verdict:lost_ratio * 0 + 1' },
    // Abstentions name no rank.
    abstain('coverage', 'min by (training_job, phase, group) (group:argus_phase_coverage:low_ratio)'),
    abstain('activity', 'max by (training_job) (job:argus_train:seconds) < %g' % c.meanWindows[0]),
    abstain('stall', 'job:argus_stalled:seconds unless on (training_job) %s' % culprits(['cause=~"hang-.*"']), 'L1'),
    abstain('pair', |||
      max by (training_job, phase, group) (
        %s and on (%s) group:argus_phase_ranks:few{%s}
      )
    ||| % [inWaitingPhase, labels.phaseGroup, waitingPhase]),
  ],

  prometheusRules+:: {
    groups+: [
      {
        // The only rules that read every kernel series, so they are slow and alone.
        name: 'argus-l3-cost',
        interval: duration.of(c.slowInterval),
        rules: [{
          // Share of wall time in compute kernels; streams of computation overlap, so it may exceed 1.
          record: 'rank:argus_kernel_busy:ratio',
          // Two scrapers see the same kernels: the maximum of what they say of one.
          expr: 'sum by (training_job, rank) (max by (training_job, rank, kernel, stream) (rate(%s[%s])))' % [
            labels.selector('argus_kernel_duration_seconds_total', [c.argusSelector, 'stream=~"compute.*"']),
            duration.range(c, c.kernelCostRange),
          ],
        }, {
          // The share of wall time that the shift adds. kernel="all" is the worker's name for a rank whose
          // compute kernels are all slower. Two workers publish under `replica`.
          record: 'rank:argus_kernel_anomaly:lost_ratio',
          expr: |||
            clamp_min(1 - 1 / (1 + %(anomaly)s), 0)
              * on (training_job, rank, kernel, stream) group_left ()
              max by (training_job, rank, kernel, stream) (rate(%(seconds)s[%(range)s]))
            or clamp_min(1 - 1 / (1 + %(whole)s), 0)
              * on (training_job, rank) group_left () rank:argus_kernel_busy:ratio
            or clamp_max(%(anomaly)s, 0)
          ||| % {
            local by = 'max by (training_job, rank, kernel, stream, cause, verdict, team) (%s)',
            anomaly: by % labels.selector('argus_l3_anomaly', [c.argusSelector]),
            whole: by % labels.selector('argus_l3_anomaly', [c.argusSelector, 'kernel="all"']),
            seconds: labels.selector('argus_kernel_duration_seconds_total', [c.argusSelector]),
            range: duration.range(c, c.kernelCostRange),
          },
        }],
      },
      {
        // Joins with what says where a rank is, which is a series of every rank.
        name: 'argus-verdicts-pipelines',
        interval: duration.of(c.statisticsInterval),
        rules: [{
          // What a slow link of any of its stages costs the ranks of a pipeline: all of them enter what the pipelines do
          // together late by as much.
          record: 'rank:argus_pipeline_slow_link:lost_ratio',
          expr: |||
            max by (%(rank)s) (
              %(place)s * on (training_job, dp) group_left () max by (training_job, dp) (
                (
                  rank:argus_collective_slow_link:lost_ratio
                  and on (training_job, phase, group) rank:argus_verdict:lost_ratio{verdict="culprit", cause="%(link)s"}
                ) * on (%(rank)s) group_left (dp) %(place)s
              )
            )
          ||| % {
            // One line a rank, also while it moves to another pipeline.
            place: 'topk by (%s) (1, max by (%s, dp) (%s ^ 0))' % [
              labels.rank,
              labels.rank,
              labels.selector('argus_rank_info', [c.argusSelector, 'pp!=""', 'dp!=""']),
            ],
            rank: labels.rank,
            link: c.causes.link.cause,
          },
        }],
      },
      {
        name: 'argus-verdicts',
        interval: duration.of(c.verdictInterval),
        rules: evidence + culpritRules + [victimRule] + activeRules,
      },
    ],
  },
}
