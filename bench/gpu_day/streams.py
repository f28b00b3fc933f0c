"""Several streams: each with its own number and all of its kernels."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bench.gpu_day.observe import run_program
from bench.gpu_day.program import STREAMS
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    seen = run_program(day, "streams")
    counts = Counter(int(stream) for stream in seen.kernels("streams")["stream"])
    most = sorted(counts.values(), reverse=True)[:STREAMS]
    return {
        "streams": len(counts),
        "kernels_by_stream": {str(stream): count for stream, count in sorted(counts.items())},
        "least_over_most": most[-1] / most[0] if len(most) == STREAMS else None,
        "least": most[-1] / seen.told["steps"] if len(most) == STREAMS else None,
    }
