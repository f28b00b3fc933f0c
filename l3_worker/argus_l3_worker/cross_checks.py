"""Cross-checks of each rank: EROICA's function patterns and KAIR's execution rhythm.

They judge other series than the kernel comparison does (shares of wall time, completions over time), so that
agreement means something. They are published beside its verdicts and never make one.
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
from argus_l3_worker.judge import eroica, rhythm
from argus_l3_worker.judge.config import CrossCheckConfig
from argus_l3_worker.read.prometheus import Prometheus, Sample, Series, selector
from argus_l3_worker.triples import Floats

_LEAST_RANKS: Final = 4
_CLASS_OF_KIND: Final[dict[str, eroica.FunctionClass]] = {
    "compute": "compute",
    "comm": "comm",
    "host": "host",
}


@dataclass(frozen=True)
class AbnormalFunction:
    """A function that EROICA finds abnormal on a rank; see `eroica.Distances`."""

    rank: str
    function: str
    expectation: float
    differential: float


@dataclass(frozen=True)
class CrossChecks:
    """What both find in one job. `rhythm`: mean K-S distance by rank."""

    training_job: str
    abnormal: tuple[AbnormalFunction, ...]
    rhythm: Mapping[str, float]


async def cross_check(
    prometheus: Prometheus, training_job: str, roles: Mapping[str, str], at: float, config: CrossCheckConfig
) -> CrossChecks:
    """Ask Prometheus for both, and judge role by role: stages and tensor indices do other work.

    Args:
        roles: role by rank.
        at: Unix time.

    Raises:
        QueryError: Prometheus could not be asked.
    """
    in_job = {"training_job": training_job}
    seconds = f"{config.window_seconds:g}s"
    phases, launches = await asyncio.gather(
        prometheus.instant(
            f"max by (rank, phase, kind) (rate({catalogue.PHASE_DURATION.name}_sum"
            f"{selector('', in_job)}[{seconds}]))",
            at,
        ),
        prometheus.range(
            f"sum by (rank) ({selector(catalogue.KERNEL_LAUNCHES.name, in_job)})",
            at - config.window_seconds,
            at,
            config.window_seconds / config.slices,
        ),
    )
    members: dict[str, list[str]] = {}
    for rank, role in roles.items():
        members.setdefault(role, []).append(rank)
    seed = zlib.crc32(training_job.encode())
    abnormal: list[AbnormalFunction] = []
    divergence: dict[str, float] = {}
    for ranks in members.values():
        if len(ranks) >= _LEAST_RANKS:
            abnormal += await asyncio.to_thread(abnormal_functions, phases, ranks, seed)
            divergence |= await asyncio.to_thread(divergences, launches, ranks, seed)
    return CrossChecks(training_job, tuple(abnormal), divergence)


def abnormal_functions(phases: Iterable[Sample], ranks: Sequence[str], seed: int) -> list[AbnormalFunction]:
    """EROICA over the phases of one role. A rank that lacks a phase has beta 0 in it."""
    place = {rank: index for index, rank in enumerate(ranks)}
    betas: dict[tuple[str, str], Floats] = {}
    for sample in phases:
        index = place.get(sample.labels.get("rank", ""))
        if index is not None and np.isfinite(sample.value):
            key = sample.labels.get("phase", ""), sample.labels.get("kind", "")
            beta = betas.setdefault(key, np.zeros(len(ranks)))
            # Spans of several threads may add up to more than the wall clock.
            beta[index] = min(max(sample.value, 0.0), 1.0)
    abnormal: list[AbnormalFunction] = []
    for (phase, kind), beta in sorted(betas.items()):
        found = eroica.distances(beta[:, None], _CLASS_OF_KIND.get(kind, "host"), seed)
        abnormal += [
            AbnormalFunction(
                ranks[rank], phase, float(found.expectation[rank]), float(found.differential[rank])
            )
            for rank in np.flatnonzero(found.abnormal).tolist()
        ]
    return abnormal


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


def series_of(checks: CrossChecks, replica: str) -> Iterator[tuple[Labels, float]]:
    """Both as series."""
    job = checks.training_job
    for one in checks.abnormal:
        for distance, value in (("expectation", one.expectation), ("differential", one.differential)):
            yield (
                labels_of(
                    catalogue.L3_EROICA_DISTANCE.name,
                    training_job=job,
                    rank=one.rank,
                    function=one.function,
                    distance=distance,
                    replica=replica,
                ),
                value,
            )
    for rank, score in checks.rhythm.items():
        yield labels_of(catalogue.L3_RHYTHM.name, training_job=job, rank=rank, replica=replica), score
