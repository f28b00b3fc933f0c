"""Counts and durations of kernels, copies and sets beside torch.profiler's of the same steps."""

from __future__ import annotations

from typing import Any

from bench.gpu_day.fixtures import keep_recording, keep_trace
from bench.gpu_day.observe import compared, run_program
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    recording = day.work / "kernels"
    seen = run_program(day, "before", "window", ARGUS_RECORD=str(recording), ARGUS_RECORD_MEBIBYTES="4")
    measured = compared(seen.durations_us("before"), seen.told["profiler"])
    measured |= {"dropped": seen.dropped(), "cupti_version": seen.told["statistics"]["cupti_version"]}
    day.reach(f"compared {measured['kernels']} kernels")
    measured["fixtures"] = [keep_recording(day, recording), keep_trace(day, seen)]
    return measured
