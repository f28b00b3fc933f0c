"""KAIR's execution rhythm and EROICA's patterns: cross-checks beside the verdicts, which make none.

They look at completions over time, and at what the GPU's time consists of, which the kernel comparison does
not, so that agreement means something.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core import catalogue
from argus_core.remote_write import Labels, labels_of
from argus_l3_worker.judge import eroica, rhythm
from argus_l3_worker.judge.config import CrossCheckConfig
from argus_l3_worker.read.assemble import roles_of
from argus_l3_worker.read.prometheus import Prometheus, Sample, Series, selector
from argus_l3_worker.triples import Floats

_PARTS: Final[dict[str, eroica.FunctionClass]] = {
    "compute": "compute",
    "copy": "memory",
    "exposed": "comm",
    "idle": "host",
}
"""What the anatomy of an iteration's GPU time counts, by EROICA's class of functions."""
_UTILISATION: Final[dict[str, tuple[str, ...]]] = {
    "compute": ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    "copy": ("DCGM_FI_PROF_DRAM_ACTIVE",),
}
"""Shares in [0, 1] that dcgm-exporter has, the best first; it has none of a network or a Python thread."""

Values = Mapping[str, Mapping[str, tuple[float, ...]]]
"""By part or name of the series, and rank or GPU."""


@dataclass(frozen=True)
class CrossChecks:
    """Of one job.

    Attributes:
        rhythm: mean K-S distance by rank.
        unlike: share of its sampled peers that a rank's pattern is unlike, by rank and part of GPU time,
            where EROICA calls it abnormal.
    """

    training_job: str
    rhythm: Mapping[str, float]
    unlike: Mapping[tuple[str, str], float]


async def cross_checks(
    prometheus: Prometheus, jobs: Mapping[str, Sequence[Sample]], at: float, config: CrossCheckConfig
) -> AsyncIterator[CrossChecks]:
    """Ask Prometheus, and judge job by job and role by role: stages and tensor indices do other work.

    Args:
        jobs: `argus_rank_info` by job.
        at: Unix time.

    Raises:
        QueryError: Prometheus could not be asked.
    """
    utilisation = await _utilisation(prometheus, at, config.pattern_window_seconds) if jobs else {}
    for training_job, info in jobs.items():
        yield await _of_job(prometheus, training_job, info, utilisation, at, config)


async def _of_job(
    prometheus: Prometheus,
    training_job: str,
    info: Sequence[Sample],
    utilisation: Values,
    at: float,
    config: CrossCheckConfig,
) -> CrossChecks:
    job = {"training_job": training_job}
    launches = await prometheus.range(
        f"sum by (rank) ({selector(catalogue.KERNEL_LAUNCHES.name, job)})",
        at - config.window_seconds,
        at,
        config.window_seconds / config.slices,
    )
    gpu = f"{selector(catalogue.ITERATION_GPU.name, job)}[{config.pattern_window_seconds:.0f}s]"
    shares = _shares(await prometheus.instant(f"sum by (rank, part) (increase({gpu}))", at))
    gpus = {one.labels["rank"]: one.labels.get("gpu_uuid", "") for one in info if one.labels.get("rank")}
    of_ranks = {
        name: {rank: of_gpu[gpu] for rank, gpu in gpus.items() if gpu in of_gpu}
        for name, of_gpu in utilisation.items()
    }
    members: dict[str, list[str]] = {}
    for rank, role in roles_of(info).items():
        members.setdefault(role, []).append(rank)
    seed = zlib.crc32(training_job.encode())
    divergence: dict[str, float] = {}
    unlike: dict[tuple[str, str], float] = {}
    for ranks in members.values():
        if len(ranks) >= eroica.LEAST_RANKS:
            divergence |= await asyncio.to_thread(divergences, launches, ranks, seed)
            unlike |= await asyncio.to_thread(unlike_peers, shares, of_ranks, ranks, seed)
    return CrossChecks(training_job, divergence, unlike)


async def _utilisation(prometheus: Prometheus, at: float, seconds: float) -> Values:
    """By name of dcgm-exporter's series and GPU: mean and deviation, of all GPUs that it knows."""
    found = {}
    for names in _UTILISATION.values():
        for name in names:
            mean, deviation = [
                {one.labels.get("UUID", ""): one.value for one in await prometheus.instant(query, at)}
                for query in (
                    f"avg by (UUID) ({moment}_over_time({name}[{seconds:.0f}s]))"
                    for moment in ("avg", "stddev")
                )
            ]
            found[name] = {gpu: (mean[gpu], deviation[gpu]) for gpu in mean.keys() & deviation}
    return found


def _shares(parts: Iterable[Sample]) -> Values:
    """By part and rank: its share of the rank's GPU time; none where a rank had no iteration."""
    seconds: dict[str, dict[str, float]] = defaultdict(dict)
    for one in parts:
        if one.labels.get("part") in _PARTS:
            seconds[one.labels.get("rank", "")][one.labels["part"]] = one.value
    return {
        part: {
            rank: (of_rank.get(part, 0.0) / total,)
            for rank, of_rank in seconds.items()
            if (total := sum(of_rank.values())) > 0.0
        }
        for part in _PARTS
    }


def unlike_peers(
    shares: Values, utilisation: Values, ranks: Sequence[str], seed: int
) -> dict[tuple[str, str], float]:
    """EROICA's differential distance of each part of the GPU's time, where it is beyond the bar.

    beta is the part's share of GPU time: the anatomy counts at each instant what is most critical of what
    runs, as EROICA does. mu and sigma are mean and deviation of the GPU's utilisation over the same time, not
    only while the part runs, where dcgm-exporter has them of all these ranks; else beta alone is compared.
    What a class may be expected to take (equation 6) is said of single functions, and not asked here.

    Args:
        ranks: of one role; those without shares are left out.

    Source: EROICA 4.2 and 4.3, equations 2 and 7 to 11.
    """
    known = [rank for rank in ranks if rank in shares["compute"]]
    if len(known) < eroica.LEAST_RANKS:
        return {}
    unlike: dict[tuple[str, str], float] = {}
    for part, class_ in _PARTS.items():
        pattern = _columns(shares[part], known)
        for name in _UTILISATION.get(part, ()):
            if all(rank in utilisation.get(name, ()) for rank in known):
                pattern = np.hstack((pattern, _columns(utilisation[name], known)))
                break
        found = eroica.distances(np.clip(pattern, 0.0, 1.0), class_, seed)
        unlike |= {(known[row], part): float(found.differential[row]) for row in np.flatnonzero(found.unlike)}
    return unlike


def _columns(values: Mapping[str, tuple[float, ...]], ranks: Sequence[str]) -> Floats:
    return np.array([values[rank] for rank in ranks])


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
    for (rank, part), share in checks.unlike.items():
        labels = {"training_job": job, "rank": rank, "part": part, "worker": worker}
        yield labels_of(catalogue.L3_PATTERN.name, **labels), share
