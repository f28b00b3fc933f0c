// Seconds (a number) to PromQL durations, and the ranges that hold the same samples on every engine.
{
  // 600 -> '10m', 119 -> '119s', 0.2 -> '200ms'.
  of(seconds)::
    if seconds != std.floor(seconds) then '%dms' % std.floor(seconds * 1000 + 0.5)
    else if seconds > 0 && seconds % 3600 == 0 then '%dh' % (seconds / 3600)
    else if seconds > 0 && seconds % 60 == 0 then '%dm' % (seconds / 60)
    else '%ds' % seconds,

  // The range of a window: short of it by epsilon, so that left-open and closed ranges agree.
  range(config, seconds):: self.of(seconds - config.rangeEpsilon),
}
