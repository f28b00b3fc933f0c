// What the worker found in the kernels of a rank (argus_l3_anomaly), as a share of the wall time.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  local anomaly(matchers=[]) = 'max by (%s) (%s)' % [l.list(['rank', 'kernel', 'stream']), l.raw('argus_l3_anomaly', ['verdict="culprit"'] + matchers)],
  // What the shift of kernels adds to the time of their rank; kernel="all" is the worker's name for all of them.
  local lost(cause) = text.fill(|||
    max by (%(rank)s) (
      (1 - 1 / (1 + (%(some)s > 0))) * on (%(rank)s, kernel, stream) group_left ()
        max by (%(rank)s, kernel, stream) (rate(%(seconds)s[%(range)s]))
      or (1 - 1 / (1 + (%(whole)s > 0))) * on (%(rank)s) group_left ()
        sum by (%(rank)s) (max by (%(rank)s, kernel, stream) (rate(%(compute)s[%(range)s])))
    )
  |||, {
    rank: l.rank,
    some: anomaly([cause, 'kernel!="all"']),
    whole: anomaly([cause, 'kernel="all"']),
    seconds: l.raw('argus_kernel_duration_seconds_total'),
    // Streams of computation overlap: their share of the wall time may exceed 1.
    compute: l.raw('argus_kernel_duration_seconds_total', ['stream=~"compute.*"']),
    range: duration.range(c, c.kernelRange),
  }),
  local evidence(cause, about, expr) = {
    about:: about,
    record: 'rank:argus_evidence:lost_ratio',
    labels: { cause: cause, detector: 'worker', phase: 'all' },
    expr: expr,
  },
  // Once a minute, as often as the worker: they alone read every kernel series.
  rules: [
    evidence('kernel', 'What slow kernels add to the time of a rank whose work is that of its peers.', lost('cause!="workload"')),
    evidence('kernel-work', 'The same of a rank that also runs them more or less often than its peers in the same steps: it has other work.', lost('cause="workload"')),
    evidence('more-work', 'The same: what its phases take longer is explained by it.', 'max by (' + l.rank + ') (rank:argus_evidence:lost_ratio{cause="kernel-work"})'),
  ],
}
