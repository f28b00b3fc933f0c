// What explains that a job is slow: the network, or a culprit.
local duration = import 'duration.libsonnet';

{
  // Once it did it does for a while: evidence near its threshold comes and goes, and the alert would wait anew each time.
  byFabric(config)::
    'max_over_time(job:argus_collective_transfer:regression_ratio[%s])' % duration.range(config, config.regressionAge),

  // What of `lost`, shares of wall time, a culprit of the job costs: a small culprit explains no large loss.
  // A rank's phases add up, and its kernels do; kernels run inside phases. That is what is known of its cost, as the rest may
  // hide in a phase in which the others wait: up to two thirds of it. Culprits are remembered for as long as a mean is.
  byCulprit(config, lost):: |||
    (
      %(lost)s
      <= on (training_job) group_left () %(factor)g * max by (training_job) (
        sum by (training_job, rank, level) (
          max_over_time(rank:argus_verdict:lost_ratio{verdict="culprit", cause!="%(unexplained)s"}[%(range)s])
        )
      )
    )
  ||| % {
    lost: lost,
    factor: 2 * config.explainedRatio,
    range: duration.range(config, config.meanWindows[0]),
    unexplained: config.causes.history.unexplained.cause,
  },
  // What a job loses to its regression.
  lost:: '(1 - 1 / max by (training_job) (job:argus_iteration:regression_ratio))',
}
