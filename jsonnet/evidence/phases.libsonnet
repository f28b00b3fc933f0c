// What a rank needs for its own work in a phase, against the ranks that do the same: means, medians, who stands out.
//
// Of a phase counts its own time alone (`argus_phase_duration_seconds` leaves out what lies in other spans); where most
// ranks of a group have their kernels observed, the time in which the job's own kernels run. A phase whose own time may
// still hold a wait for other ranks (`waits` of argus_phase_info) accuses the set of those ranks, without a rank.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  local mean = 'rank:argus_phase_duration_seconds:mean',
  local median = 'group:argus_phase_duration_seconds:median',
  local ratio = 'rank:argus_phase_duration_seconds:median_ratio',
  local threshold = 'job:argus_phase_threshold:ratio',
  local excess = 'rank:argus_phase_excess:lost_ratio',
  local spans = 'group:argus_phase_spans:rate',
  local ranks = 'group:argus_phase_ranks:count',
  local spread = 'job:argus_phase_spread:ratio',
  local fast = 'rank:argus_phase_fast:ratio',
  local fastLost = 'rank:argus_phase_fast:lost_ratio',
  local slow = 'rank:argus_phase_slow:lost_ratio',
  local toGroup = 'on (%s) group_left ()' % l.phaseGroup,
  local window = duration.range(c, c.window),
  local often = l.often,
  local evidence(cause, detector, about, expr) = {
    about:: about,
    record: 'rank:argus_evidence:lost_ratio',
    labels: { cause: cause, detector: detector },
    expr: expr,
  },

  local covered(matcher) = l.selector('group:argus_phase_kernels:covered', [matcher]),
  // Seconds of kernels, as a group of which most have them is compared; else its spans are.
  local compared(seconds, matcher) = text.fill('label_replace(%(seconds)s and on (%(group)s) %(covered)s, "source", "gpu", "", "")', {
    seconds: seconds,
    group: l.group,
    covered: covered(matcher),
  }),
  local uncovered(matcher) = 'unless on (%s, kind) label_replace(%s, "kind", "compute", "", "")' % [l.group, covered(matcher)],
  local recently(matcher, source='') = l.raw('argus_phase_recent_seconds', [matcher, source]),

  // One phase, or all others: they run side by side.
  statistics(matcher): [
    {
      about:: "Mean of a phase's own time: its kernels' where most of the group have them, else the span's without what lies in other spans.",
      record: mean,
      expr: text.fill(|||
        (
          %(kernels)s
          or
          max by (%(who)s) (rate(%(sum)s[%(window)s]) / (rate(%(count)s[%(window)s]) >= %(least)s)) %(uncovered)s
        )
        unless on (%(rank)s) %(recent)s
      |||, {
        kernels: compared(text.fill('max by (%(who)s) (rate(%(seconds)s[%(window)s]) / ignoring (part) (rate(%(spans)s[%(window)s]) >= %(least)s))', {
          who: l.list(['rank', 'phase', 'kind', 'group']),
          seconds: l.raw('argus_phase_gpu_seconds_total', [matcher, 'part="compute"']),
          spans: l.raw('argus_phase_gpu_spans_total', [matcher]),
          window: window,
          least: often,
        }), matcher),
        rank: l.rank,
        who: l.phaseRank,
        sum: l.raw('argus_phase_duration_seconds_sum', [matcher]),
        count: l.raw('argus_phase_duration_seconds_count', [matcher]),
        window: window,
        least: often,
        uncovered: uncovered(matcher),
        recent: recently(matcher),
      }),
    },
    {
      about:: 'The same of ranks whose steps are too long for that, as their exporters say: over ten minutes, without the longest step.',
      record: mean,
      labels: { over: 'last-steps' },
      expr: text.fill('max by (%(who)s) (%(spans)s %(uncovered)s or %(kernels)s and on (%(group)s) %(covered)s)', {
        who: l.phaseRank,
        spans: recently(matcher, 'source!="gpu"'),
        kernels: recently(matcher, 'source="gpu"'),
        uncovered: uncovered(matcher),
        group: l.group,
        covered: covered(matcher),
      }),
    },
    {
      about:: 'Median of the ranks that are compared.',
      record: median,
      expr: text.fill('quantile by (%(group)s) (0.5, %(mean)s)', { group: l.phaseGroup, mean: l.selector(mean, [matcher]) }),
    },
    {
      about:: 'Ratio to the median, of ranks that differ by more than 2 %.',
      record: ratio,
      expr: text.fill(|||
        %(mean)s / %(toGroup)s (%(median)s > 0) > 1.02
        or %(comm)s / %(toGroup)s (%(median)s > 0) < 0.98
      |||, {
        mean: l.selector(mean, [matcher]),
        comm: l.selector(mean, [matcher, 'kind="comm"']),
        median: l.selector(median, [matcher]),
        toGroup: toGroup,
      }),
    },
  ],

  // Every rank of a phase, over the last scrape interval alone. Not of collectives, whose waits come and go.
  fast(matcher):
    // Two samples, whenever a target is scraped: a second less, and one target in fifteen never has two; a second more, and one
    // has three, so that a single pause is in two evaluations in a row.
    local lately(metric, those=['kind!="comm"']) = 'rate(%s[%s])' % [l.raw(metric, [matcher] + those), duration.of(2 * c.scrapeInterval)];
    // A scrape that comes 2 % late holds as many.
    local least = 0.98 * c.minSpans / c.scrapeInterval;
    [
      {
        about:: "Ratio of the last scrape interval's mean to the median, where it is far above it.",
        record: fast,
        expr: text.fill(|||
          max by (%(who)s) (
            (%(seconds)s / (%(spans)s >= %(least)s) or %(computing)s)
            / %(toGroup)s (%(median)s > 0) >= %(ratio)s
          )
        |||, {
          who: l.phaseRank,
          seconds: lately('argus_phase_duration_seconds_sum'),
          spans: lately('argus_phase_duration_seconds_count'),
          computing: compared(
            text.fill('%(seconds)s / ignoring (part) (%(spans)s >= %(least)s)', {
              seconds: lately('argus_phase_gpu_seconds_total', ['part="compute"']),
              spans: lately('argus_phase_gpu_spans_total', []),
              least: least,
            }),
            matcher
          ),
          least: least,
          toGroup: toGroup,
          median: l.selector(median, [matcher]),
          ratio: c.fastSome,
        }),
      },
      {
        // Where half of the group is slower than it was, that is the new pace; some are scraped before others. A mean of fewer steps
        // differs by more: as the root of the times, where a step knows nothing of the one before.
        about:: 'What obvious stragglers lose of the wall time by it, beyond what the spread of their phase explains.',
        record: fastLost,
        expr: text.fill(|||
          ((%(fast)s >= %(ratio)s) - 1 >= on (%(phase)s) group_left () %(factor)s * %(spread)s)
          * %(toGroup)s (%(median)s * %(spans)s) >= %(least)s
          unless on (%(group)s) (count by (%(group)s) (%(fast)s) >= on (%(group)s) 0.5 * %(ranks)s)
          unless on (%(job)s) job:argus_work:uneven
        |||, {
          fast: l.selector(fast, [matcher]),
          phase: l.phase,
          spread: l.selector(spread, [matcher]),
          factor: '%.1f' % (c.spreadFactor * std.sqrt(c.window / c.scrapeInterval)),
          ratio: c.fastRatio,
          toGroup: toGroup,
          median: l.selector(median, [matcher]),
          spans: l.selector(spans, [matcher]),
          least: c.evidenceRatio,
          group: l.phaseGroup,
          ranks: l.selector(ranks, [matcher]),
          job: l.job,
        }),
      },
      {
        about:: 'Ranks that two scrape intervals in a row show as stragglers.',
        record: 'rank:argus_phase_fast:confirmed',
        expr: text.fill('max by (%(rank)s) (%(lost)s and count_over_time(%(lost)s[%(twice)s]) >= 2)', {
          rank: l.rank,
          lost: l.selector(fastLost, [matcher]),
          twice: duration.range(c, 2 * c.interval),
        }),
      },
    ],

  // Once a minute: what hardly changes.
  slow(matcher): [
    {
      about:: 'Phases of which most ranks of a group have their kernels observed.',
      record: 'group:argus_phase_kernels:covered',
      expr: text.fill(|||
        count by (%(group)s) (%(kernels)s) >= %(share)s * count by (%(group)s) (%(count)s)
      |||, {
        group: l.group,
        count: l.raw('argus_phase_duration_seconds_count', [matcher, 'kind="compute"']),
        kernels: l.raw('argus_phase_gpu_spans_total', [matcher]),
        share: c.kernelCoverage,
      }),
    },
    {
      about:: 'Spans of a phase that a rank has in a second.',
      record: spans,
      expr: text.fill('avg by (%(group)s) (max by (%(who)s) (%(recent)s) or max by (%(who)s) (rate(%(count)s[%(window)s]) >= %(often)s))', {
        group: l.phaseGroup,
        who: l.phaseRank,
        recent: l.raw('argus_phase_recent_spans_per_second', [matcher, 'source!="gpu"']),
        count: l.raw('argus_phase_duration_seconds_count', [matcher]),
        window: window,
        often: often,
      }),
    },
    {
      about:: 'The same where kernels are compared: a phase has as many spans, whatever is measured of them.',
      record: spans,
      labels: { source: 'gpu' },
      expr: text.fill('max by (%(phase)s) (%(spans)s) and on (%(group)s) %(covered)s', {
        phase: l.list(['phase', 'kind', 'group']),
        spans: l.selector(spans, [matcher, 'kind="compute"', 'source!="gpu"']),
        group: l.group,
        covered: covered(matcher),
      }),
    },
    {
      about:: 'Ranks that are compared.',
      record: ranks,
      expr: 'count by (%s) (%s)' % [l.phaseGroup, l.selector(mean, [matcher])],
    },
    {
      about:: 'Groups of whose ranks too few report.',
      record: 'group:argus_phase_coverage:low_ratio',
      expr: text.fill('max by (%(group)s) (%(ranks)s) / on (%(groups)s) group_left () (group:argus_ranks:expected > 0) < %(least)s', {
        group: l.group,
        ranks: l.selector(ranks, [matcher]),
        groups: l.list(['group']),
        least: c.minCoverage,
      }),
    },
    {
      // A median of distances says the deviation of normal noise by a factor that depends on how many are compared; of two
      // it is chosen too small, as a pair has no majority. Of four ranks, or three pairs, on: of two pairs one may be the slow one.
      about:: 'Relative standard deviation of the healthy ranks of a phase, from all groups that are alike.',
      record: spread,
      expr: text.fill(|||
        quantile by (%(phase)s) (0.5,
          abs(%(mean)s / %(toGroup)s (%(median)s > 0) - 1)
          / %(toGroup)s (0.65 - 0.65 / (%(ranks)s > 1) - 0.122 * (%(ranks)s == bool 3))
        ) and on (%(phase)s) sum by (%(phase)s) (%(ranks)s - 1) > 2
      |||, {
        phase: l.phase,
        mean: l.selector(mean, [matcher]),
        median: l.selector(median, [matcher]),
        ranks: l.selector(ranks, [matcher]),
        toGroup: toGroup,
      }),
    },
    {
      about:: 'By how much a rank of this phase must differ to stand out; of a young job by no less than the spread at the moment says.',
      record: threshold,
      expr: text.fill(|||
        clamp(%(factor)s * (%(spread)s > %(usual)s or %(usual)s), %(least)s, %(most)s)
        and count_over_time(%(spread)s[%(window)s]) >= %(samples)s
        or clamp(%(factor)s * %(spread)s, %(young)s, %(most)s)
      |||, {
        young: c.spreadYoung,
        factor: c.spreadFactor,
        spread: l.selector(spread, [matcher]),
        // Work that has become uneven spreads all ranks, and its median does not know it for half of the window.
        usual: text.fill('quantile_over_time(0.5, %(spread)s[%(window)s])', { spread: l.selector(spread, [matcher]), window: duration.range(c, c.spreadWindow) }),
        window: duration.range(c, c.spreadWindow),
        least: c.spreadLeast,
        most: c.spreadMost,
        samples: c.spreadMinSamples,
      }),
    },
    {
      about:: "The paper's measure of imbalance: standard deviation over mean, with n - 1.",
      record: 'group:argus_phase_duration_seconds:cv',
      expr: text.fill(|||
        stddev by (%(group)s) (%(mean)s) * sqrt(%(ranks)s / ((%(ranks)s > 1) - 1)) / (avg by (%(group)s) (%(mean)s) > 0)
      |||, { group: l.phaseGroup, mean: l.selector(mean, [matcher]), ranks: l.selector(ranks, [matcher]) }),
    },
    {
      about:: "The paper's z: standard deviations above the mean, in groups whose cv is 0.02 and more.",
      record: 'rank:argus_phase_duration_seconds:zscore',
      expr: text.fill(|||
        (%(mean)s / %(toGroup)s (avg by (%(group)s) (%(mean)s) and %(cv)s >= 0.02) - 1)
        / %(toGroup)s (%(cv)s * sqrt(1 - 1 / %(ranks)s))
      |||, {
        group: l.phaseGroup,
        mean: l.selector(mean, [matcher]),
        ranks: l.selector(ranks, [matcher]),
        cv: l.selector('group:argus_phase_duration_seconds:cv', [matcher]),
        toGroup: toGroup,
      }),
    },
  ],

  // Of all phases, from the few ranks that stand out.
  local replicas = 'dp|edp|dp,edp',
  local at = {
    excess: excess,
    slow: slow,
    ratio: ratio,
    threshold: threshold,
    phase: l.phase,
    phaseRank: l.phaseRank,
    who: l.list(['rank', 'phase', 'group']),
    rank: l.rank,
    job: l.job,
    set: l.list(['phase', 'set']),
    toGroup: toGroup,
    context: c.contextRatio,
    least: c.evidenceRatio,
    pauses: c.pausePhases,
    // Phases that hold no wait. What nobody knows of, or no longer, accuses nobody.
    // Also while some scrapes fail, as those of a host without time do.
    own: 'last_over_time(%s[%s])' % [l.raw('argus_phase_info', ['kind="compute"', 'waits="none"']), duration.range(c, 4 * c.scrapeInterval)],
    replicas: l.raw('argus_phase_info', ['kind="compute"', 'waits=~"' + replicas + '"']),
    // For others than the replicas, of which the collectives themselves tell.
    waiting: l.raw('argus_phase_info', ['kind="compute"', 'waits!~"none|unknown||' + replicas + '"']),
  },
  sets: [{
    about:: 'Sets of too many ranks to name: more than %d, or than %g of the job.' % [c.setMost, c.setMostShare],
    record: 'group:argus_phase_set:large',
    expr: text.fill(|||
      max by (%(set)s) (%(size)s > %(most)s or %(size)s > on (%(job)s) group_left () %(share)s * job:argus_ranks:count)
    |||, at {
      size: 'count by (' + l.list(['phase', 'set']) + ') (max by (' + l.list(['rank', 'phase', 'set']) + ') (' + sets + '))',
      most: c.setMost,
      share: c.setMostShare,
    }),
  }],
  local sets = l.raw('argus_phase_info', ['kind="compute"', 'set!=""']),
  local suspects = text.fill('max by (%(who)s, set) (%(slow)s{kind="compute", source!="gpu"} * on (%(rank)s, phase) group_left (set) topk by (%(rank)s, phase) (1, max by (%(rank)s, phase, set) (%(sets)s and on (%(rank)s, phase) %(slow)s)))', at { sets: sets }),
  evidence: [
    {
      about:: 'Share of the wall time that a rank takes longer than the median in a phase of its own.',
      record: excess,
      // The median of two is half-way between them.
      expr: text.fill('((%(ratio)s{kind!="comm"} > 1) - 1) * %(toGroup)s (%(median)s * %(spans)s * (1 + (%(ranks)s == bool 2))) >= %(context)s', at { median: median, spans: spans, ranks: ranks }),
    },
    {
      about:: 'Ranks that stand out in a phase: beyond what the spread of their phase explains, and costly enough.',
      record: slow,
      expr: text.fill(|||
        %(excess)s >= %(least)s %(out)s
        or %(fast)s
      |||, at {
        fast: fastLost,
        out: {
          spread: text.fill(|||
            and (
              %(ratio)s - 1 >= on (%(phase)s) group_left () %(threshold)s
              or %(ratio)s - 1 >= %(young)s unless on (%(phase)s) %(threshold)s
            )
          |||, at { young: c.spreadYoung }),
          // No z of n ranks exceeds (n - 1) / sqrt(n).
          z: text.fill('and %(z)s >= %(toGroup)s clamp_max(0.9 * (%(ranks)s - 1) / sqrt(%(ranks)s), %(most)s)', at {
            z: 'rank:argus_phase_duration_seconds:zscore',
            ranks: ranks,
            most: c.zThreshold,
          }),
        }[c.l2Method],
      }),
    },
    evidence(
      'own-excess',
      'mean',
      'What a rank loses in its own phases: it may explain that it is late. Who waits has company: for whom it waits takes as long.',
      text.fill(|||
        max by (%(who)s) (
          %(excess)s{phase!~"%(pauses)s"}
          unless on (%(rank)s, phase) %(replicas)s
          unless on (%(rank)s, phase) (%(sets)s and on (%(set)s) count by (%(set)s) (max by (%(rank)s, phase, set) (%(sets)s) and on (%(rank)s, phase) %(excess)s) == 1)
        )
      |||, at { sets: sets })
    ),
    evidence(
      'kept-waiting',
      'phase',
      'What a rank takes longer in phases which may hold waits that nobody sees: it may have been kept there.',
      'max by (%(who)s) (%(excess)s and on (%(rank)s, phase) %(waiting)s)' % at
    ),
    evidence(
      'gpu-compute',
      'mean',
      'A rank that stands out in a phase of computation which holds no wait for others.',
      text.fill(|||
        max by (%(who)s) (%(slow)s{kind="compute", source="gpu"} or %(slow)s{kind="compute"} and on (%(rank)s, phase) %(own)s)
      |||, at)
    ),
    evidence(
      'suspect-set',
      'mean',
      'A rank that stands out in a phase which may hold waits: it, or one of those for whom it may wait.',
      suspects + '\nunless on (' + at.set + ') group:argus_phase_set:large'
    ),
    evidence(
      'suspect-many',
      'mean',
      'The same where those are so many that naming them helps nobody: a sentence on the page of the job.',
      suspects + '\nand on (' + at.set + ') group:argus_phase_set:large'
    ),
    evidence(
      'data-input',
      'mean',
      'A rank that takes longer than the others to fetch its data.',
      text.fill('max by (%(who)s) (%(slow)s{kind="host", phase="data"})', at)
    ),
    evidence(
      'host-cpu',
      'phase',
      'A rank that takes longer than the others in another phase of its host.',
      text.fill('max by (%(who)s) (%(slow)s{kind="host", phase!~"data|%(pauses)s"})', at)
    ),
    evidence(
      'host-cpu',
      'mean',
      'A rank whose host phases are slow with its computation: what it computes longer is for its host.',
      text.fill(|||
        label_replace(sum by (%(rank)s) (%(slow)s{kind="compute"}), "phase", "all", "", "")
        and on (%(rank)s) (
          max by (%(rank)s) (%(ratio)s{kind="host", phase!~"%(pauses)s"} - 1 >= on (%(phase)s) group_left () %(threshold)s)
          >= %(share)s * max by (%(rank)s) (%(ratio)s{kind="compute"} - 1)
        )
      |||, at { share: c.slowHostShare })
    ),
  ],
}
