"""One window of one job from Prometheus, kernel by kernel, the largest first, until time is up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from argus_core import catalogue
from argus_l3_worker.read.assemble import JobSamples
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.read.mode_columns import ModeColumns, concatenate, decode_modes
from argus_l3_worker.read.prometheus import Prometheus, Sample, selector
from argus_l3_worker.read.windows import Span
from argus_l3_worker.roles import natural

T = TypeVar("T")

_BY: Final = "rank, kernel, stream, mode"
_MODE_FAMILIES: Final = (
    catalogue.KERNEL_MODE_EVENTS,
    catalogue.KERNEL_MODE_P50,
    catalogue.KERNEL_MODE_P99,
)
# Names in one query: a regular expression of 500 kernels is some 20 kB.
_KERNELS_A_SHARD: Final = 500
# Over this time shares of kernel time are taken: several scrapes, and no more than the story of a window.
_SHARE_WINDOW: Final = "5m"
# Where it is not known when a window began: two of a minute.
_USUAL_SPAN: Final = 120.0
# Ranks whose series tell which kernels there are. To count all series of 10,000 ranks costs Prometheus a
# quarter of what the fetch itself costs (5.8 s of CPU against 0.06 s).
_SAMPLED_RANKS: Final = 64


@dataclass(frozen=True)
class Fetched:
    """One window.

    Attributes:
        kernels: how many there are.
        left_out: those that were not asked for, because time or `max_kernels` was used up.
    """

    samples: JobSamples
    kernels: int
    left_out: tuple[str, ...]


async def fetch_window(
    prometheus: Prometheus,
    job: str,
    at: float,
    config: PrometheusConfig,
    deadline: float | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    kernels: Sequence[str] | None = None,
    span: Span | None = None,
) -> Fetched:
    """Ask for all that is judged.

    Args:
        at: Unix time.
        span: when the steps of the window were done; None: shortly before `at`.
        kernels: ask for these only; the window then counts as incomplete.
        deadline: of `monotonic`; from then on no further kernels are asked for. The largest are, always.

    Raises:
        QueryError: no answer, or an incomplete one.
    """
    in_job = {"training_job": job}
    span = span or Span(at, _USUAL_SPAN)
    info, last_step, steps, cutoff, coverage, tails, units, iterations = await together(
        prometheus.instant(query, when)
        for query, when in (
            (selector(catalogue.RANK_INFO.name, in_job), at),
            (selector(catalogue.KERNEL_WINDOW_LAST_STEP.name, in_job), at),
            (selector(catalogue.KERNEL_WINDOW_STEPS.name, in_job), at),
            (selector(catalogue.KERNEL_CUTOFF.name, in_job), at),
            (selector(catalogue.KERNEL_COVERAGE.name, in_job), at),
            (f"sum by (rank) ({_compute(catalogue.KERNEL_TAIL_EVENTS, job)})", at),
            (
                f"max by (rank) (rate({selector(catalogue.WORK_UNITS.name, in_job)}[{_range(span)}]))",
                span.end,
            ),
            (
                f"max by (rank) (rate({catalogue.ITERATION_DURATION.name}_count"
                f"{selector('', in_job)}[{_range(span)}]))",
                span.end,
            ),
        )
    )
    sample = _sampled([one.labels["rank"] for one in last_step if one.labels.get("rank")])
    size = await _sizes(prometheus, job, at, sample)
    total = len(size)
    if kernels is not None:
        size = {kernel: size[kernel] for kernel in kernels if kernel in size}
    ranked: Sequence[str] = sorted(size)
    if sum(size.values()) > config.shard_series or len(size) > min(config.max_kernels, _KERNELS_A_SHARD):
        ranked = await _by_share(prometheus, job, at, size, sample)
    waiting = deque(shards(ranked[: config.max_kernels], size, config.shard_series))
    parts: list[ModeColumns] = []

    async def take_shards() -> None:
        first = True
        while waiting and (first or deadline is None or monotonic() < deadline):
            first = False
            parts.append(await _shard(prometheus, job, at, waiting.popleft()))

    await together(take_shards() for _ in range(config.concurrency))
    left_out = [kernel for shard in waiting for kernel in shard] + list(ranked[config.max_kernels :])
    modes = await asyncio.to_thread(concatenate, parts)
    return Fetched(
        JobSamples(
            info,
            last_step,
            steps,
            modes,
            cutoff,
            coverage,
            () if left_out else tails,
            work_of_steps(units, iterations),
            complete=not left_out and len(size) == total,
        ),
        total,
        tuple(left_out),
    )


@dataclass(frozen=True)
class _Sampled:
    """Some ranks, by which queries about kernels are asked; `ranks` empty: all of them."""

    ranks: tuple[str, ...]
    times: float


def _sampled(ranks: Sequence[str]) -> _Sampled:
    """Ranks at even distances, so that each stage and kind of host is likely among them."""
    if len(ranks) <= 2 * _SAMPLED_RANKS:
        return _Sampled((), 1.0)
    ordered = sorted(ranks, key=natural)
    chosen = tuple(ordered[place * len(ordered) // _SAMPLED_RANKS] for place in range(_SAMPLED_RANKS))
    return _Sampled(chosen, len(ordered) / len(chosen))


def _compute(family: catalogue.Family, job: str, ranks: Sequence[str] = ()) -> str:
    """The series of compute streams, of all ranks or some."""
    chosen = selector(family.name, {"training_job": job}, rank=ranks)
    return f'{chosen[:-1]},stream=~"compute.*"}}'


def work_of_steps(units: Sequence[Sample], iterations: Sequence[Sample]) -> list[Sample]:
    """Units of work a step by rank; where the job marks no steps, a second.

    A step more or less on either side of a scrape changes a rate, but not the work of a step.

    Args:
        units, iterations: rates by rank.
    """
    steps = {one.labels.get("rank"): one.value for one in iterations if one.value > 0.0}
    if not all(one.labels.get("rank") in steps for one in units):
        return list(units)
    return [replace(one, value=one.value / steps[one.labels.get("rank")]) for one in units]


async def mean_seconds(
    prometheus: Prometheus, job: str, ranks: Sequence[str], at: float, span: Span | None = None
) -> dict[str, float]:
    """Mean duration of a launch on compute streams, by rank, far launches included.

    Over twice the time of a window: what a burst cost is to be seen before it is over.

    Raises:
        QueryError: no answer, or an incomplete one.
    """
    over = _range(Span(at, _USUAL_SPAN if span is None else 2.0 * span.seconds))
    seconds, launches = (
        f"sum by (rank) (increase({_compute(family, job, ranks)}[{over}]))"
        for family in (catalogue.KERNEL_DURATION_TOTAL, catalogue.KERNEL_LAUNCHES)
    )
    answer = await prometheus.instant(f"{seconds} / {launches}", at)
    return {one.labels["rank"]: one.value for one in answer if one.labels.get("rank")}


def _range(span: Span) -> str:
    return f"{round(span.seconds * 1000)}ms"


async def _sizes(prometheus: Prometheus, job: str, at: float, sample: _Sampled) -> dict[str, float]:
    """Series by kernel: every kernel, its size estimated from the sampled ranks where they run it."""

    async def counted(modes: str) -> dict[str, float]:
        answer = await prometheus.instant(f"count by (kernel) ({modes})", at)
        return {kernel: one.value for one in answer if (kernel := one.labels.get("kernel", ""))}

    events, in_job = catalogue.KERNEL_MODE_EVENTS.name, {"training_job": job}
    size = await counted(selector(events, in_job, rank=sample.ranks))
    if not sample.ranks:
        return size
    rest = await counted(selector(events, in_job, excluded={"kernel": size}))
    return {kernel: series * sample.times for kernel, series in size.items()} | rest


async def _by_share(
    prometheus: Prometheus, job: str, at: float, size: dict[str, float], sample: _Sampled
) -> list[str]:
    """Kernels by their share of the job's kernel time, largest first; where unknown by number of series."""
    total = selector(catalogue.KERNEL_DURATION_TOTAL.name, {"training_job": job}, rank=sample.ranks)
    shares = await prometheus.instant(f"sum by (kernel) (rate({total}[{_SHARE_WINDOW}]))", at)
    share = {one.labels.get("kernel", ""): one.value for one in shares}
    return sorted(size, key=lambda kernel: (-share.get(kernel, 0.0), -size[kernel], kernel))


async def _shard(prometheus: Prometheus, job: str, at: float, kernels: Sequence[str]) -> ModeColumns:
    # By labels: a rank that moved to another host within the lookback is there twice, and every label that a
    # scrape adds would have to be read.
    answers = await together(
        prometheus.ask(
            f"max by ({_BY}) ({selector(family.name, {'training_job': job}, kernel=kernels)})",
            at,
        )
        for family in _MODE_FAMILIES
    )
    return await asyncio.to_thread(decode_modes, *answers)


def shards(kernels: Iterable[str], size: dict[str, float], limit: int) -> list[list[str]]:
    """Kernels in their order, in groups of at most `limit` series; a kernel with more stands alone."""
    found: list[list[str]] = []
    room = 0.0
    for kernel in kernels:
        if not found or size[kernel] > room or len(found[-1]) >= _KERNELS_A_SHARD:
            found.append([])
            room = float(limit)
        found[-1].append(kernel)
        room -= size[kernel]
    return found


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; where one fails, the others are ended before its error goes on."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
