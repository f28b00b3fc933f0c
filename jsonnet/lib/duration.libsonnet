// Seconds (a number) to PromQL durations, and the ranges that hold the same samples on every engine.
{
  // 119 -> '119s', 0.2 -> '200ms'.
  of(seconds)::
    if seconds == std.floor(seconds) then '%ds' % seconds else '%dms' % std.round(seconds * 1000),

  // The range of a window: short of it by epsilon, so that left-open and closed ranges agree.
  range(config, seconds):: self.of(seconds - config.rangeEpsilon),
}
