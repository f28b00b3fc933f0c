"""A world: one job with a fault, what each rule says of it, and the same job under every circumstance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rules.matrix import jobs
from rules.matrix.jobs import STEP, Job

Row = Mapping[str, float]
"""Values by the label values of `Says.by`, joined by spaces."""


class Case(StrEnum):
    """A column of the matrix. The value is the job's name in the world's series."""

    FIRING = "8"
    SILENT = "healthy"
    ZERO_DEVIATION = "alike"
    SIZE_1 = "1"
    SIZE_2 = "2"
    SIZE_3 = "3"
    SIZE_4 = "4"
    RESTART = "restart"
    MISSING_RANK = "missing rank"
    STALE = "ended"
    GAP = "gap"
    TWO_SCRAPERS = "two scrapers"
    TWO_INSTANCES = "two instances"
    BOUNDARY = "boundary"


SIZES = {Case.SIZE_1: 1, Case.SIZE_2: 2, Case.SIZE_3: 3, Case.SIZE_4: 4, Case.FIRING: 8}


@dataclass(frozen=True)
class Says:
    """What one recorded name, or one alert, says.

    Attributes:
        name: of the record; or `ALERTS/<name>/<severity>`, whose value is 1 while it fires.
        by: labels that tell its series apart, separated by spaces.
        rows: values by the ranks that are there; an empty row where it is silent.
        quiet: values of the job without the fault, all ranks alike.
        instead: rows of cases in which `rows` does not hold; None where nothing exact can be promised.
        matchers: of the series that are meant.
    """

    name: str
    by: str
    rows: Callable[[Sequence[int]], Row]
    quiet: Callable[[Sequence[int]], Row] = lambda _: {}
    instead: Mapping[Case, Row | None] = field(default_factory=dict)
    matchers: str = ""

    @property
    def selector(self) -> str:
        if not self.name.startswith("ALERTS/"):
            return f"{self.name}{{{self.matchers}}}"
        _, alert, severity = self.name.split("/")
        return f'ALERTS{{alertname="{alert}", severity="{severity}", alertstate="firing"}}'


def alert(name: str, severity: str, by: str, rows: Callable[[Sequence[int]], Row], **more: Any) -> Says:
    return Says(f"ALERTS/{name}/{severity}", by, rows, **more)


@dataclass(frozen=True)
class World:
    """
    Attributes:
        concerns: rule files that it needs, beside `job` and the alerts.
        build: series of a job, by (ranks, topology's size, with the fault?, relative spread of the ranks).
        at: sample at which everything is asked.
        leaves: samples after which nothing of a job that has ended is left.
        absent: the rank that is missing in the missing-rank case.
        healthy: there is a job without the fault.
    """

    name: str
    concerns: tuple[str, ...]
    build: Callable[[Sequence[int], int, bool, float], Job]
    says: tuple[Says, ...]
    at: int = 60
    change: int = 24
    """Sample of the restart, the gap and the move: early enough that every window is full again at `at`."""
    leaves: int = 9
    healthy: bool = True
    tolerates: frozenset[tuple[Case, str]] = frozenset()
    """Alerts that a disturbance may add to those of the undisturbed job."""
    batch: int = 100
    """Jobs in one storage. promtool's queries may touch 10,000 samples, and some look back over an hour."""
    long_scan: bool = False
    """It is about the scans of half an hour and of an hour, too. `make verify` plays all worlds with them."""
    moves: int = 0
    """The rank that lives on two instances for five minutes."""
    evaluation: int = STEP
    """Seconds between evaluations; promtool has one interval for all groups."""

    def jobs(self) -> dict[Case, list[jobs.Series]]:
        """The series of every case."""
        everybody = range(8)

        def made(
            ranks: Sequence[int], size: int, fault: bool = True, spread: float = 0.0
        ) -> list[jobs.Series]:
            return self.build(ranks, size, fault, spread).series

        faulty = made(everybody, 8)
        built = {case: made(range(size), size) for case, size in SIZES.items()} | {
            Case.RESTART: jobs.restarted(faulty, self.change),
            Case.MISSING_RANK: made(range(7), 8),
            Case.STALE: jobs.ended(faulty, self.at - self.leaves),
            Case.GAP: jobs.gap(faulty, self.change, GAP_SAMPLES),
            Case.TWO_SCRAPERS: jobs.two_scrapers(faulty),
            Case.TWO_INSTANCES: jobs.on_two_instances(faulty, self.moves, self.change, MOVE_SAMPLES),
        }
        if self.healthy:
            built[Case.SILENT] = made(everybody, 8, fault=False, spread=0.002)
            built[Case.ZERO_DEVIATION] = made(everybody, 8, fault=False)
        return built

    def quiet_jobs(self) -> dict[str, list[jobs.Series]]:
        """The job without the fault, disturbed: nobody may be told of it."""
        if not self.healthy:
            return {}
        # Four ranks: enough for every statistic.
        series = self.build(range(4), 4, False, 0.002).series
        return {
            "healthy, restarted": jobs.restarted(series, self.change),
            "healthy, gap": jobs.gap(series, self.change, GAP_SAMPLES),
            "healthy, two scrapers": jobs.two_scrapers(series),
            "healthy, two instances": jobs.on_two_instances(series, self.moves, self.change, MOVE_SAMPLES),
            "healthy, ended": jobs.ended(series, self.change),
        }


MOVE_SAMPLES = 300 // STEP
"""An exporter keeps the series of a lost rank for five minutes."""
GAP_SAMPLES = 6
"""A minute and a half without a scrape: more than the least stall, less than the lookback of five minutes."""


def rows_of(says: Says, case: Case) -> Row | None:
    """What `says` promises in one case; None where it promises nothing."""
    if case in says.instead:
        return says.instead[case]
    if case is Case.MISSING_RANK:
        return says.rows(range(7))
    if case in SIZES:
        return says.rows(range(SIZES[case]))
    if case is Case.STALE:
        return {}
    if case is Case.ZERO_DEVIATION:
        return says.quiet(range(8))
    if case is Case.SILENT:
        # With a spread, only silence can be promised exactly.
        return None if says.quiet(range(8)) else {}
    return says.rows(range(8))


def cells(world: World) -> set[tuple[str, Case]]:
    """What of the matrix a world fills."""
    built = world.jobs()
    return {(says.name, case) for says in world.says for case in built if rows_of(says, case) is not None}
