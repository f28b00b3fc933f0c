// Stragglers that a mean of one phase hides (cases 3 and 4 of the ARGUS paper, which that system missed).
//
// Gradient synchronisation gives all ranks the same iteration time, so a pipeline stage that works longer shows only in
// what it does not do: it has the least idle time among the ranks of the same stage. And a rank with a rare, long span
// has a normal mean: its maxima are counted.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local series(metric, matchers=[]) = labels.selector(metric, [c.argusSelector] + matchers),
  local busy = 'rank:argus_compute_busy:ratio',
  local busyRatio = 'rank:argus_compute_busy:median_ratio',
  // The total of an exporter that had no time to run stands still and then jumps: its rate is no share of time.
  local kernelSeconds = series('argus_kernel_duration_seconds_total', ['stream=~"compute.*"']),
  local steadyKernels = text.fill(|||
    (
      rank:argus_kernel_busy:ratio <= %(most)s
      and on (training_job, rank) (
        max by (training_job, rank) (changes(%(seconds)s[%(range)s]) - count_over_time(%(seconds)s[%(range)s])) >= -1
      )
    )
  |||, { most: c.busyMost, seconds: kernelSeconds, range: duration.range(c, c.kernelCostRange) }),
  local spike = 'rank:argus_phase_spike:seconds',
  local spikeLabels = 'training_job, phase, kind, group',
  // Shares of wall time are compared with those that were measured alike: `source` is kernel or phase.
  local alike = 'training_job, group, source',
  local toGroup = 'on (%s) group_left ()' % alike,
  local long = duration.range(c, c.spikeWindow),
  // A spike is seen by this many evaluations, as the exporter's maximum trails.
  local seen = c.extremesWindow / c.slowInterval,
  local training = 'unless on (training_job) (job:argus_train:seconds < %g)',
  local own = 'rank:argus_phase_suspect:lost_ratio{phase!="all", kind!="comm"}',

  local bubble = [
    {
      // Compute groups hold the ranks of one stage, over all pipelines.
      record: busy,
      about:: 'Share of wall time that a rank computes, by its kernels or else by phases that cannot hold a wait: longer work shows here where all ranks have the same iteration time.',
      expr: text.fill(|||
        label_replace(
          %(steadyKernels)s  * on (training_job, rank) group_right ()
            count by (training_job, rank, group) (
              rank:argus_phase_duration_seconds:mean{kind="compute", phase!~"%(nested)s"}
            ) ^ 0,
          "source", "kernel", "", ""
        )
        or on (training_job, rank, group) label_replace(
          sum by (training_job, rank, group) (
            rank:argus_phase_duration_seconds:mean{kind="compute", source!="kernel", phase!~"%(waiting)s|%(nested)s"}
            * on (%(group)s) group_left () group:argus_phase_spans:rate
          ),
          "source", "phase", "", ""
        )
      |||, { steadyKernels: steadyKernels, waiting: c.waitingPhases, nested: c.nestedPattern, group: labels.phaseGroup }),
    },
    {
      record: busyRatio,
      about:: 'Share of wall time that a rank computes, against the median of the ranks of its stage that were measured alike.',
      expr: '%(busy)s / %(toGroup)s (quantile by (%(alike)s) (0.5, %(busy)s) > 0)'
            % { busy: busy, toGroup: toGroup, alike: alike },
    },
    {
      record: 'rank:argus_bubble:ratio',
      about:: 'Share of wall time that a rank does not compute: in a pipeline the stage that works longest has the least.',
      expr: 'clamp_min(1 - %s, 0)' % busy,
    },
    {
      record: 'job:argus_stage_imbalance:ratio',
      about:: 'Pipeline stages that compute more than the usual one: how a model is divided is a choice, yet worth knowing.',
      expr: text.fill(|||
        (
          %(stages)s
          / on (training_job) group_left () (quantile by (training_job) (0.5, %(stages)s) > 0)
        ) >= %(ratio)s
        and on (training_job) (max by (training_job) (%(stages)s) - min by (training_job) (%(stages)s)) >= %(lost)s
      |||, {
        stages: |||
          avg by (training_job, stage) (label_replace(%s{group=~".*pp[0-9]+.*"}, "stage", "$1", "group", ".*pp([0-9]+).*"))
        ||| % busy,
        ratio: c.culpritRatio,
        lost: c.minLostRatio,
      }),
    },
    {
      // In two evaluations: the counters of kernels advance by whole windows, each rank's at moments of its own. Not a
      // rank that is known by one of its phases.
      record: 'rank:argus_phase_suspect:lost_ratio',
      about:: 'Ranks that compute more than the others of their stage though none of their phases says so.',
      labels: { phase: 'all', kind: 'compute', source: 'busy' },
      expr: text.fill(|||
        (
          %(busy)s - %(toGroup)s quantile by (%(alike)s) (0.5, %(busy)s)
        ) >= %(lost)s
        and min_over_time(%(busyRatio)s[%(twice)s]) >= %(ratio)s
        and count_over_time(%(busyRatio)s[%(twice)s]) >= 2
        and on (%(alike)s) count by (%(alike)s) (%(busy)s) > 2
        unless on (%(alike)s) (
          count by (%(alike)s) (%(busy)s)
            < on (training_job, group) group_left () %(coverage)s * group:argus_ranks:expected
        )
        unless on (training_job, rank) %(own)s
        unless on (training_job, rank, group) (
          %(byWork)s / %(toGroup)s quantile by (%(alike)s) (0.5, %(byWork)s) < %(ratio)s
        )
        %(training)s
      |||, {
        alike: alike,
        busy: busy,
        busyRatio: busyRatio,
        twice: duration.range(c, 2 * c.slowInterval),
        // For what it had to do, where work is uneven.
        byWork: '(%s / on (training_job, rank) group_left () rank:argus_work:rate)' % busy,
        toGroup: toGroup,
        lost: c.minLostRatio,
        ratio: c.culpritRatio,
        coverage: c.minCoverage,
        own: own,
        training: training % c.meanWindows[0],
      }),
    },
  ],

  local spikes = [
    {
      record: spike,
      about:: "Seconds by which the longest span of the trailing window exceeds the group's median, where that is far: the mean of a rank with rare, long spans is normal.",
      expr: text.fill(|||
        (
          max by (training_job, rank, phase, kind, group) (
            %(longest)s
              > on (%(group)s) group_left () %(ratio)s * max by (%(group)s) (group:argus_phase_duration_seconds:median)
          )
        ) - on (%(group)s) group_left () max by (%(group)s) (group:argus_phase_duration_seconds:median)
      |||, {
        longest: series('argus_phase_window_max_seconds', ['kind!="comm"', 'phase!~"%s"' % c.nestedPattern]),
        group: spikeLabels,
        ratio: c.spikeRatio,
      }),
    },
    {
      record: 'rank:argus_phase_suspect:lost_ratio',
      about:: 'Time lost to rare, long spans, where one rank has them again and again and its group does not.',
      labels: { source: 'spikes' },
      expr: text.fill(|||
        sum_over_time(%(spike)s[%(long)s]) / %(divisor)s >= %(lost)s
        and count_over_time(%(spike)s[%(long)s]) >= %(least)s
        and count_over_time(%(spike)s[%(long)s]) >= on (%(group)s) group_left () (
          %(outlying)s * sum by (%(group)s) (count_over_time(%(spike)s[%(long)s]))
          / max by (%(group)s) (group:argus_phase_ranks:count)
        )
        unless on (training_job, rank, phase) rank:argus_phase_suspect:lost_ratio{source!~"spikes|busy", kind!="comm"}
        %(training)s
      |||, {
        spike: spike,
        long: long,
        divisor: seen * c.spikeWindow,
        lost: c.minLostRatio,
        least: c.spikeMinWindows * seen,
        group: spikeLabels,
        outlying: c.spikeOutlyingRatio,
        training: training % c.spikeWindow,
      }),
    },
    {
      record: 'rank:argus_phase_suspect:lost_ratio',
      about:: 'Ranks whose long spans are no longer than what they compiled: their host, not their GPU.',
      labels: { phase: 'compile', kind: 'host', group: 'host', source: 'spikes' },
      expr: text.fill(|||
        max by (training_job, rank) (rank:argus_phase_suspect:lost_ratio{source="spikes", kind="compute"})
          <= on (training_job, rank) %(factor)s * sum by (training_job, rank) (
            max by (training_job, rank, compiler) (rate(%(compiled)s[%(long)s]))
          )
      |||, { factor: c.explainedRatio, compiled: series('argus_compile_seconds_sum'), long: long }),
    },
  ],

  prometheusRules+:: {
    groups+: [
      { name: 'argus-masked-bubble', interval: duration.of(c.slowInterval), rules: bubble },
      { name: 'argus-masked-spikes', interval: duration.of(c.slowInterval), rules: spikes },
    ],
  },
}
