"""CUDA events and CUPTI's clock at the same points of one stream: a memory set behind each event marks it.

Where an event stands on the clock of kernel records decides whether phases can be split into computing,
waiting and idling. A marker's record starts where the event before it was passed; what is left after the
first marker was made the base is what an event would be wrong by.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argus_core import wire
from bench.gpu_day.observe import run_program
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    seen = run_program(day, "clock")
    kernels = seen.kernels("clock")
    marks = kernels[kernels["operation"] == wire.Operation.MEMSET]["start_ns"].astype(np.float64)
    events = np.array(seen.told["event_ms"]) * 1e6
    steps = np.array(seen.told["next_event_ms"]) * 1e6
    measured: dict[str, Any] = {"events": len(events), "markers": len(marks)}
    measured["markers_missing"] = abs(len(events) - len(marks))
    if len(marks) != len(events):
        return measured
    apart = (marks - marks[0]) - events
    drift, _ = np.polyfit(events / 1e9, apart / 1e3, 1)
    between = np.abs(np.diff(marks) - steps) / 1e3
    day.reach(f"compared {len(marks)} marks")
    return measured | {
        "drift_us_per_s": abs(float(drift)),
        "seconds": float(events[-1] / 1e9),
        "off_us_one_base_max": float(np.abs(apart).max() / 1e3),
        "off_us_own_base_p50": float(np.median(between)),
        "off_us_own_base_p99": float(np.quantile(between, 0.99)),
        "clock_changes": seen.told["statistics"]["clock_changes"],
    }
