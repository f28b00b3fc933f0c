// Whether the network explains a regression.
local duration = import 'duration.libsonnet';

{
  // Once it did it does for a while: evidence near its threshold comes and goes, and the alert would wait anew each time.
  byFabric(config)::
    'max_over_time(job:argus_collective_transfer:regression_ratio[%s])' % duration.range(config, config.regressionAge),
}
