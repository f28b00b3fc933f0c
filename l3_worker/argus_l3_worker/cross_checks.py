"""KAIR's execution rhythm of each rank: a cross-check, published beside the verdicts, which makes none.

It looks at completions over time, which the kernel comparison does not, so that agreement means something.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core import catalogue
from argus_core.remote_write import Labels, labels_of
from argus_l3_worker.judge import rhythm
from argus_l3_worker.judge.config import CrossCheckConfig
from argus_l3_worker.read.prometheus import Prometheus, Series, selector

_LEAST_RANKS: Final = 4


@dataclass(frozen=True)
class CrossChecks:
    """Of one job. `rhythm`: mean K-S distance by rank."""

    training_job: str
    rhythm: Mapping[str, float]


async def cross_check(
    prometheus: Prometheus, training_job: str, roles: Mapping[str, str], at: float, config: CrossCheckConfig
) -> CrossChecks:
    """Ask Prometheus, and judge role by role: stages and tensor indices do other work.

    Args:
        roles: role by rank.
        at: Unix time.

    Raises:
        QueryError: Prometheus could not be asked.
    """
    launches = await prometheus.range(
        f"sum by (rank) ({selector(catalogue.KERNEL_LAUNCHES.name, {'training_job': training_job})})",
        at - config.window_seconds,
        at,
        config.window_seconds / config.slices,
    )
    members: dict[str, list[str]] = {}
    for rank, role in roles.items():
        members.setdefault(role, []).append(rank)
    seed = zlib.crc32(training_job.encode())
    divergence: dict[str, float] = {}
    for ranks in members.values():
        if len(ranks) >= _LEAST_RANKS:
            divergence |= await asyncio.to_thread(divergences, launches, ranks, seed)
    return CrossChecks(training_job, divergence)


def divergences(launches: Iterable[Series], ranks: Sequence[str], seed: int) -> dict[str, float]:
    """KAIR's score by rank. Over a scrape that is missing completions are spread evenly; a reset is one empty
    slice."""
    place = {rank: index for index, rank in enumerate(ranks)}
    times = sorted({time for series in launches for time, _ in series.points})
    if len(times) < 3:
        return {}
    totals = np.zeros((len(ranks), len(times)))
    for series in launches:
        row = place.get(series.labels.get("rank", ""))
        if row is not None:
            totals[row] = np.interp(times, *np.transpose(series.points))
    completions = np.maximum(np.diff(totals, axis=1), 0.0)
    scores = rhythm.scores(completions, seed)
    return {rank: float(score) for rank, score in zip(ranks, scores, strict=True) if np.isfinite(score)}


def series_of(checks: CrossChecks, worker: str) -> Iterator[tuple[Labels, float]]:
    """As series."""
    job = checks.training_job
    for rank, score in checks.rhythm.items():
        yield labels_of(catalogue.L3_RHYTHM.name, training_job=job, rank=rank, worker=worker), score
