// Seconds (a number) to PromQL durations, and the ranges that hold the same samples on every engine.
//
// Joined, not formatted: C++ and Go jsonnet interpret `%` character by character, and this is asked a thousand times.
{
  // 600 -> '10m', 119 -> '119s', 0.2 -> '200ms'.
  of(seconds)::
    if seconds != std.floor(seconds) then std.floor(seconds * 1000 + 0.5) + 'ms'
    else if seconds > 0 && seconds % 3600 == 0 then seconds / 3600 + 'h'
    else if seconds > 0 && seconds % 60 == 0 then seconds / 60 + 'm'
    else seconds + 's',

  // The range of a window: short of it by epsilon, so that left-open and closed ranges agree.
  range(config, seconds):: self.of(seconds - config.rangeEpsilon),

  // Evaluations of what decides in that time, of which one of twelve may be missed.
  evaluations(config, seconds):: std.toString(std.floor(seconds / config.decisionInterval * 11 / 12 + 0.001)),
}
