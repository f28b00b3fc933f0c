"""Copies, memory sets, voids between kernels, and issue latency, each of a size that is known beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np

from argus_core import wire
from bench.gpu_day.observe import run_program
from bench.gpu_day.program import COPIES, MEBIBYTES, SETS, SPIN_MS, VOID_S, VOIDS
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    seen = run_program(day, "before", "copies", "voids", "latency", ARGUS_ISSUE_LATENCY="1")
    moved = seen.kernels("copies")
    expected = MEBIBYTES << 10
    copies = moved[(moved["operation"] == wire.Operation.MEMCPY) & (moved["kilobytes"] == expected)]
    sets = moved[(moved["operation"] == wire.Operation.MEMSET) & (moved["kilobytes"] == expected)]
    spins = seen.kernels("voids")
    idle = np.diff(spins["start_ns"].astype(np.int64)) - spins["duration_ns"][:-1].astype(np.int64)
    voids = idle[idle >= int(VOID_S * 0.9e9)]
    steps = seen.kernels("before")
    launched = steps[steps["operation"] == wire.Operation.KERNEL]
    latencies = seen.kernels("latency")["issue_ns"].astype(np.float64)
    behind = latencies[latencies >= SPIN_MS * 0.9e6]
    return {
        "copies_missing": COPIES - len(copies),
        "sets_missing": SETS - len(sets),
        "copied_kib": int(copies["kilobytes"].sum()),
        "voids_missing": VOIDS - len(voids),
        "void_ms_p50": float(np.median(voids) / 1e6) if len(voids) else None,
        "latency_known_ratio": float((launched["issue_ns"] >= 0).mean()) if len(launched) else None,
        "launches_behind_a_kernel_missing": seen.told["steps"] - len(behind),
        "latency_behind_ms_p50": float(np.median(behind) / 1e6) if len(behind) else None,
        "dropped": seen.dropped(),
    }
