"""Shares over all lines of a score, each with how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from argus_simulator.score.intervals import poisson_upper, wilson
from argus_simulator.score.results import Result

COST_ERROR: Final = 0.05
"""Of the wall time."""
COSTLY: Final = 0.05
"""Share of the wall time from which a fault has to be found: from where the rules page."""


@dataclass(frozen=True)
class Share:
    """A mean of lines that are right, wrong or partly right."""

    value: float | None
    """None: no line had the question."""
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] n={self.count}"


@dataclass(frozen=True)
class Totals:
    """Totals over the lines of some classes; accusations over all lines."""

    rows: int
    detection: Share
    precision: Share
    recall: Share
    cause: Share
    cause_where_detected: Share
    team: Share
    team_where_detected: Share
    victims: Share
    steps_p50: float | None
    """Misses count as later than all others; None: the median is a miss."""
    missed: int
    first_right_s: tuple[float | None, float | None]
    """Seconds to the first alert, `info` counts, that names a culprit: median and 90th percentile of the rows
    with culprits, misses the latest."""
    cost_error_p50: float | None
    """Of the share of wall time that the job loses, said less true, without sign."""
    cost_within: Share
    """Rows where that error is at most 0.05 of the wall time."""
    f1: float | None
    """Of precision and recall of ranks, over the rows with culprits: an `info` costs precision alone."""
    set_recall: Share
    """Recall where a culprit that is named only as one of n suspects counts 1/n."""
    named_alone: Share
    """Rows with culprits of which each is named, and not only as one of several suspects."""
    set_sizes: tuple[int, ...]
    """Of each row in which a culprit is named, the size of the smallest set that does; alone is 1."""


@dataclass(frozen=True)
class Links:
    """Slow and broken hops between hosts, of all rows whose fault costs enough; from NCCL's plugin.

    Attributes:
        right: rows that have some, of which these are told and no other.
        wrong: rows of which a hop was told that is neither slow nor broken.
    """

    right: Share
    wrong: int


@dataclass(frozen=True)
class Accusations:
    """False ones, in controls and before onsets."""

    incidents: int
    alerts: int
    hours: float

    @property
    def per_hour_bound(self) -> float:
        """95 % upper bound of incidents an hour that a job is healthy."""
        return poisson_upper(self.incidents) / self.hours if self.hours else float("inf")


def totals(results: Iterable[Result]) -> Totals:
    """Of fault rows; a row that was not detected counts as wrong in cause and team."""
    rows = [result for result in results if result.judgement.detected is not None]
    faults = [row.judgement for row in rows]
    detected = [judged for judged in faults if judged.detected]
    # A miss is later than anything: the median knows that, a mean could not.
    steps = [float("inf") if judged.steps is None else float(judged.steps) for judged in faults]
    p50 = statistics.median_high(steps) if steps else float("inf")
    culprits = [row for row in rows if row.expected]
    first = sorted(float("inf") if row.first_right_s is None else row.first_right_s for row in culprits)
    errors = [
        abs(row.cost - row.true_cost) for row in rows if row.cost is not None and row.true_cost is not None
    ]
    return Totals(
        rows=len(faults),
        detection=_share([judged.detected for judged in faults]),
        precision=_share([judged.precision for judged in faults]),
        recall=_share([judged.recall for judged in faults]),
        cause=_share([judged.cause_right for judged in faults]),
        cause_where_detected=_share([judged.cause_right for judged in detected]),
        team=_share([judged.team_right for judged in faults]),
        team_where_detected=_share([judged.team_right for judged in detected]),
        victims=_share([bool(judged.victims) for judged in faults]),
        steps_p50=p50 if p50 < float("inf") else None,
        missed=len(faults) - len(detected),
        first_right_s=(_quantile(first, 0.5), _quantile(first, 0.9)),
        cost_error_p50=statistics.median(errors) if errors else None,
        cost_within=_share([error <= COST_ERROR for error in errors]),
        f1=_harmonic([(row.judgement.precision, row.judgement.recall or 0.0) for row in culprits]),
        set_recall=_share([_set_recall(row) for row in rows]),
        named_alone=_share(
            [
                set(row.expected) <= set(row.judgement.alone)
                for row in culprits
                if row.judgement.alone is not None
            ]
        ),
        set_sizes=tuple(size for row in culprits if (size := _set_size(row))),
    )


def _set_recall(row: Result) -> float | None:
    judged = row.judgement
    if not row.expected or judged.alone is None:
        return judged.recall
    return statistics.mean(
        1.0
        if rank in judged.alone
        else max((1 / len(suspects) for suspects in judged.sets if rank in suspects), default=0.0)
        for rank in row.expected
    )


def _set_size(row: Result) -> int | None:
    judged = row.judgement
    if judged.alone is None:
        return None
    if set(judged.alone) & set(row.expected):
        return 1
    return min((len(suspects) for suspects in judged.sets if set(suspects) & set(row.expected)), default=None)


def f1(pairs: Iterable[tuple[Iterable[int], Iterable[int]]]) -> float | None:
    """Of (named, true) ranks: the harmonic mean of the mean precision of the named and the mean recall."""
    sets = [(set(named), set(true)) for named, true in pairs]
    return _harmonic(
        [
            (len(named & true) / len(named) if named else None, len(named & true) / len(true))
            for named, true in sets
        ]
    )


def _harmonic(rows: Sequence[tuple[float | None, float]]) -> float | None:
    """Of the mean precision of rows that have one, and the mean recall of all."""
    said = [precision for precision, _ in rows if precision is not None]
    if not said:
        return 0.0 if rows else None
    precision, recall = statistics.mean(said), statistics.mean(recall for _, recall in rows)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    """The nearest rank; None where that is a miss, or of nothing."""
    value = ordered[math.ceil(q * len(ordered)) - 1] if ordered else float("inf")
    return value if value < float("inf") else None


def links(results: Iterable[Result]) -> Links:
    rows = [result for result in results if result.kind != "sub-threshold"]
    right = [set(row.links) == set(row.expected_links) for row in rows if row.expected_links]
    return Links(_share(right), sum(not set(row.links) <= set(row.expected_links) for row in rows))


def accusations(results: Iterable[Result]) -> Accusations:
    judged = [result.judgement for result in results]
    return Accusations(
        sum(len(judgement.accusations) for judgement in judged),
        sum(judgement.alerts for judgement in judged),
        sum(judgement.healthy_hours for judgement in judged),
    )


def _share(values: Sequence[float | None]) -> Share:
    known = [float(value) for value in values if value is not None]
    low, high = wilson(sum(known), len(known))
    return Share(sum(known) / len(known) if known else None, low, high, len(known))
