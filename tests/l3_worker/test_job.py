"""One job over many cycles: which windows it judges, and how long what it says of them holds."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from argus_l3_worker.config import Config
from argus_l3_worker.errors import QueryError
from argus_l3_worker.job import CycleContext, Job
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.read.prometheus import Prometheus, Sample, Series
from argus_l3_worker.telemetry import Telemetry

RANKS = 16
BEGIN = 1_795_897_020 // 60 * 60.0
INFO = [Sample({"training_job": "llm", "rank": str(rank), "role": "pp0.tp0"}, 1.0) for rank in range(RANKS)]


def minute(at: float) -> int:
    """Windows of a minute each, the first of which ends at `BEGIN`."""
    return int((at - BEGIN) // 60)


class Published(Prometheus):
    """What ranks publish, by rank and Unix time: their last step, their steps, kernels, far launches."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []
        self.last_step: Callable[[int, float], int] = lambda _, at: 64 * minute(at)
        self.steps: Callable[[int, float], int] = lambda *_: 64
        self.slow: Callable[[int, float], bool] = lambda *_: False
        self.far: Callable[[int, float], float] = lambda *_: 0.0
        self.ends = float("inf")
        self.silent = False
        """From `ends` on no series at all; else the last window is shown for ever."""

    async def instant(self, query: str, at: float) -> list[Sample]:
        values: dict[str, Callable[[int, float], float]] = {
            "argus_kernel_window_steps": self.steps,
            "argus_kernel_window_last_step": self.last_step,
            "sum by (rank) (argus_kernel_tail_events": self.far,
        }
        if "argus_rank_info" in query:
            return INFO
        if at >= self.ends and self.silent:
            return []
        if query.startswith("count by (kernel)"):
            return [Sample({"kernel": "gemm"}, float(RANKS))]
        for begin, value in values.items():
            if query.startswith(begin):
                return [
                    Sample({"rank": str(rank)}, float(value(rank, min(at, self.ends))))
                    for rank in range(RANKS)
                ]
        return []

    async def until(self, query: str, begin: float, end: float, step: float) -> list[Series]:
        assert query.startswith("count_values")
        points: dict[int, list[tuple[float, float]]] = {}
        for at in np.arange(begin, end + 0.1, step).tolist():
            if at >= self.ends and self.silent:
                continue
            counts = Counter(self.last_step(rank, min(at, self.ends)) for rank in range(RANKS))
            for last_step, ranks in counts.items():
                points.setdefault(last_step, []).append((at, float(ranks)))
        return [Series({"last_step": str(one)}, tuple(of)) for one, of in points.items()]

    async def ask(self, query: str, at: float) -> bytes:
        self.asked_at.append(at)
        values = {"events": 500.0, "p50": 1e-3, "p99": 1.1e-3}
        name = next(name for name in values if name in query)
        result = [
            {
                "metric": {"rank": str(rank), "kernel": "gemm", "stream": "compute0", "mode": "0"},
                "value": [0, str(values[name] * (1.5 if name != "events" and self.slow(rank, at) else 1.0))],
            }
            for rank in range(RANKS)
        ]
        answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return json.dumps(answer).encode()


class Cycles:
    """A worker of that job, whose cycles come at second 50 of each minute."""

    def __init__(
        self,
        prometheus: Published,
        monotonic: Callable[[], float] = time.monotonic,
        asking: PrometheusConfig = PrometheusConfig(),  # noqa: B008 (frozen)
        history_seconds: float = 600.0,
    ) -> None:
        self.job = Job("llm")
        self._prometheus = prometheus
        config = Config(history_seconds=history_seconds, prometheus=asking)
        self._context = CycleContext(prometheus, config, Telemetry(), monotonic)

    def at(self, number: int, until: float | None = None) -> int:
        """Windows that the cycle in this minute looked at."""
        self._prometheus.asked_at.clear()
        asyncio.run(self.job.judge(self._context, INFO, BEGIN + 60.0 * number + 50.0, until))
        return len(set(self._prometheus.asked_at))

    @property
    def accused(self) -> set[tuple[str, str]]:
        return {(one.rank, one.cause) for one in self.job.verdicts}


# Ranks that count apart


def test_a_rank_that_marks_no_steps_hides_no_slow_rank() -> None:
    """Its windows are cut by time, and have numbers of their own."""
    published = Published()
    published.slow = lambda rank, _: rank == 3
    published.last_step = lambda rank, at: minute(at - 20) if rank == 15 else 10_048 + 64 * minute(at - 7)
    published.steps = lambda rank, _: 0 if rank == 15 else 64
    worker = Cycles(published)
    for number in range(20, 40):
        worker.at(number)
        assert worker.accused == {("3", "gpu-compute")}


def test_one_bad_window_is_judged_once_while_one_rank_goes_on_alone() -> None:
    """Rank 0 evaluates for twelve minutes; the others show the window before all the time."""
    published = Published()
    begin = BEGIN + 1800.0
    published.last_step = lambda rank, at: 64 * minute(min(at, begin)) if rank else 64 * minute(at)
    published.slow = lambda rank, at: rank == 7 and at >= begin
    worker = Cycles(published)
    for number in range(25, 42):
        worker.at(number)
        assert not worker.accused


# When kernels stop


@pytest.mark.parametrize("silent", [True, False])
def test_a_verdict_does_not_outlive_its_evidence(silent: bool) -> None:
    """The kernel channel dies, and the exporter shows nothing of it, or its last window: ten minutes."""
    published = Published()
    published.slow = lambda rank, _: rank == 3
    published.ends, published.silent = BEGIN + 60.0 * 30, silent
    worker = Cycles(published)
    for number in range(25, 40):
        worker.at(number)
        assert worker.accused == {("3", "gpu-compute")}
    for number in range(41, 44):
        worker.at(number)
        assert not worker.accused
        assert [one.reason for one in worker.job.abstentions] == ["no-kernels"]


def test_a_verdict_of_windows_that_take_long_waits_for_the_next_of_them() -> None:
    """One each twelve minutes is longer than what is looked back for."""
    published = Published()
    published.slow = lambda rank, _: rank == 3
    published.last_step = lambda _, at: 64 * (minute(at) // 12)
    worker = Cycles(published)
    for number in range(12, 100):
        worker.at(number)
        if number > 48:
            assert worker.accused == {("3", "gpu-compute")}


def test_a_first_window_that_is_still_coming_in_is_not_called_a_lack_of_kernels() -> None:
    """Three of sixteen ranks publish it, the others count apart: they do have kernels."""
    published = Published()
    published.last_step = lambda rank, _: 64 if rank < 3 else 1000 + rank
    worker = Cycles(published, history_seconds=30.0)
    worker.at(0)
    (said,) = worker.job.abstentions
    assert (said.reason, said.detail) == (
        "windows-disagree",
        "no window of kernels is published by most of 16 ranks yet",
    )


# After a start


def bursts() -> Published:
    """Rank 3 has far launches in the windows of four of the last eleven minutes."""
    published = Published()
    published.far = lambda rank, at: 60.0 if rank == 3 and minute(at) in (34, 36, 38, 40) else 0.0
    return published


def test_a_start_finds_bursts_in_windows_before_the_last_three() -> None:
    """Else each restart of the worker withdrew the ticket of a GPU's memory."""
    worker = Cycles(bursts())
    assert worker.at(40) == 11
    assert worker.accused == {("3", "gpu-memory")}
    assert worker.at(41) == 1


def test_older_windows_that_cannot_be_read_hold_up_no_new_one() -> None:
    """As where Prometheus is at its limit, which it is after a start sooner than ever."""
    published = bursts()
    published.slow = lambda rank, _: rank == 7

    async def refused(query: str, at: float) -> bytes:
        if minute(at) < 38:
            raise QueryError("too many samples")
        return await Published.ask(published, query, at)

    published.ask = refused  # type: ignore[method-assign]
    worker = Cycles(published)
    assert [worker.at(number) for number in (40, 41)] == [3, 1]
    assert worker.accused == {("7", "gpu-compute")}


def test_a_start_looks_for_bursts_as_far_as_a_cycle_has_time_for() -> None:
    """A window takes 15 s of a cycle's 48 s: the last three first, then two older ones in each cycle."""
    published, now = bursts(), 0.0

    async def slowly(query: str, at: float) -> bytes:
        nonlocal now
        now += 5.0  # three queries a window
        return await Published.ask(published, query, at)

    published.ask = slowly  # type: ignore[method-assign]
    worker = Cycles(published, lambda: now)
    looked = []
    for number in range(40, 46):
        looked.append(worker.at(number, until=now + 48.0))
        if number < 42:
            assert not worker.accused
    assert looked == [3, 3, 3, 2, 1, 1]
    assert worker.accused == {("3", "gpu-memory")}


def test_asking_ends_while_there_is_time_to_judge() -> None:
    """Twenty kernels of which each takes 6 s to ask for, in a cycle of 48 s: seven tenths of it."""
    published, now, kernels = Published(), 0.0, [f"gemm{number}" for number in range(20)]
    asked: list[float] = []

    async def instant(query: str, at: float) -> list[Sample]:
        if query.startswith("count by (kernel)"):
            return [Sample({"kernel": one}, float(RANKS)) for one in kernels]
        return await Published.instant(published, query, at)

    async def slowly(query: str, at: float) -> bytes:
        nonlocal now
        now += 2.0  # three queries a kernel
        asked.append(now)
        return await Published.ask(published, query, at)

    published.instant, published.ask = instant, slowly  # type: ignore[method-assign]
    worker = Cycles(published, lambda: now, PrometheusConfig(shard_series=1, concurrency=1))
    worker.at(40)  # three windows without a limit
    asked.clear()
    begun = now
    assert worker.at(41, until=begun + 48.0) == 1
    assert 0.5 * 48.0 < asked[-1] - begun <= 0.7 * 48.0 + 6.0, "what is under way ends"
    assert [one.reason for one in worker.job.abstentions] == ["overload"]
