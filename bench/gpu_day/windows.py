"""torch.profiler in mid-run: it gets its windows, none of their kernels are ours, and ours come back."""

from __future__ import annotations

from typing import Any

from bench.gpu_day.observe import compared, run_program
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    seen = run_program(day, "before", "window", "windows", "after")
    before, after = seen.durations_us("before"), seen.durations_us("after")
    statistics = seen.told["statistics"]
    against = compared(after, before)
    return {
        "count_ratio_after": against["count_ratio"],
        "p50_off_after": against["p50_off"],
        "kernels_of_the_window": len(seen.kernels("window")),
        "kernels_of_the_profiler": sum(len(durations) for durations in seen.told["profiler"].values()),
        "pauses_less_rearms": statistics["pauses"] - statistics["rearms"],
        "pauses": statistics["pauses"],
        "clock_changes": statistics["clock_changes"],
        "dropped": seen.dropped(),
    }
