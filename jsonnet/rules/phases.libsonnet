// L2: compare the ranks of one group in one phase, and name the ranks whose duration the group has to wait for.
//
// Three rule groups a phase: `argus-l2-window-<phase>` chooses the window once a minute, `argus-l2-statistics-<phase>`
// reads every rank, and `argus-l2-<phase>` has the fast path and names suspects. Phases not listed in `_config.phases`
// share `...-other`. Each statistic is recorded by group labels that need no join, as the exporter resolves `group` once.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

{
  local c = $._config,
  local rankLabels = labels.phaseRank,
  local groupLabels = labels.phaseGroup,
  local toGroup = 'on (%s) group_left ()' % groupLabels,

  local subject(phase) = {
    name: phase,
    matcher: 'phase="%s"' % phase,
    // Without the fast path and the long windows.
    nested: std.length([name for name in c.nestedPhases if std.startsWith(phase, name)]) > 0,
    // Matchers of those that have them, and of those whose spans are frequent enough to have a mean.
    outer: [],
    steady: [],
    // promtool calls a record name that repeats with the same labels a duplicate.
    labels: { phase: phase },
  },
  local rest = {
    name: 'other',
    matcher: if std.length(c.phases) > 0 then 'phase!~"%s"' % std.join('|', c.phases) else '',
    nested: false,
    outer: ['phase!~"%s|%s"' % [c.nestedPattern, c.countedPauses]],
    steady: ['phase!~"%s"' % c.countedPauses],
    labels: {},
  },

  local rulesOf(phase) = {
    local p = self,
    local raw(metric, matchers=[]) = labels.selector(metric, [c.argusSelector, phase.matcher] + matchers),
    local rec(name, matchers=[]) = labels.selector(name, [phase.matcher] + matchers),
    local record(name, expr) = { record: name, expr: expr } + (if phase.labels == {} then {} else { labels: phase.labels }),

    local compute = 'kind!="comm"',
    local comm = 'kind="comm"',
    // Ranks of an unknown dimension need not be in one collective: whoever waits least there is late for nobody.
    local ofKnown = 'group!="unknown"',
    local ofOneCollective = 'phase!~"%s", %s' % [c.pointToPointPhases, ofKnown],
    local sum(matchers=[]) = raw('argus_phase_duration_seconds_sum', matchers),
    local count(matchers=[]) = raw('argus_phase_duration_seconds_count', matchers),
    local mean(matchers=[]) = rec('rank:argus_phase_duration_seconds:mean', matchers),
    local group(statistic, matchers=[]) = rec('group:argus_phase_duration_seconds:' + statistic, matchers),
    local ratio(matchers=[]) = rec('rank:argus_phase_duration_seconds:median_ratio', matchers),
    local byWork(matchers=[]) = rec('rank:argus_phase_work:median_ratio', matchers),
    local outlying = rec('group:argus_phase_outlying:seconds'),
    local zscore(matchers=[]) = rec('rank:argus_phase_duration_seconds:zscore', matchers),
    local ranks = rec('group:argus_phase_ranks:count'),
    local window = rec('group:argus_phase_window:seconds'),
    local spanRate = rec('group:argus_phase_spans:rate'),

    // Of every counter, over the samples of a window. The quotient of two rates is a mean: what they extrapolate cancels.
    local rateOf(metric, seconds) = 'rate(%s[%s])' % [metric, duration.range(c, seconds)],
    // The maximum, as two scrapers see the same rank.
    local ofRank(expr) = 'max by (%s) (\n%s)' % [rankLabels, expr],
    local longWindows = c.meanWindows[1:],
    local recentSpans = rec('group:argus_phase_spans:recent'),
    local longSpans(seconds) =
      'max by (%s) (%s)' % [groupLabels, rec('group:argus_phase_spans:long', ['window="%s"' % duration.of(seconds)])],
    local longSum = rec('rank:argus_phase_duration_seconds:long_sum'),
    local longCount = rec('rank:argus_phase_duration_seconds:long_count'),
    // Counters of the groups that may need a long window, recorded: normally none, so that a long range reads nothing.
    local longCounter(metric) = 'max by (%s) (\n  %s offset %s and on (%s) %s\n)' % [
      rankLabels,
      raw(metric, phase.outer),
      duration.of(c.settle),
      groupLabels,
      rec('group:argus_phase_spans:few'),
    ],

    local meanLong = [
      // Normally empty: only groups whose steps are too long for the short window.
      record('rank:argus_phase_duration_seconds:mean_long', std.join('\nor ', [
        '%s / (%s > 0) and %s and on (%s) %s == %g' % [
          rateOf(longSum, seconds),
          rateOf(longCount, seconds),
          longCount,
          groupLabels,
          window,
          seconds,
        ]
        for seconds in longWindows
      ])),
    ],
    local longRules = [
      // Twice as few as the short window needs count as few: steps may become longer. A group that has just begun, a
      // job that stands still and one that does something else have few for a while, and long windows help none of them.
      record('group:argus_phase_spans:few', |||
        max_over_time(%(recent)s[%(window)s]) < %(few)g
        and last_over_time(%(recent)s[%(longest)s] offset %(short)s)
        unless on (training_job) job:argus_stalled:seconds
        unless on (training_job) (job:argus_train:seconds < %(seconds)g)
      ||| % {
        recent: recentSpans,
        seconds: longWindows[0],
        window: duration.range(c, longWindows[0]),
        longest: duration.range(c, longWindows[std.length(longWindows) - 1]),
        short: duration.of(c.meanWindows[0]),
        few: 2 * c.minSpans / c.meanWindows[0],
      }),
      record('rank:argus_phase_duration_seconds:long_sum', longCounter('argus_phase_duration_seconds_sum')),
      record('rank:argus_phase_duration_seconds:long_count', longCounter('argus_phase_duration_seconds_count')),
    ] + [
      record('group:argus_phase_spans:long', 'avg by (%s) (%s > 0 and %s and %s offset %s)' % [
        groupLabels,
        rateOf(longCount, seconds),
        longCount,
        longCount,
        duration.of(seconds),
      ]) + {
        labels+: { window: duration.of(seconds) },
      }
      for seconds in longWindows
    ],

    // A rank alone in its window would compare with nobody, so the window is the group's. A long one must be full.
    windowRules: [
      record('group:argus_phase_spans:recent', 'avg by (%s) (%s > 0)' % [groupLabels, rateOf(count(), c.meanWindows[0])]),
    ] + (if phase.nested then [] else longRules) + [
      record('group:argus_phase_window:seconds', std.join('\nor ', [
        '%g + 0 * (%s >= %g)' % [
          seconds,
          if seconds == c.meanWindows[0] then recentSpans else longSpans(seconds),
          c.minSpans / seconds,
        ]
        for seconds in c.meanWindows
      ])),
      // Spans a second of one rank: with it, seconds lost per span become a share of wall time.
      record('group:argus_phase_spans:rate', std.join('\nor ', [
        '(%s and on (%s) %s == %g)' % [
          if seconds == c.meanWindows[0] then recentSpans else longSpans(seconds),
          groupLabels,
          window,
          seconds,
        ]
        for seconds in c.meanWindows
      ])),
    ] + (if phase.nested then [] else meanLong),

    // Groups whose ranks differ, by the paper's measure; among many, one that comes late to a collective differs alone.
    local imbalanced = '(%s >= %g or %s < %s / %g)' % [
      group('cv'),
      c.cvMild,
      group('min', [comm]),
      group('mean'),
      c.gateRatio,
    ],
    // In the others, a rank that alone is far above the mean, or costs something that counts.
    local gate = '%g * %s' % [c.gateRatio, group('mean', [compute])],
    local costly = '(%s + %g / (%s > 0))' % [group('mean', [compute]), c.excuseLeastRatio, spanRate],
    local statistics = [
      // A rank whose last scrape has failed, or that has left, is not there.
      record('rank:argus_phase_duration_seconds:mean', |||
        %(long)s
        or %(short)s
      ||| % {
        long: rec('rank:argus_phase_duration_seconds:mean_long', phase.outer),
        short: ofRank(|||
          %s / (%s > 0)
          unless on (%s) rank:argus_rank:left
        ||| % [rateOf(sum(), c.meanWindows[0]), rateOf(count(), c.meanWindows[0]), labels.rank]),
      }),
      record('group:argus_phase_duration_seconds:mean', 'avg by (%s) (%s)' % [groupLabels, mean()]),
      record('group:argus_phase_ranks:count', 'count by (%s) (%s)' % [groupLabels, mean()]),
      // The sample deviation: PromQL's stddev divides by n.
      record(
        'group:argus_phase_duration_seconds:stddev',
        'stddev by (%s) (%s) * sqrt(%s / ((%s > 1) - 1))' % [groupLabels, mean(), ranks, ranks]
      ),
      record('group:argus_phase_duration_seconds:cv', '%s / (%s > 0)' % [group('stddev'), group('mean')]),
      // Of collectives: whoever comes last has the shortest.
      record('group:argus_phase_duration_seconds:min', 'min by (%s) (%s)' % [groupLabels, mean([comm])]),
      record('group:argus_phase_coverage:ratio', |||
        clamp_max(%(ranks)s / on (training_job, group) group_left () (group:argus_ranks:expected > 0), 1)
        or %(ranks)s ^ 0
      ||| % { ranks: ranks }),
      // Normally none: what verdicts and alerts ask for every few seconds.
      record('group:argus_phase_coverage:low_ratio', '%s < %g' % [rec('group:argus_phase_coverage:ratio'), c.minCoverage]),
      record('group:argus_phase_ranks:few', ranks + ' < 3'),
      // z cannot exceed (n - 1) / sqrt(n): a fixed 3 never fires for ten ranks or fewer.
      record(
        'group:argus_phase_zscore_threshold:current',
        'clamp_max(%g * (%s - 1) / sqrt(%s), %g) and %s >= %d'
        % [c.zAttainable, ranks, ranks, c.zMax, ranks, c.zMinRanks]
      ),
      // Of all ranks in a group that is imbalanced, else of those that stand out: read once, compared with a bound.
      record('group:argus_phase_outlying:seconds', |||
        0 * %(mean)s and %(imbalanced)s
        or %(gate)s < %(costly)s
        or %(costly)s
        or %(gate)s
      ||| % { mean: group('mean'), imbalanced: imbalanced, gate: gate, costly: costly }),
      record('rank:argus_phase_duration_seconds:zscore', |||
        (
          (%(mean)s >= %(toGroup)s %(outlying)s) - %(toGroup)s %(groupMean)s
        ) / %(toGroup)s (%(stddev)s > 0)
      ||| % {
        mean: mean(),
        outlying: outlying,
        toGroup: toGroup,
        groupMean: group('mean'),
        stddev: group('stddev'),
      }),
      // Of a group whose ranks are alike it is their mean: the two differ by less than a deviation.
      record('group:argus_phase_duration_seconds:median', |||
        %(mean)s + %(stddev)s * quantile by (%(group)s) (0.5, %(zscore)s and on (%(group)s) %(all)s)
        or %(mean)s
      ||| % {
        mean: group('mean'),
        stddev: group('stddev'),
        zscore: zscore(),
        group: groupLabels,
        all: '(%s == 0)' % outlying,
      }),
      // Of groups in which a rank stands out.
      record(
        'group:argus_phase_duration_seconds:max',
        '%s + %s * max by (%s) (%s)' % [group('mean'), group('stddev'), groupLabels, zscore()]
      ),
      // From z: whoever has none is no different from the others.
      record('rank:argus_phase_duration_seconds:median_ratio', |||
        (
          %(zscore)s * %(toGroup)s %(stddev)s + %(toGroup)s %(groupMean)s
        ) / %(toGroup)s (%(median)s > 0)
      ||| % {
        zscore: zscore(),
        toGroup: toGroup,
        stddev: group('stddev'),
        groupMean: group('mean'),
        median: group('median'),
      }),
    ],

    // Seconds per work, where the job's work is uneven: who is slow for what it had to do.
    local perWork = rec('rank:argus_phase_work:seconds', [compute]),
    local middleHalf(expr) = |||
      (
        quantile by (%(group)s) (0.75, %(expr)s) - quantile by (%(group)s) (0.25, %(expr)s)
      ) / (quantile by (%(group)s) (0.5, %(expr)s) > 0)
    ||| % { group: groupLabels, expr: expr },
    local work = [
      record('rank:argus_phase_work:seconds', |||
        (%(ratio)s and on (%(group)s) %(outlying)s == 0) * %(toGroup)s %(median)s
        / on (training_job, rank) group_left () rank:argus_work:rate
      ||| % {
        ratio: ratio([compute]),
        group: groupLabels,
        outlying: outlying,
        toGroup: toGroup,
        median: group('median', [compute]),
      }),
      record('rank:argus_phase_work:median_ratio', |||
        %(perWork)s / %(toGroup)s (quantile by (%(group)s) (0.5, %(perWork)s) > 0)
      ||| % { perWork: perWork, toGroup: toGroup, group: groupLabels }),
      // Groups whose middle half lies closer together by work than by time: their duration follows the work.
      record('group:argus_phase_work:fit', |||
        (%(byWork)s < %(share)g * (%(byTime)s)) ^ 0
      ||| % {
        byWork: middleHalf(perWork),
        byTime: middleHalf('(%s and %s)' % [ratio([compute]), perWork]),
        share: c.workFitShare,
      }),
    ],

    // The fast path: the last scrape interval alone, against the median of the longer window. A collective is not read
    // from so few spans: healthy waits come and go by more than the threshold.
    // The difference of two samples, wherever in the interval a host is scraped: a range of less than two intervals holds two
    // of some hosts only. Read when the later one is surely committed.
    local lately(metric) = '(%s offset %s - %s offset %s)'
                           % [metric, duration.of(c.settle), metric, duration.of(c.settle + c.fastWindow)],
    // A scrape that comes 2 % late holds as many.
    local leastFastSpans = 0.98 * c.fastMinSpans,
    local own = phase.outer + [compute],
    local fastMean = '%s / (%s >= %g)' % [lately(sum(own)), lately(count(own)), leastFastSpans],
    local fastSlow = rec('rank:argus_phase_duration_seconds:fast_slow'),
    // Where half of the group is slower than it was, by half of what makes a straggler, that is the group's new pace.
    local newPace = 'unless on (%s) count by (%s) (%s >= %s (%g * %s)) >= %s / 2' % [
      groupLabels,
      groupLabels,
      fastSlow,
      toGroup,
      (1 + c.fastRatio) / 2,
      group('median', own),
      ranks,
    ],
    local spansInFast = '(%s * %g)' % [spanRate, c.fastWindow],
    local fast = [
      // Ranks that lose something that counts.
      record('rank:argus_phase_duration_seconds:fast_slow', |||
        %(mean)s
        > %(toGroup)s (%(median)s + %(least)g / (%(spans)s > 0))
      ||| % {
        mean: ofRank(fastMean),
        toGroup: toGroup,
        median: group('median', own),
        least: c.excuseLeastRatio,
        spans: spanRate,
      }),
      // Only ranks beyond the threshold, and without their longest span: one spike is not a straggler.
      record('rank:argus_phase_duration_seconds:fast_ratio', |||
        (
          (%(slow)s >= %(toGroup)s (%(ratio)g * %(median)s)) * %(toGroup)s %(spans)s
          - on (%(peak)s) group_left () max by (%(peak)s) (%(longest)s)
        ) / %(toGroup)s (%(spans)s - 1)
        / %(toGroup)s (%(median)s > 0)
        >= %(ratio)g
        %(newPace)s
      ||| % {
        slow: fastSlow,
        spans: spansInFast,
        peak: 'training_job, rank, phase, kind, group',
        longest: raw('argus_phase_window_max_seconds', own),
        toGroup: toGroup,
        median: group('median', own),
        ratio: c.fastRatio,
        newPace: newPace,
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

    // Slow by the clock, but not for what it had to do.
    local explained = '(%s >= %g and %s < %g)' % [ratio([compute]), c.culpritRatio, byWork(), c.culpritRatio],

    local suspects = record('rank:argus_phase_suspect:lost_ratio', |||
      (
        (
          (%(ratio)s - 1) * %(toGroup)s %(median)s
          and on (%(rank)s) (
            (%(ratio)s >= %(culprit)g and on (%(rank)s) %(zscore)s >= %(threshold)s)
            or (%(ratio)s >= %(robust)g %(inMany)s)
            or (%(ratio)s >= %(pair)g %(inPair)s)
          )
        ) * %(toGroup)s %(spans)s
        or (
          (
            (1 - %(late)s) * %(toGroup)s %(lateMedian)s %(inMany)s
            or -(%(late)s * %(toGroup)s %(lateMedian)s - %(toGroup)s %(longest)s) %(inPair)s
          )
          and on (%(rank)s) (
            (%(late)s <= %(lateCulprit)g and on (%(rank)s) (-%(lateZ)s) >= %(threshold)s)
            or (%(late)s <= %(lateRobust)g %(inMany)s)
            or (%(late)s <= %(latePair)g %(inPair)s)
          )
        ) * %(toGroup)s %(spans)s
        or (
          (%(ratio)s * %(toGroup)s %(median)s * (1 - 1 / %(byWork)s))
          and on (%(group)s) %(fit)s
          and on (%(rank)s) (
            (%(byWork)s >= %(culprit)g and on (%(rank)s) (
              (%(byWork)s - 1) / %(toGroup)s (stddev by (%(group)s) (%(byWork)s) > 0) >= %(threshold)s
            ))
            or (%(byWork)s >= %(robust)g %(inMany)s)
          )
        ) * %(toGroup)s %(spans)s
        or (%(fast)s - 1) * %(toGroup)s (%(median)s * on (%(group)s) %(spans)s)
          unless on (training_job) (job:argus_work:fast_cv >= %(uneven)g or job:argus_work:cv >= %(uneven)g)
      ) >= %(lost)g
      unless on (%(rank)s) %(explained)s
      %(judged)s
    ||| % {
      byWork: byWork(),
      fit: rec('group:argus_phase_work:fit'),
      uneven: c.cvMild,
      explained: explained,
      toGroup: toGroup,
      median: group('median', [compute]),
      rank: rankLabels,
      group: groupLabels,
      ratio: ratio([compute] + phase.steady),
      zscore: zscore([compute] + phase.steady),
      threshold: threshold,
      culprit: c.culpritRatio,
      robust: c.robustRatio,
      pair: pairMedianRatio,
      inMany: inMany,
      inPair: inPair,
      spans: spanRate,
      fast: rec('rank:argus_phase_duration_seconds:fast_ratio'),
      // A collective ends together: the last to arrive has the shortest span, by its lateness. Against the median: who has
      // less to do and waits longest makes nobody late.
      lateMedian: group('median', [comm]),
      longest: group('max', [comm]),
      late: ratio([comm, ofOneCollective]),
      lateZ: zscore([comm, ofOneCollective]),
      lateCulprit: 1 / c.culpritRatio,
      lateRobust: 1 / c.robustRatio,
      latePair: 2 / (1 + c.pairRatio),
      lost: c.minLostRatio,
      judged: judged,
    }),
    local suspectRatio = record('rank:argus_phase_suspect:median_ratio', '%s and on (%s) %s' % [
      ratio([compute]),
      rankLabels,
      rec('rank:argus_phase_suspect:lost_ratio', [compute]),
    ]),
    // Effects to tell of at once.
    local striking = record(
      'rank:argus_phase_striking:ratio',
      std.join('\nor ', (if phase.nested then [] else [rec('rank:argus_phase_duration_seconds:fast_ratio')]) + [
        '%s >= %g' % [ratio(), c.fastRatio],
        '%s <= %g' % [ratio([comm]), 1 / c.fastRatio],
      ])
    ),
    // What a rank loses in its own phases, below every threshold of suspicion: it may explain that it is late.
    local excess = record('rank:argus_phase_excess:lost_ratio', |||
      (
        (%(slow)s %(newPace)s) * %(toGroup)s %(spans)s - %(toGroup)s (%(median)s * on (%(group)s) %(spans)s)
        or (%(ratio)s - 1) * %(toGroup)s %(median)s * %(toGroup)s %(spans)s
      ) >= %(least)g
    ||| % {
      slow: fastSlow,
      newPace: newPace,
      group: groupLabels,
      ratio: ratio([compute]),
      median: group('median', [compute]),
      toGroup: toGroup,
      spans: spanRate,
      least: c.excuseLeastRatio,
    }),
    // Ranks that are slow because they have more to do.
    local imbalance = record('rank:argus_work_imbalance:lost_ratio', |||
      (
        (%(explained)s - 1) * %(toGroup)s %(median)s * %(toGroup)s %(spans)s
      ) >= %(lost)g
      %(judged)s
    ||| % {
      toGroup: toGroup,
      median: group('median', [compute]),
      explained: explained,
      spans: spanRate,
      lost: c.minLostRatio,
      judged: judged,
    }),
    // Ranks that wait, within a span of their own, for one that loses time elsewhere. Empty but for `waitingPhases`.
    local waiting = record('rank:argus_phase_waiting:lost_ratio', |||
      (
        %(mean)s - %(toGroup)s min by (%(group)s) (%(mean)s and on (training_job, rank) %(direct)s)
      ) * %(toGroup)s %(spans)s >= %(lost)g
    ||| % {
      mean: mean(['kind="compute"', 'phase=~"%s"' % c.waitingPhases]),
      toGroup: toGroup,
      group: groupLabels,
      direct: labels.selector('rank:argus_phase_suspect:lost_ratio', ['kind!="comm"', 'phase!~"%s"' % c.waitingPhases]),
      spans: spanRate,
      lost: c.minLostRatio,
    }),

    local late = rec('rank:argus_phase_suspect:lost_ratio', [comm]),
    local peers = 'training_job, phase, kind, source, dimension',
    local transfer = rec('group:argus_collective_transfer:seconds'),
    local transferRatio = rec('group:argus_collective_transfer:ratio'),
    local slowTransfer = '%s >= %g' % [transferRatio, c.linkRatio],
    local transfers = [
      // The shortest span of a collective is its transfer. `dimension` is the group's kind: dp, tp, ep. Stages wait for one
      // another in what passes between them: no transfer can be read from that.
      record('group:argus_collective_transfer:seconds', |||
        label_replace(
          label_replace(%s, "dimension", "$1", "group", "([^:]*).*"),
          "stage", "$1", "group", ".*pp([0-9]+).*"
        )
      ||| % group('min', [comm, 'group!~"stage:.*"', ofKnown])),
      // Compared within a pipeline stage, which has its own share of the work, where that has groups enough.
      record('group:argus_collective_transfer:ratio', std.join('\nor on (%s) ' % groupLabels, [
        |||
          %(transfer)s / on (%(peers)s) group_left () (
            quantile by (%(peers)s) (0.5, %(transfer)s) and count by (%(peers)s) (%(transfer)s) >= %(minimum)d
          )
        ||| % { transfer: transfer, peers: among, minimum: c.linkMinGroups }
        for among in [peers + ', stage', peers]
      ])),
      record('rank:argus_collective_transfer:slow', 'max by (%s) (%s and on (%s) (%s))' % [
        rankLabels,
        mean([comm]),
        groupLabels,
        slowTransfer,
      ]),
    ],
    local collective = [
      // Those of whom the others are no minority: half of a group is no straggler.
      record('rank:argus_collective_late:lost_ratio', |||
        %(late)s
        unless on (%(group)s) (
          count by (%(group)s) (%(late)s) >= on (%(group)s) %(most)g * (%(ranks)s >= %(many)d)
        )
      ||| % { late: late, group: groupLabels, most: c.mostToBlame, ranks: ranks, many: c.zMinRanks }),
      record('rank:argus_collective_waiting:lost_ratio', |||
        (
          (
            (%(ratio)s and on (%(group)s) %(late)s unless on (%(rank)s) %(late)s) * %(toGroup)s %(median)s
            - %(toGroup)s %(min)s
          ) * %(toGroup)s %(spans)s
        ) >= %(lost)g
      ||| % {
        ratio: ratio([comm]),
        median: group('median', [comm]),
        group: groupLabels,
        rank: rankLabels,
        late: late,
        toGroup: toGroup,
        min: group('min', [comm]),
        spans: spanRate,
        lost: c.minLostRatio,
      }),
      // Not where half of the groups are: that is how the job is.
      record('group:argus_collective_slow_link:lost_ratio', |||
        (
          %(min)s * on (%(group)s) (1 - 1 / max by (%(group)s) (
            %(slow)s
            unless on (%(peers)s) (
              count by (%(peers)s) (%(slow)s) >= %(most)g * count by (%(peers)s) (%(all)s)
            )
          ))
          * on (%(group)s) %(spans)s
        ) >= %(lost)g
        unless on (%(group)s) %(late)s
        %(judged)s
      ||| % {
        min: group('min', [comm]),
        group: groupLabels,
        peers: peers,
        most: c.mostToBlame,
        slow: slowTransfer,
        all: transferRatio,
        spans: spanRate,
        lost: c.minLostRatio,
        late: late,
        judged: judged,
      }),
      // The same by member: its slow group makes it late elsewhere.
      record('rank:argus_collective_slow_link:lost_ratio', |||
        %(slow)s ^ 0 * %(toGroup)s %(link)s
      ||| % {
        slow: rec('rank:argus_collective_transfer:slow'),
        link: rec('group:argus_collective_slow_link:lost_ratio'),
        toGroup: toGroup,
      }),
    ],

    statisticsRules: statistics + work + [waiting] + transfers,
    suspectRules: (if phase.nested then [] else fast) + [suspects, suspectRatio, striking, imbalance, excess] + collective,
  },

  local subjects = [subject(phase) for phase in c.phases] + [rest],
  local ofSubjects = [rulesOf(phase) { phase:: phase } for phase in subjects],
  local groupsOf(name, seconds, rules) = [
    { name: 'argus-l2-%s%s' % [name, of.phase.name], interval: duration.of(seconds), rules: rules(of) }
    for of in ofSubjects
  ],

  prometheusRules+:: {
    groups+: groupsOf('window-', c.slowInterval, function(of) of.windowRules) + (
      if c.statisticsInterval == c.evaluationInterval then
        groupsOf('', c.evaluationInterval, function(of) of.statisticsRules + of.suspectRules)
      else
        groupsOf('statistics-', c.statisticsInterval, function(of) of.statisticsRules)
        + groupsOf('', c.evaluationInterval, function(of) of.suspectRules)
    ),
  },
}
