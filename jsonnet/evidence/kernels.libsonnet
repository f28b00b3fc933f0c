// What the worker found in the kernels of a rank (argus_l3_anomaly), as a share of the wall time.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  local anomaly(matcher) = 'max by (%s) (%s)' % [l.list(['rank', 'cause', 'kernel', 'stream']), l.raw('argus_l3_anomaly', ['verdict="culprit"', 'cause!~"gpu-memory|gpu-transfer"', matcher])],
  // What the shift of kernels adds to the time of their rank, one after another on a stream; kernel="all" is the worker's name for all of them.
  local lost = text.fill(|||
    max by (%(rank)s, cause) (
      sum by (%(rank)s, cause, stream) (
        (1 - 1 / (1 + (%(some)s > 0))) * on (%(rank)s, kernel, stream) group_left ()
          max by (%(rank)s, kernel, stream) (rate(%(seconds)s[%(range)s]))
      )
      or (1 - 1 / (1 + (%(whole)s > 0))) * on (%(rank)s) group_left ()
        sum by (%(rank)s) (max by (%(rank)s, kernel, stream) (rate(%(compute)s[%(range)s])))
    )
  |||, {
    rank: l.rank,
    some: anomaly('kernel!="all"'),
    whole: anomaly('kernel="all"'),
    seconds: l.raw('argus_kernel_duration_seconds_total'),
    // Streams of computation overlap: their share of the wall time may exceed 1.
    compute: l.raw('argus_kernel_duration_seconds_total', ['stream=~"compute.*"']),
    range: duration.range(c, c.kernelRange),
  }),
  local evidence = { record: 'rank:argus_evidence:lost_ratio', labels: { detector: 'worker', phase: 'all' } },
  // The worker's causes, by the rows of the table that they are evidence of.
  local renamed(source, cause, row) = 'label_replace(%s, "cause", "%s", "cause", "%s")' % [source, row, cause],
  // Once a minute, as often as the worker: they alone read every kernel series.
  rules: [
    evidence {
      about:: 'What slow kernels add to the time of a rank whose work is that of its peers (kernel), or that also runs them more or less often than its peers in the same steps, so that it has other work (kernel-work). Launches that are slow now and then shift no time that is known; copies may be hidden.',
      expr: renamed(renamed('\n' + lost, 'gpu-compute', 'kernel'), 'workload', 'kernel-work'),
    },
    evidence {
      about:: 'The same: what its phases take longer is explained by it.',
      labels+: { cause: 'more-work' },
      expr: 'max by (' + l.rank + ') (rank:argus_evidence:lost_ratio{cause="kernel-work"})',
    },
  ],
}
