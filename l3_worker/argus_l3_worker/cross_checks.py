"""KAIR's execution rhythm and EROICA's patterns: cross-checks beside the verdicts, which make none.

They look at completions over time, and at what the GPU's time consists of, which the kernel comparison does
not, so that agreement means something.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core import catalogue
from argus_core.remote_write import Labels, labels_of
from argus_l3_worker.judge import eroica, rhythm
from argus_l3_worker.judge.config import CrossCheckConfig
from argus_l3_worker.read.assemble import roles_of
from argus_l3_worker.read.fetch import together
from argus_l3_worker.read.prometheus import Prometheus, Sample, Series, selector
from argus_l3_worker.triples import Floats

_LEAST_RANKS: Final = 4
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

Patterns = Mapping[str, Mapping[str, tuple[float, ...]]]
"""By name of the series, and rank: values."""


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


async def cross_check(
    prometheus: Prometheus, training_job: str, info: Sequence[Sample], at: float, config: CrossCheckConfig
) -> CrossChecks:
    """Ask Prometheus, and judge role by role: stages and tensor indices do other work.

    Args:
        info: `argus_rank_info` of the job.
        at: Unix time.

    Raises:
        QueryError: Prometheus could not be asked.
    """
    job = {"training_job": training_job}
    window = f"[{config.pattern_window_seconds:.0f}s]"
    gpu = selector(catalogue.ITERATION_GPU.name, job)
    names = [name for of_part in _UTILISATION.values() for name in of_part]
    ranges, instants = await asyncio.gather(
        together(
            [
                prometheus.range(
                    f"sum by (rank) ({selector(catalogue.KERNEL_LAUNCHES.name, job)})",
                    at - config.window_seconds,
                    at,
                    config.window_seconds / config.slices,
                )
            ]
        ),
        together(
            prometheus.instant(query, at)
            for query in (
                f"sum by (rank, part) (increase({gpu}{window}))",
                *(_of_gpus(f"{kind}_over_time({name}{window})", job) for name in names for kind in _MOMENTS),
            )
        ),
    )
    members: dict[str, list[str]] = {}
    for rank, role in roles_of(info).items():
        members.setdefault(role, []).append(rank)
    seed = zlib.crc32(training_job.encode())
    shares, utilisation = _shares(instants[0]), _by_rank(names, instants[1:], info)
    divergence: dict[str, float] = {}
    unlike: dict[tuple[str, str], float] = {}
    for ranks in members.values():
        if len(ranks) >= _LEAST_RANKS:
            divergence |= await asyncio.to_thread(divergences, ranges[0], ranks, seed)
            unlike |= await asyncio.to_thread(unlike_peers, shares, utilisation, ranks, seed)
    return CrossChecks(training_job, divergence, unlike)


_MOMENTS: Final = ("avg", "stddev")


def _of_gpus(series: str, job: Mapping[str, str]) -> str:
    """dcgm-exporter's, of the job's GPUs alone, by `gpu_uuid`."""
    by_gpu = f'label_replace(avg by (UUID) ({series}), "gpu_uuid", "$1", "UUID", "(.+)")'
    return f"{by_gpu} and on (gpu_uuid) {selector(catalogue.RANK_INFO.name, job)}"


def _shares(parts: Iterable[Sample]) -> Patterns:
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


def _by_rank(names: Sequence[str], answers: Sequence[Sequence[Sample]], info: Iterable[Sample]) -> Patterns:
    """By name of dcgm-exporter's series and rank: mean and deviation of the rank's GPU."""
    ranks = {one.labels["rank"]: one.labels.get("gpu_uuid", "") for one in info if one.labels.get("rank")}
    found = {}
    for number, name in enumerate(names):
        mean, deviation = (
            {one.labels.get("gpu_uuid", ""): one.value for one in answer}
            for answer in answers[len(_MOMENTS) * number : len(_MOMENTS) * (number + 1)]
        )
        found[name] = {
            rank: (mean[gpu], deviation[gpu]) for rank, gpu in ranks.items() if gpu in mean.keys() & deviation
        }
    return found


def unlike_peers(
    shares: Patterns, utilisation: Patterns, ranks: Sequence[str], seed: int
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
    if len(known) < _LEAST_RANKS:
        return {}
    unlike: dict[tuple[str, str], float] = {}
    for part, class_ in _PARTS.items():
        pattern = _columns(shares[part], known)
        for name in _UTILISATION.get(part, ()):
            if all(rank in utilisation.get(name, ()) for rank in known):
                pattern = np.hstack((pattern, _columns(utilisation[name], known)))
                break
        found = eroica.distances(np.clip(pattern, 0.0, 1.0), class_, seed)
        far = (pattern[:, 0] > eroica.LEAST_BETA) & (found.differential > found.bar)
        unlike |= {(known[row], part): float(found.differential[row]) for row in np.flatnonzero(far)}
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
