"""CUDA graphs: each replay's kernels are seen, one latency a replay at most."""

from __future__ import annotations

from typing import Any

from bench.gpu_day.observe import compared, run_program
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    seen = run_program(day, "graph", "graph_window", ARGUS_ISSUE_LATENCY="1")
    replays = seen.told["steps"]
    measured = compared(seen.durations_us("graph"), seen.told["replay"], repeats=replays)
    kernels = seen.kernels("graph")
    return measured | {
        "replays": replays,
        "kernels_a_replay": len(kernels) / replays,
        "latencies_a_replay": int((kernels["issue_ns"] >= 0).sum()) / replays,
        "dropped": seen.dropped(),
    }
