"""Rank 1 takes 2 s where the others take 1 s in forward; they wait for it in all_reduce. Steps of 3.75 s."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rules.matrix.jobs import Job
from rules.matrix.world import Case, Row, Says, World, alert

SLOW = 1
SPANS_A_SECOND = 4 / 15
FORWARD = ("forward", "compute")
REDUCE = ("all_reduce", "comm")
Ranks = Sequence[int]
Floats = NDArray[np.float64]


def seconds(phase: str, rank: int, fault: bool, spread: float = 0.0) -> float:
    """Duration of a span; forward and all_reduce of a step take 3.5 s together."""
    forward = (2.0 if fault and rank == SLOW else 1.0) * (1 + spread * (rank % 3 - 1))
    return forward if phase == "forward" else 3.5 - forward


def build(ranks: Ranks, size: int, fault: bool, spread: float) -> Job:
    job = Job(64, ranks, size)
    job.membership()
    job.iterations(3.75)
    for rank in ranks:
        for phase, kind in (FORWARD, REDUCE):
            job.phase(rank, phase, seconds(phase, rank, fault, spread), kind=kind)
    return job


def durations(phase: str, ranks: Ranks, fault: bool = True) -> Floats:
    return np.array([seconds(phase, rank, fault) for rank in ranks])


def by_rank(phase: str, ranks: Ranks, values: Floats, keep: Callable[[float], bool] = lambda _: True) -> Row:
    return {
        f"{rank} {phase}": float(value)
        for rank, value in zip(ranks, values, strict=True)
        if keep(float(value))
    }


def both(of: Callable[[str], Row]) -> Row:
    return {**of("forward"), **of("all_reduce")}


def statistic(name: str, of: Callable[[Floats], float], least: int = 1) -> Says:
    """One number of each group; where there are `least` ranks. The same formula holds for ranks all alike."""

    def rows(fault: bool) -> Callable[[Ranks], Row]:
        return lambda ranks: {
            phase: of(durations(phase, ranks, fault))
            for phase in ("forward", "all_reduce")
            if len(ranks) >= least
        }

    return Says(f"group:argus_phase_{name}", "phase", rows(True), quiet=rows(False))


def deviation(x: Floats) -> float:
    """Of a sample: n - 1."""
    return float(x.std(ddof=1))


def zscore(phase: str, ranks: Ranks) -> Row:
    x = durations(phase, ranks)
    return by_rank(phase, ranks, (x - x.mean()) / x.std(ddof=1)) if len(ranks) > 1 else {}


def median_ratio(phase: str, ranks: Ranks) -> Row:
    x = durations(phase, ranks)
    # Given where a group is imbalanced: nobody is, alone.
    return by_rank(phase, ranks, x / np.median(x)) if len(ranks) > 1 else {}


def fast_ratio(ranks: Ranks) -> Row:
    """Four spans in the last interval, less the longest; only beyond 1.4, and of less than half the ranks."""
    return {"1 forward": 2.0} if len(ranks) > 2 else {}


def outlying(fault: bool) -> Callable[[Ranks], Row]:
    """Where ranks differ, all are looked at; else, in compute, who costs half a percent of the time."""

    def rows(ranks: Ranks) -> Row:
        if fault and len(ranks) > 1:
            return {"forward": 0.0, "all_reduce": 0.0}
        return {"forward": 1.0 + 0.005 / SPANS_A_SECOND}

    return rows


def threshold(ranks: Ranks) -> Row:
    n = len(ranks)
    value = min(0.9 * (n - 1) / math.sqrt(n), 3)
    return {"forward": value, "all_reduce": value} if n >= 4 else {}


def excess(ranks: Ranks) -> float:
    """Seconds by which the slow rank's forward is above the median: half of it in a pair."""
    x = durations("forward", ranks)
    return float(x.max() - np.median(x))


def suspects(ranks: Ranks) -> Row:
    """Slow in forward; and the last to arrive in all_reduce, by the wait of the others."""
    if len(ranks) < 2:
        return {}
    return {"1 forward": excess(ranks) * SPANS_A_SECOND, "1 all_reduce": 1.0 * SPANS_A_SECOND}


def culprit(ranks: Ranks) -> Row:
    return {"1 forward culprit gpu-compute": excess(ranks) * SPANS_A_SECOND} if len(ranks) > 1 else {}


def victims(ranks: Ranks) -> Row:
    waiting = [rank for rank in ranks if rank != SLOW] if len(ranks) > 1 else []
    return {f"{rank} all_reduce victim waiting": 1.0 * SPANS_A_SECOND for rank in waiting}


def verdicts(ranks: Ranks) -> Row:
    return {**culprit(ranks), **victims(ranks)}


def suspect_ratio(ranks: Ranks) -> Row:
    return {"1 forward": median_ratio("forward", ranks)["1 forward"]} if len(ranks) > 1 else {}


def striking(ranks: Ranks) -> Row:
    """1.4 and more, or in a collective the inverse: of two ranks the median is half-way."""
    return {"1 forward": 2.0, "1 all_reduce": 1.5 / 2.5} if len(ranks) > 2 else {}


def few(ranks: Ranks) -> Row:
    return dict.fromkeys(("forward", "all_reduce"), float(len(ranks))) if len(ranks) < 3 else {}


def waiting(ranks: Ranks) -> Row:
    return {f"{rank} all_reduce": 1.0 * SPANS_A_SECOND for rank in ranks if rank != SLOW and len(ranks) > 1}


def always(value: float) -> Callable[[Ranks], Row]:
    return lambda _: {"": value}


def members(ranks: Ranks) -> Row:
    return {"dp": len(ranks)}


def busy(fault: bool) -> Callable[[Ranks], Row]:
    return lambda ranks: {f"{rank}": seconds("forward", rank, fault) * SPANS_A_SECOND for rank in ranks}


def busy_ratio(fault: bool) -> Callable[[Ranks], Row]:
    def rows(ranks: Ranks) -> Row:
        x = durations("forward", ranks, fault)
        return {f"{rank}": float(value) for rank, value in zip(ranks, x / np.median(x), strict=True)}

    return rows


def bubble(fault: bool) -> Callable[[Ranks], Row]:
    return lambda ranks: {f"{rank}": 1 - seconds("forward", rank, fault) * SPANS_A_SECOND for rank in ranks}


def steady(name: str, value: float, **more: Any) -> Says:
    return Says(name, "", always(value), quiet=always(value), **more)


def totals(name: str, a_sample: float, at: int, since_restart: int) -> Says:
    """Running totals of the job's lowest rank, read five seconds late: those of the sample before."""
    value, after = a_sample * (at - 1), a_sample * (at - 1 - since_restart)
    return Says(
        name,
        "rank",
        lambda _: {"0": value},
        quiet=lambda _: {"0": value},
        instead={
            Case.RESTART: {"0": after},
            # Rank 0 itself has moved: its new totals.
            Case.TWO_INSTANCES: {"0": after},
        },
    )


def expected(ranks: Ranks) -> Row:
    return {"dp": 8 if len(ranks) == 7 else len(ranks)}


def covered(ranks: Ranks) -> Row:
    share = 7 / 8 if len(ranks) == 7 else 1
    return {"forward": share, "all_reduce": share}


def info(ranks: Ranks) -> Row:
    """Of 1.5x and more against the median; in a pair of 1 s and 2 s that is 1.33."""
    return {"1 forward": 1} if len(ranks) > 2 else {}


def page(ranks: Ranks) -> Row:
    """From three ranks on: a pair has no majority."""
    return {"1 forward": 1} if len(ranks) > 2 else {}


def ticket(ranks: Ranks) -> Row:
    return {"1 forward": 1} if len(ranks) == 2 else {}


MISSING = {"dp": 1.0}

WORLD = World(
    "straggler",
    ("regression", "jitter", "stall", "phases", "masked", "verdicts"),
    build,
    (
        Says("job:argus_ranks:count", "", lambda ranks: {"": len(ranks)}, quiet=always(8)),
        # Nobody for longer than the two minutes of a mean.
        Says("rank:argus_rank:left", "rank", lambda _: {}),
        Says("group:argus_ranks:expected", "group", expected, quiet=members),
        Says("group:argus_ranks:reporting", "group", members, quiet=members),
        totals("job:argus_iteration_duration_seconds:count", 4, 60, 24),
        totals("job:argus_iteration_duration_seconds:sum", 4 * 3.75, 60, 24),
        totals("job:argus_iteration_scan:count", 4, 60, 24),
        totals("job:argus_iteration_scan:seconds", 4 * 3.75, 60, 24),
        totals("job:argus_iteration_scan:squared_seconds", 4 * 3.75**2, 60, 24),
        steady("job:argus_iteration_seconds:window_min", 3.75),
        steady("job:argus_iteration_seconds:window_max", 3.75),
        steady("job:argus_iteration_seconds:recent", 3.75),
        # A median over an hour: it outlasts the job, and is read only beside what the job says now.
        steady("job:argus_iteration_seconds:baseline", 3.75, instead={Case.STALE: {"": 3.75}}),
        steady("job:argus_iteration:age_seconds", 0),
        Says(
            "rank:argus_phase_duration_seconds:mean",
            "rank phase",
            lambda ranks: both(lambda phase: by_rank(phase, ranks, durations(phase, ranks))),
            quiet=lambda ranks: both(lambda phase: by_rank(phase, ranks, durations(phase, ranks, False))),
        ),
        statistic("ranks:count", len),
        statistic("window:seconds", lambda _: 120),
        statistic("spans:rate", lambda _: SPANS_A_SECOND),
        statistic("spans:recent", lambda _: SPANS_A_SECOND),
        statistic("duration_seconds:mean", np.mean),
        statistic("duration_seconds:median", np.median),
        Says(
            "group:argus_phase_duration_seconds:min",
            "phase",
            lambda ranks: {"all_reduce": float(durations("all_reduce", ranks).min())},
            quiet=lambda _: {"all_reduce": 2.5},
        ),
        Says(
            "group:argus_phase_duration_seconds:max",
            "phase",
            lambda ranks: {"forward": 2.0, "all_reduce": 2.5} if len(ranks) > 1 else {},
        ),
        Says("group:argus_phase_outlying:seconds", "phase", outlying(True), quiet=outlying(False)),
        statistic("duration_seconds:stddev", deviation, least=2),
        statistic("duration_seconds:cv", lambda x: deviation(x) / float(x.mean()), least=2),
        Says("group:argus_phase_coverage:ratio", "phase", covered, quiet=covered),
        # Seven of eight are enough.
        Says("group:argus_phase_coverage:low_ratio", "phase", lambda _: {}),
        Says("group:argus_phase_ranks:few", "phase", few),
        Says("group:argus_phase_zscore_threshold:current", "phase", threshold, quiet=threshold),
        Says(
            "rank:argus_phase_duration_seconds:zscore",
            "rank phase",
            lambda ranks: both(lambda phase: zscore(phase, ranks)),
        ),
        Says(
            "rank:argus_phase_duration_seconds:median_ratio",
            "rank phase",
            lambda ranks: both(lambda phase: median_ratio(phase, ranks)),
        ),
        Says(
            "rank:argus_phase_duration_seconds:fast_ratio",
            "rank phase",
            fast_ratio,
        ),
        Says(
            "rank:argus_phase_duration_seconds:fast_slow",
            "rank phase",
            lambda ranks: {"1 forward": 2.0} if len(ranks) > 1 else {},
        ),
        Says("rank:argus_phase_suspect:lost_ratio", "rank phase", suspects),
        Says("rank:argus_phase_suspect:median_ratio", "rank phase", suspect_ratio),
        Says("rank:argus_phase_striking:ratio", "rank phase", striking),
        Says(
            "rank:argus_phase_excess:lost_ratio",
            "rank phase",
            lambda ranks: {"1 forward": excess(ranks) * SPANS_A_SECOND} if len(ranks) > 1 else {},
        ),
        Says("rank:argus_collective_waiting:lost_ratio", "rank phase", waiting),
        Says("rank:argus_compute_busy:ratio", "rank", busy(True), quiet=busy(False)),
        Says("rank:argus_compute_busy:median_ratio", "rank", busy_ratio(True), quiet=busy_ratio(False)),
        Says("rank:argus_bubble:ratio", "rank", bubble(True), quiet=bubble(False)),
        Says("rank:argus_verdict:lost_ratio", "rank phase verdict cause", verdicts),
        Says(
            "rank:argus_verdict:active",
            "rank phase verdict cause",
            lambda ranks: dict.fromkeys(verdicts(ranks), 1.0),
        ),
        Says(
            "job:argus_lost_gpus:current",
            "cause",
            lambda ranks: (
                {"gpu-compute": excess(ranks) * SPANS_A_SECOND * len(ranks)} if len(ranks) > 1 else {}
            ),
        ),
        alert("ArgusStragglerRank", "info", "rank phase", info),
        alert("ArgusStragglerRank", "page", "rank phase", page),
        alert("ArgusStragglerRank", "ticket", "rank phase", ticket),
        alert(
            "ArgusRankMissing",
            "ticket",
            "group",
            lambda _: {},
            instead={Case.MISSING_RANK: MISSING},
        ),
    ),
)
