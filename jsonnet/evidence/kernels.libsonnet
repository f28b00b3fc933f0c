// What the worker found in the kernels of a rank (argus_l3_anomaly), as a share of the wall time.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  local anomaly(matchers=[]) = 'max by (%s) (%s)' % [l.list(['rank', 'kernel', 'stream']), l.raw('argus_l3_anomaly', ['verdict="culprit"'] + matchers)],
  // Once a minute: the only rule that reads every kernel series.
  busy: [{
    about:: 'Share of the wall time in compute kernels; streams of computation overlap, so it may exceed 1.',
    record: 'rank:argus_kernel_busy:ratio',
    expr: text.fill('sum by (%(rank)s) (max by (%(rank)s, kernel, stream) (rate(%(seconds)s[%(range)s])))', {
      rank: l.rank,
      seconds: l.raw('argus_kernel_duration_seconds_total', ['stream=~"compute.*"']),
      range: duration.range(c, c.kernelRange),
    }),
  }],
  evidence: [{
    about:: "What the shift of a rank's kernels adds to its time; kernel=\"all\" is the worker's name for all of them.",
    record: 'rank:argus_evidence:lost_ratio',
    labels: { cause: 'kernel', detector: 'worker', phase: 'all' },
    expr: text.fill(|||
      max by (%(rank)s) (
        (1 - 1 / (1 + (%(some)s > 0))) * on (%(rank)s, kernel, stream) group_left ()
          max by (%(rank)s, kernel, stream) (rate(%(seconds)s[%(range)s]))
        or (1 - 1 / (1 + (%(whole)s > 0))) * on (%(rank)s) group_left () rank:argus_kernel_busy:ratio
      )
    |||, {
      rank: l.rank,
      some: anomaly(['kernel!="all"']),
      whole: anomaly(['kernel="all"']),
      seconds: l.raw('argus_kernel_duration_seconds_total'),
      range: duration.range(c, c.kernelRange),
    }),
  }],
}
