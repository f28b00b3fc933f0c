"""What simpler rules say to the same input: the series of the same jobs, in the faulty part alone.

They are told when the fault began, which no detector is: what they still get wrong, they get wrong for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_simulator.score.results import Result
from argus_simulator.stack import Samples

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HEALTHY: Final = "always healthy"
LONGEST: Final = "longest own phases"
Z_SCORE: Final = "z > 3"
W1_FENCE: Final = "mean W1 > Q3 + 1.5 IQR"
SHARE_MAD: Final = "share of the step, > 5 MAD"
RATIO: Final = "ratio to the median > 1.1"
SLOWEST: Final = "slowest, > 10 %"
SCORE: Final = "score < 0.75"
NAMES: Final = (HEALTHY, LONGEST, Z_SCORE, W1_FENCE, SHARE_MAD, RATIO, SLOWEST, SCORE)

_Z: Final = 3.0
"""ARGUS, section 6.1: the usual threshold, as the paper gives none."""
_MADS: Final = 5.0
"""EROICA, section 4: how far from the median, in median absolute deviations."""
_RATIO: Final = 1.1
"""What people write first."""
_SCORE: Final = 0.75
"""nvidia-resiliency-ext's straggler detection: the median of a section over a rank's own."""

_OWN: Final = 'training_job="{job}",kind!="comm",phase!="gc"'
"""Phases that every iteration has. A garbage collection comes now and then, and is as long as it likes: the
ratio rules named its luckless ranks in nine of ten controls, as nobody would who wrote them."""
_MEANS: Final = f"""
  rate(argus_phase_duration_seconds_sum{{{{{_OWN}}}}}[{{window}}s] @ {{end}})
  / (rate(argus_phase_duration_seconds_count{{{{{_OWN}}}}}[{{window}}s] @ {{end}}) > 0)
"""
_SECONDS: Final = f"""
  sum by (rank, phase) (rate(argus_phase_duration_seconds_sum{{{{{_OWN}}}}}[{{window}}s] @ {{end}}))
"""
_OVER_FENCE: Final = """
  max by (rank) (
    avg_over_time(argus_l3_kernel_w1_seconds{{training_job="{job}"}}[{window}s] @ {end})
    * on (training_job, rank) group_left (role)
    max by (training_job, rank, role) (
      max_over_time(argus_rank_info{{training_job="{job}"}}[{window}s] @ {end})
    )
    > on (training_job, role, kernel, stream) group_left ()
    max by (training_job, role, kernel, stream) (
      avg_over_time(argus_l3_kernel_w1_fence_seconds{{training_job="{job}"}}[{window}s] @ {end})
    )
  )
"""
"""The worker writes them of kernels with an anomaly: whom this rule accuses elsewhere is not seen here."""


def named(query: Callable[[str], Samples], job: str, start: float, end: float) -> dict[str, tuple[int, ...]]:
    """Ranks that each baseline accuses, judged over (start, end), Unix times."""
    words = {"job": job, "window": str(max(5, int(end - start))), "end": f"{end:.3f}"}
    means: dict[tuple[str, str], dict[int, float]] = {}
    for labels, value in query(_MEANS.format(**words)):
        means.setdefault((labels["phase"], labels.get("group", "")), {})[int(labels["rank"])] = value
    seconds: dict[str, dict[int, float]] = {}
    for labels, value in query(_SECONDS.format(**words)):
        seconds.setdefault(labels["phase"], {})[int(labels["rank"])] = value
    totals: dict[int, float] = {}
    for by_rank in seconds.values():
        for rank, value in by_rank.items():
            totals[rank] = totals.get(rank, 0.0) + value
    return {
        HEALTHY: (),
        LONGEST: (max(totals, key=lambda rank: totals[rank]),) if totals else (),
        Z_SCORE: _union(_beyond(of_group, _z) for of_group in means.values()),
        W1_FENCE: tuple(sorted(int(labels["rank"]) for labels, _ in query(_OVER_FENCE.format(**words)))),
        SHARE_MAD: _union(_beyond(of_phase, _mads) for of_phase in seconds.values()),
        RATIO: _union(_beyond(of_group, _ratio) for of_group in means.values()),
        SLOWEST: _union(_beyond(of_group, _slowest) for of_group in means.values()),
        SCORE: _union(_beyond(of_group, _low_score) for of_group in means.values()),
    }


def _beyond(values: dict[int, float], outlying: Callable[[Floats], Bools]) -> set[int]:
    beyond = outlying(np.array(list(values.values())))
    return {rank for rank, far in zip(values, beyond, strict=True) if far}


def _z(values: Floats) -> Bools:
    if values.size < 2 or not values.std(ddof=1):
        return np.zeros(values.shape, np.bool_)
    score: Floats = (values - values.mean()) / values.std(ddof=1)
    return score > _Z


def _mads(values: Floats) -> Bools:
    distance: Floats = values - np.median(values)
    deviation = float(np.median(np.abs(distance)))
    return (distance > _MADS * deviation) & (deviation > 0)


def _ratio(values: Floats) -> Bools:
    return values > _RATIO * np.median(values)


def _slowest(values: Floats) -> Bools:
    slowest: Bools = _ratio(values) & (values == values.max())
    return slowest


def _low_score(values: Floats) -> Bools:
    return values > np.median(values) / _SCORE


def _union(sets: Iterable[set[int]]) -> tuple[int, ...]:
    return tuple(sorted(set[int]().union(*sets)))


def compare(results: Sequence[Result]) -> dict[str, dict[str, float | None]]:
    """Precision, recall and the share of controls with an accusation, of each baseline."""
    compared: dict[str, dict[str, float | None]] = {}
    faults = [r for r in results if r.kind == "high" and r.expected and r.baselines]
    controls = [r for r in results if r.kind == "control" and r.baselines]
    known = {name for result in results for name in result.baselines}
    for name in (name for name in NAMES if name in known):
        pairs = [(set(r.baselines.get(name, ())), set(r.expected)) for r in faults]
        compared[name] = {
            "rank_precision": _mean([len(said & true) / len(said) for said, true in pairs if said]),
            "rank_recall": _mean([len(said & true) / len(true) for said, true in pairs]),
            "controls_accused": _mean([float(bool(r.baselines.get(name))) for r in controls]),
        }
    return compared


def lines(compared: dict[str, dict[str, float | None]]) -> Iterator[str]:
    yield ""
    yield "Simpler rules on the same series (rows with culprits): precision, recall, controls accused"
    for name, of in compared.items():
        shown = ("-" if value is None else f"{value:.3f}" for value in of.values())
        yield f"  {name:26} " + "  ".join(f"{value:>6}" for value in shown)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
