"""The kernels channel by the real cupti-python, beside torch.profiler's counts of the same steps."""

from __future__ import annotations

import importlib.util
from typing import Any

from bench.gpu_day.observe import compared, run_program
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    if importlib.util.find_spec("cupti") is None:
        if day.dry:
            # As far as it goes: the slot is empty, so the library is not there, and the program runs.
            seen = run_program(day, "before", CUDA_INJECTION64_PATH="", ARGUS_KERNELS_FALLBACK="1")
            day.reach(f"without the library: {len(seen.collector.with_kernels())} connections with kernels")
        raise NotRun("cupti-python is not installed (pip install cupti-python, of this CUDA's version)")
    seen = run_program(
        day, "until_armed", "before", "window", CUDA_INJECTION64_PATH="", ARGUS_KERNELS_FALLBACK="1"
    )
    begin, end = seen.told["stretches"]["before"]
    starts = seen.kernels("before")["start_ns"]
    edges = {}
    if len(starts):
        edges = {"first_ms": (int(starts[0]) - begin) / 1e6, "last_ms": (end - int(starts[-1])) / 1e6}
    return compared(seen.durations_us("before"), seen.told["profiler"]) | edges
