// Collectives end together: the last to come has the shortest span, by its lateness.
//
// Only where it is known who takes part, and not between two ranks, where a partner is early and nobody late.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  local mean = 'rank:argus_phase_duration_seconds:mean{kind="comm"}',
  local median = 'group:argus_phase_duration_seconds:median{kind="comm"}',
  local ratio = 'rank:argus_phase_duration_seconds:median_ratio',
  local spans = 'group:argus_phase_spans:rate',
  // FSDP2's wait of its stream for a gather: that is a span of its own, and who begins it late waits for itself.
  local gathered = 'dp-unshard-wait',
  // Nor of the long window, in which a single late arrival stays for all of it.
  local together = ['kind="comm"', 'over=""', 'group!~"unknown|stage:.*"', 'phase!~"%s|%s"' % [c.pointToPointPhases, gathered]],
  local who = l.list(['rank', 'phase', 'group', 'view']),
  // A collective whose kernels are observed is there twice: as its span, and as its kernel.
  local viewed(expr) = 'label_replace(' + expr + ', "view", "kernel", "source", "kernel")',
  local slow = 'rank:argus_phase_slow:lost_ratio{kind="comm"}',
  local toGroup = 'on (%s) group_left ()' % l.phaseGroup,
  local threshold = 'job:argus_phase_threshold:ratio',
  local ranks = 'group:argus_phase_ranks:count',
  local transfer = 'group:argus_collective_transfer:seconds',
  local peers = l.list(['phase', 'kind', 'source', 'dimension']),

  // Once a minute: the shortest of a group is what the transfer itself takes.
  transfers: [
    {
      about:: 'What a collective takes once all have come: the shortest mean of a group. dimension: along which it is.',
      record: transfer,
      expr: text.fill(|||
        label_replace(label_replace(
          min by (%(group)s) (%(mean)s),
          "dimension", "$1", "group", "([^:]*).*"), "stage", "$1", "group", ".*pp([0-9]+).*")
      |||, { group: l.phaseGroup, mean: l.selector('rank:argus_phase_duration_seconds:mean', together) }),
    },
    {
      // A stage of a pipeline has its own share of the work, so its groups are compared among themselves where they are enough.
      about:: 'Ratio to the median of the groups that do the same.',
      record: 'group:argus_collective_transfer:ratio',
      expr: std.join('or on (%s)\n' % l.phaseGroup, [
        text.fill(|||
          %(transfer)s / on (%(peers)s) group_left () (
            quantile by (%(peers)s) (0.5, %(transfer)s) and count by (%(peers)s) (%(transfer)s) >= %(least)s
          )
        |||, { transfer: transfer, peers: among, least: c.linkMinGroups })
        for among in [peers + ', stage', peers]
      ]),
    },
    {
      // A job that starts anew may have been given other work, with other collectives: it is no past of theirs.
      about:: 'What a collective takes in the median group of a job, since its last start.',
      record: 'job:argus_collective_transfer:seconds',
      expr: text.fill(|||
        quantile by (%(phase)s) (0.5, %(transfer)s)
        * on (%(job)s) group_left (since) count_values by (%(job)s) ("since", max by (%(job)s) (job:argus_iteration_start:total{total="timestamp"}))
      |||, { phase: l.phase, transfer: transfer, job: l.job }),
    },
  ],

  late: [
    {
      // Who waits for less than half as long as the others is late, whatever the spread: nobody waits for less than nothing.
      about:: 'Ranks that stand out in a collective: it is shorter for who comes late, as the others wait.',
      record: 'rank:argus_phase_slow:lost_ratio',
      labels: { kind: 'comm' },
      expr: text.fill(|||
        (
          (1 - %(ratio)s >= on (%(phase)s) group_left () clamp_max(%(threshold)s, 0.5))
          or (1 - %(ratio)s >= %(young)s unless on (%(phase)s) %(threshold)s)
        ) * %(toGroup)s (%(median)s * %(spans)s * (1 + (%(ranks)s == bool 2)))
        >= %(least)s
      |||, {
        phase: l.phase,
        ratio: l.selector(ratio, together),
        threshold: threshold,
        young: c.spreadYoung,
        toGroup: toGroup,
        median: median,
        spans: spans,
        ranks: ranks,
        least: c.evidenceRatio,
      }),
    },
  ],

  evidence: [
    {
      // Where the work is uneven, now one comes last and now another, and no rank's mean is that of the transfer alone: then they
      // differ by more than chance would leave of a slow link.
      about:: 'Collectives that take longer in most groups of a job than they did within the last hour: the network that they share.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'fabric', detector: 'transfer' },
      expr: text.fill(|||
        max by (%(job)s) (
          (%(transfer)s - quantile_over_time(0.1, %(transfer)s[%(window)s]))
          * on (%(phase)s) quantile by (%(phase)s) (0.5, %(spans)s)
          and on (%(phase)s)
            max_over_time(%(transfer)s[%(held)s]) / quantile_over_time(0.1, %(transfer)s[%(window)s]) - 1
            >= on (%(phase)s) group_left () clamp_min(2 * (%(threshold)s < %(even)s), %(young)s)
        ) >= %(least)s
      |||, {
        job: l.job,
        phase: l.phase,
        // The shortest of a group wanders, and the first of a job is of few steps: what it takes in the best tenth of an hour is
        // compared, and either may be off by as much as a rank must differ to stand out.
        // And as it wanders, it may be a little quicker for minutes: a page that yields to it would come and go.
        threshold: threshold,
        even: c.linkRatio - 1,
        young: c.spreadYoung,
        held: duration.range(c, c.decision.leave),
        transfer: 'job:argus_collective_transfer:seconds',
        window: duration.range(c, 2 * c.spreadWindow),
        spans: spans,
        least: c.evidenceRatio,
      }),
    },
    {
      // What computation hides of their waits is no loss; the anatomy knows it.
      about:: 'A rank that comes later to collectives than the others of its group: they wait for it, for no longer than their GPUs are seen to wait with nothing to compute.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'collective-late', detector: 'shortest' },
      expr: text.fill(|||
        max by (%(who)s) (
          %(late)s * on (%(rank)s) group_left () (
            clamp(max by (%(rank)s) (rank:argus_pause:ratio{pause="late"} and on (%(member)s) %(slow)s) / %(all)s, 0, 1)
            or %(all)s ^ 0
          ) >= %(least)s
        )
      |||, {
        who: who,
        rank: l.rank,
        member: l.list(['rank', 'group']),
        slow: slow,
        late: viewed(slow),
        all: 'max by (' + l.rank + ') (sum by (' + l.rank + ', view) (' + viewed(slow) + '))',
        least: c.contextRatio,
      }),
    },
    {
      // Not than the median of its group, which waits as long where one rank alone is late. Of sends nobody is known to come last.
      about:: 'A rank that waits longer in a collective than is usual in the groups that do the same: kept there, it may be late elsewhere.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'kept-waiting', detector: 'mean' },
      expr: text.fill(|||
        max by (%(who)s) (%(waits)s)
      |||, {
        who: who,
        waits: viewed(text.fill(|||
          (
            %(mean)s - %(toGroup)s (
              (%(last)s) + on (%(peers)s) group_left ()
              quantile by (%(peers)s) (0.5, %(median)s - on (%(phaseGroup)s) group_right () (%(last)s))
            ) > 0
          ) * %(toGroup)s %(spans)s >= %(least)s
        |||, {
          mean: mean,
          phaseGroup: l.phaseGroup,
          last: transfer + ' or on (' + l.phaseGroup + ') ' + l.selector('group:argus_phase_duration_seconds:median', ['kind="comm"', 'phase!="%s"' % gathered]),
          peers: peers,
          median: median,
          toGroup: toGroup,
          spans: spans,
          least: c.contextRatio,
        })),
      }),
    },
    {
      // Where half of the groups are so, that is how the job is. Groups run side by side: each is a view of the same seconds.
      about:: 'A group whose collective takes longer than that of its peers even for who comes last: its link.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'link-slow', detector: 'transfer' },
      expr: text.fill(|||
        label_join(max by (%(group)s) (%(slow)s >= %(least)s), "view", "/", "view", "group")
      |||, {
        group: l.list(['phase', 'group', 'view']),
        least: c.evidenceRatio,
        slow: viewed(text.fill(|||
          (
            (1 - 1 / (group:argus_collective_transfer:ratio >= %(ratio)s)) * on (%(phaseGroup)s) group_left () (%(transfer)s)
            unless on (%(peers)s) (
              count by (%(peers)s) (group:argus_collective_transfer:ratio >= %(ratio)s)
              >= 0.5 * count by (%(peers)s) (group:argus_collective_transfer:ratio)
            )
          ) * %(toGroup)s %(spans)s
        |||, {
          phaseGroup: l.phaseGroup,
          ratio: c.linkRatio,
          transfer: transfer,
          peers: peers,
          toGroup: toGroup,
          spans: spans,
        })),
      }),
    },
  ],
}
