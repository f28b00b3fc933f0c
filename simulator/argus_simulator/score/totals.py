"""Shares over all lines of a score, each with how sure it is."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from argus_simulator.score.intervals import poisson_upper, wilson
from argus_simulator.score.results import Result


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
    faults = [result.judgement for result in results if result.judgement.detected is not None]
    detected = [judged for judged in faults if judged.detected]
    # A miss is later than anything: the median knows that, a mean could not.
    steps = [float("inf") if judged.steps is None else float(judged.steps) for judged in faults]
    p50 = statistics.median_high(steps) if steps else float("inf")
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
    )


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
