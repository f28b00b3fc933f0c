// L2: compare the ranks of one group in one phase, and name the ranks whose duration the group has to wait for.
//
// Two rule groups a phase: `argus-l2-window-<phase>` chooses the window once a minute, `argus-l2-<phase>` does the
// statistics. Phases not listed in `_config.phases` share `...-other`. Each statistic is recorded by group labels
// that need no join, as the exporter resolves `group` once.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

{
  local c = $._config,
  local rankLabels = labels.phaseRank,
  local groupLabels = labels.phaseGroup,
  local toGroup = 'on (%s) group_left ()' % groupLabels,

  local subject(phase) = {
    local p = self,
    name: phase,
    matcher: 'phase="%s"' % phase,
    // promtool calls a record name that repeats with the same labels a duplicate.
    labels: { phase: phase },
  },
  local rest = {
    name: 'other',
    matcher: if std.length(c.phases) > 0 then 'phase!~"%s"' % std.join('|', c.phases) else '',
    labels: {},
  },

  local rulesOf(phase) = {
    local p = self,
    local raw(metric, matchers=[]) = labels.selector(metric, [c.argusSelector, phase.matcher] + matchers),
    local rec(name, matchers=[]) = labels.selector(name, [phase.matcher] + matchers),
    local record(name, expr) = { record: name, expr: expr } + (if phase.labels == {} then {} else { labels: phase.labels }),

    local compute = 'kind!="comm"',
    local comm = 'kind="comm"',
    local sum(matchers=[]) = raw('argus_phase_duration_seconds_sum', matchers),
    local count(matchers=[]) = raw('argus_phase_duration_seconds_count', matchers),
    local mean(matchers=[]) = rec('rank:argus_phase_duration_seconds:mean', matchers),
    local group(statistic, matchers=[]) = rec('group:argus_phase_duration_seconds:' + statistic, matchers),
    local ratio(matchers=[]) = rec('rank:argus_phase_duration_seconds:median_ratio', matchers),
    local zscore(matchers=[]) = rec('rank:argus_phase_duration_seconds:zscore', matchers),
    local ranks = rec('group:argus_phase_ranks:count'),
    local window = rec('group:argus_phase_window:seconds'),
    local spanRate = rec('group:argus_phase_spans:rate'),

    // Increase of a counter by subtraction: two instant selections instead of a range of 40 or 120 samples.
    // A restarted counter gives a negative number of spans, which every use filters.
    local delta(metric, seconds) =
      'sum by (%s) (%s - %s offset %s)' % [rankLabels, metric, metric, duration.of(seconds)],
    local shortRate(metric) = 'sum by (%s) (rate(%s[%s]) and %s)'
                              % [rankLabels, metric, duration.range(c, c.meanWindows[0]), metric],
    local spansIn(seconds) =
      if seconds == c.meanWindows[0] then '%s * %g' % [shortRate(count()), seconds]
      else delta(count(), seconds),
    local present = 'count by (%s) (sum by (%s) (%s))' % [groupLabels, rankLabels, count()],
    local longWindows = c.meanWindows[1:],

    // A rank alone in its window would compare with nobody, so the window is the group's.
    windowRules: [
      record('group:argus_phase_window:seconds', std.join('\nor ', [
        |||
          %(seconds)g + 0 * (
            count by (%(group)s) (%(spans)s >= %(minimum)d) >= %(coverage)g * %(present)s
          )
        ||| % {
          seconds: seconds,
          group: groupLabels,
          spans: spansIn(seconds),
          minimum: c.minSpans,
          coverage: c.minCoverage,
          present: present,
        }
        for seconds in c.meanWindows
      ])),
      // Spans a second of one rank: with it, seconds lost per span become a share of wall time.
      record('group:argus_phase_spans:rate', std.join('\nor ', [
        'avg by (%s) (%s > 0) / %g and on (%s) %s == %g'
        % [groupLabels, spansIn(seconds), seconds, groupLabels, window, seconds]
        for seconds in c.meanWindows
      ])),
      // Normally empty: only groups whose steps are too long for the short window.
      record('rank:argus_phase_duration_seconds:mean_long', std.join('\nor ', [
        |||
          %(sum)s / (%(count)s > 0)
          and on (%(group)s) %(window)s == %(seconds)g
        ||| % {
          sum: delta(sum(), seconds),
          count: delta(count(), seconds),
          group: groupLabels,
          window: window,
          seconds: seconds,
        }
        for seconds in longWindows
      ])),
    ],

    local imbalanced = '(%s >= %g or %s > %g or %s < %g)' % [
      group('cv'),
      c.cvMild,
      group('max_ratio'),
      c.gateRatio,
      group('min_ratio'),
      1 / c.gateRatio,
    ],
    local statistics = [
      record('rank:argus_phase_duration_seconds:mean', |||
        (%(sum)s / (%(count)s > 0) unless on (%(group)s) %(window)s > %(short)g)
        or %(long)s
      ||| % {
        sum: shortRate(sum()),
        count: shortRate(count()),
        group: groupLabels,
        window: window,
        short: c.meanWindows[0],
        long: rec('rank:argus_phase_duration_seconds:mean_long'),
      }),
      record('group:argus_phase_duration_seconds:mean', 'avg by (%s) (%s)' % [groupLabels, mean()]),
      record('group:argus_phase_ranks:count', 'count by (%s) (%s)' % [groupLabels, mean()]),
      // The sample deviation: PromQL's stddev divides by n.
      record(
        'group:argus_phase_duration_seconds:stddev',
        'stddev by (%s) (%s) * sqrt(%s / ((%s > 1) - 1))' % [groupLabels, mean(), ranks, ranks]
      ),
      record('group:argus_phase_duration_seconds:cv', '%s / (%s > 0)' % [group('stddev'), group('mean')]),
      record('group:argus_phase_duration_seconds:median', 'quantile by (%s) (0.5, %s)' % [groupLabels, mean()]),
      record('group:argus_phase_duration_seconds:min', 'min by (%s) (%s)' % [groupLabels, mean()]),
      record('group:argus_phase_duration_seconds:max', 'max by (%s) (%s)' % [groupLabels, mean()]),
      record('group:argus_phase_duration_seconds:max_ratio', '%s / (%s > 0)' % [group('max'), group('mean')]),
      record('group:argus_phase_duration_seconds:min_ratio', '%s / (%s > 0)' % [group('min'), group('mean')]),
      record('group:argus_phase_coverage:ratio', |||
        clamp_max(%(ranks)s / on (training_job, group) group_left () (group:argus_ranks:expected > 0), 1)
        or %(ranks)s ^ 0
      ||| % { ranks: ranks }),
      // z cannot exceed (n - 1) / sqrt(n): a fixed 3 never fires for ten ranks or fewer.
      record(
        'group:argus_phase_zscore_threshold:current',
        'clamp_max(%g * (%s - 1) / sqrt(%s), %g) and %s >= %d'
        % [c.zAttainable, ranks, ranks, c.zMax, ranks, c.zMinRanks]
      ),
      record('rank:argus_phase_duration_seconds:zscore', |||
        ((%(mean)s and on (%(group)s) %(imbalanced)s) - %(toGroup)s %(groupMean)s)
        / %(toGroup)s (%(stddev)s > 0)
      ||| % {
        mean: mean(),
        group: groupLabels,
        imbalanced: imbalanced,
        toGroup: toGroup,
        groupMean: group('mean'),
        stddev: group('stddev'),
      }),
      record('rank:argus_phase_duration_seconds:median_ratio', |||
        (%(mean)s and on (%(group)s) %(imbalanced)s) / %(toGroup)s (%(median)s > 0)
      ||| % { mean: mean(), group: groupLabels, imbalanced: imbalanced, toGroup: toGroup, median: group('median') }),
    ],

    // The fast path: the last scrape interval alone, by subtraction.
    local fastSum(matchers=[]) = delta(sum(matchers), c.fastWindow),
    local fastCount(matchers=[]) = delta(count(matchers), c.fastWindow),
    local fast = [
      record(
        'group:argus_phase_duration_seconds:fast_median',
        'quantile by (%s) (0.5, %s / (%s >= %d))\nand on (%s) (\n  count by (%s) (%s >= %d) >= %g * %s\n)' % [
          groupLabels,
          fastSum(),
          fastCount(),
          c.fastMinSpans,
          groupLabels,
          groupLabels,
          fastCount(),
          c.fastMinSpans,
          c.minCoverage,
          ranks,
        ]
      ),
      // Only ranks beyond the threshold. Without their longest span, so that one spike is not a straggler; the
      // shortness of a late rank's collective needs no such care.
      record('rank:argus_phase_duration_seconds:fast_ratio', |||
        (
          (%(sum)s - on (%(peak)s) group_left () max by (%(peak)s) (%(longest)s))
          / ((%(count)s >= %(minimum)d) - 1)
        )
        / %(toGroup)s (%(median)s > 0)
        >= %(ratio)g
        or
        (%(lateSum)s / (%(lateCount)s >= %(minimum)d))
        / %(toGroup)s (%(median)s > 0)
        <= %(late)g
      ||| % {
        sum: fastSum([compute]),
        count: fastCount([compute]),
        lateSum: fastSum([comm]),
        lateCount: fastCount([comm]),
        peak: 'training_job, rank, phase, kind, group',
        longest: raw('argus_phase_window_max_seconds', [compute]),
        minimum: c.fastMinSpans,
        toGroup: toGroup,
        median: group('fast_median'),
        ratio: c.fastRatio,
        late: 1 / c.fastRatio,
      }),
    ],

    local judged = |||
      and on (%(group)s) %(coverage)s >= %(minimum)g
      unless on (%(group)s) (%(window)s > on (training_job) group_left () job:argus_train:seconds)
    ||| % { group: groupLabels, coverage: rec('group:argus_phase_coverage:ratio'), minimum: c.minCoverage, window: window },
    // In a pair the ratio to the median is x / ((x + y) / 2).
    local pairMedianRatio = 2 * c.pairRatio / (1 + c.pairRatio),
    local inPair = 'and on (%s) %s == 2' % [groupLabels, ranks],
    local inMany = 'and on (%s) %s > 2' % [groupLabels, ranks],
    local threshold = '%s %s' % [toGroup, rec('group:argus_phase_zscore_threshold:current')],

    local suspects = record('rank:argus_phase_suspect:lost_ratio', |||
      (
        (
          (%(mean)s - %(toGroup)s %(median)s)
          and on (%(rank)s) (
            (%(ratio)s >= %(culprit)g and on (%(rank)s) %(zscore)s >= %(threshold)s)
            or (%(ratio)s >= %(robust)g %(inMany)s)
            or (%(ratio)s >= %(pair)g %(inPair)s)
          )
        ) * %(toGroup)s %(spans)s
        or (
          (%(toGroupRight)s)
          and on (%(rank)s) (
            (%(late)s <= %(lateCulprit)g and on (%(rank)s) (-%(lateZ)s) >= %(threshold)s)
            or (%(late)s <= %(lateRobust)g %(inMany)s)
            or (%(late)s <= %(latePair)g %(inPair)s)
          )
        ) * %(toGroup)s %(spans)s
        or abs(%(fast)s - 1) * %(toGroup)s (%(fastMedian)s * on (%(group)s) %(spans)s)
      ) >= %(lost)g
      %(judged)s
    ||| % {
      mean: mean([compute]),
      toGroup: toGroup,
      median: group('median', [compute]),
      rank: rankLabels,
      group: groupLabels,
      ratio: ratio([compute]),
      zscore: zscore([compute]),
      threshold: threshold,
      culprit: c.culpritRatio,
      robust: c.robustRatio,
      pair: pairMedianRatio,
      inMany: inMany,
      inPair: inPair,
      spans: spanRate,
      fast: rec('rank:argus_phase_duration_seconds:fast_ratio'),
      fastMedian: group('fast_median'),
      // A collective ends together: the last to arrive has the shortest span, by its lateness.
      toGroupRight: '%s - on (%s) group_right () %s' % [group('max', [comm]), groupLabels, mean([comm])],
      late: ratio([comm]),
      lateZ: zscore([comm]),
      lateCulprit: 1 / c.culpritRatio,
      lateRobust: 1 / c.robustRatio,
      latePair: 2 / (1 + c.pairRatio),
      lost: c.minLostRatio,
      judged: judged,
    }),
    // What a rank loses in its own phases, below every threshold of suspicion: it may explain that it is late.
    local excess = record('rank:argus_phase_excess:lost_ratio', |||
      (
        (%(fastSum)s / (%(fastCount)s >= %(minimum)d) - %(toGroup)s %(fastMedian)s) * %(toGroup)s %(spans)s
        or (%(mean)s - %(toGroup)s %(median)s) * %(toGroup)s %(spans)s
      ) >= %(least)g
    ||| % {
      fastSum: fastSum([compute]),
      fastCount: fastCount([compute]),
      minimum: c.fastMinSpans,
      fastMedian: group('fast_median'),
      mean: mean([compute]),
      median: group('median', [compute]),
      toGroup: toGroup,
      spans: spanRate,
      least: c.excuseLeastRatio,
    }),
    local late = rec('rank:argus_phase_suspect:lost_ratio', [comm]),
    local collective = [
      record('rank:argus_collective_waiting:lost_ratio', |||
        (
          (
            (%(mean)s and on (%(group)s) %(late)s unless on (%(rank)s) %(late)s)
            - %(toGroup)s %(min)s
          ) * %(toGroup)s %(spans)s
        ) >= %(lost)g
      ||| % {
        mean: mean([comm]),
        group: groupLabels,
        rank: rankLabels,
        late: late,
        toGroup: toGroup,
        min: group('min', [comm]),
        spans: spanRate,
        lost: c.minLostRatio,
      }),
      // The shortest span of a collective is its transfer. `dimension` is the group's kind: dp, tp, ep.
      record('group:argus_collective_transfer:ratio', |||
        label_replace(%(min)s, "dimension", "$1", "group", "([^:]*).*")
        / on (%(peers)s) group_left () (
          quantile by (%(peers)s) (0.5, label_replace(%(min)s, "dimension", "$1", "group", "([^:]*).*"))
          and count by (%(peers)s) (label_replace(%(min)s, "dimension", "$1", "group", "([^:]*).*")) >= %(minimum)d
        )
      ||| % {
        min: group('min', [comm]),
        peers: 'training_job, phase, kind, source, dimension',
        minimum: c.linkMinGroups,
      }),
      record('group:argus_collective_slow_link:lost_ratio', |||
        (
          %(min)s * on (%(group)s) (1 - 1 / max by (%(group)s) (%(transfer)s >= %(ratio)g))
          * on (%(group)s) %(spans)s
        ) >= %(lost)g
        unless on (%(group)s) %(late)s
        %(judged)s
      ||| % {
        min: group('min', [comm]),
        group: groupLabels,
        transfer: rec('group:argus_collective_transfer:ratio'),
        ratio: c.linkRatio,
        spans: spanRate,
        lost: c.minLostRatio,
        late: late,
        judged: judged,
      }),
    ],

    statisticsRules: statistics + fast + [suspects, excess] + collective,
  },

  local subjects = [subject(phase) for phase in c.phases] + [rest],

  prometheusRules+:: {
    groups+: [
      {
        name: 'argus-l2-window-' + phase.name,
        interval: duration.of(c.slowInterval),
        rules: rulesOf(phase).windowRules,
      }
      for phase in subjects
    ] + [
      {
        name: 'argus-l2-' + phase.name,
        interval: duration.of(c.evaluationInterval),
        rules: rulesOf(phase).statisticsRules,
      }
      for phase in subjects
    ],
  },
}
