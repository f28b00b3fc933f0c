"""Exit statuses of many short jobs, as they end with ARGUS attached: we may change none and hold none up."""

from __future__ import annotations

import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bench.gpu_day.collector import collecting
from bench.gpu_day.observe import attached, base_environment, finish, start
from bench.gpu_day.step import Day

EXPECTED = {"return": 0, "exit7": 7, "raise": 1, "terminate": -signal.SIGTERM, "abrupt": 5, "busy": 0}
_JOBS, _DRY_JOBS = 100, 6
_AT_ONCE = 8


def run(day: Day) -> dict[str, Any]:
    jobs = _DRY_JOBS if day.dry else _JOBS
    kinds = [list(EXPECTED)[index % len(EXPECTED)] for index in range(jobs)]
    at_once = 2 if day.dry else _AT_ONCE
    without = [base_environment(day)] * (0 if day.dry else len(EXPECTED))
    with collecting(day.work) as collector, ThreadPoolExecutor(at_once) as pool:
        # A rank of its own for each: one process a rank is observed at a time.
        environments = [attached(day, collector.path, rank=index) for index in range(jobs)]
        ended = list(pool.map(_end, kinds, environments))
        day.reach(f"{jobs} jobs ended")
        bare = list(pool.map(_end, EXPECTED, without))
        collector.wait_ended()
        seen = {one.hello.rank for one in collector.with_kernels()}
    observed = sum(rank in seen and kind in ("return", "exit7", "raise") for rank, kind in enumerate(kinds))
    wrong = Counter(
        f"{kind}: {status}, not {EXPECTED[kind]}"
        for kind, (status, _) in zip(kinds, ended, strict=True)
        if status != EXPECTED[kind]
    )
    settled = sum(kind in ("return", "exit7", "raise") for kind in kinds)
    return {
        "jobs": jobs,
        "wrong_statuses": sum(wrong.values()),
        "wrong": dict(wrong),
        "settled_jobs": settled,
        "settled_jobs_seen_ratio": observed / settled,
        "seconds_p50": float(np.median([seconds for _, seconds in ended])),
        "seconds_max": max(seconds for _, seconds in ended),
        "seconds_p50_without": float(np.median([seconds for _, seconds in bare])) if bare else None,
    }


def _end(kind: str, environment: dict[str, str]) -> tuple[int, float]:
    began = time.monotonic()
    status, _, _ = finish(start(environment, "-m", "bench.gpu_day.starts", "ends", kind))
    return status, time.monotonic() - began
