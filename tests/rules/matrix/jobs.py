"""Jobs as series, and what happens to them: a restart, a lost rank, a scrape gap, a second scraper.

A world (`worlds/`) writes down one job; the functions here turn it into the same job under each circumstance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

STEP = 15
"""Seconds between samples and between evaluations."""

Value = float | None | str
"""A sample; None where a scrape is missing; STALE where the target says that the series is over."""
STALE = "stale"
FIRST_HOST, SECOND_HOST = "10.0.0.1:9877", "10.0.0.2:9877"


@dataclass(frozen=True)
class Series:
    """`{job}` in a label's value becomes the name of the job."""

    metric: str
    labels: dict[str, str]
    values: tuple[Value, ...]

    @property
    def is_counter(self) -> bool:
        return self.metric.endswith(("_sum", "_count", "_total"))

    def text(self, training_job: str) -> dict[str, str]:
        """As promtool reads it."""
        given = {name: text.replace("{job}", training_job) for name, text in self.labels.items()}
        labels = {"training_job": training_job, **given}
        pairs = ", ".join(f'{name}="{value}"' for name, value in labels.items())
        shown = ["_" if value is None else STALE if value == STALE else repr(value) for value in self.values]
        return {"series": f"{self.metric}{{{pairs}}}", "values": " ".join(shown)}


@dataclass
class Job:
    """Series of one training job of `samples` scrapes.

    Attributes:
        ranks: that are there.
        size: ranks that the topology has.
    """

    samples: int
    ranks: Sequence[int]
    size: int
    series: list[Series] = field(default_factory=list)

    def add(self, metric: str, values: Callable[[int], Value] | float, **labels: object) -> None:
        """One series; `values` by sample, or one for all."""
        of = values if callable(values) else lambda _: values
        named = {name: str(value) for name, value in labels.items()}
        self.series.append(Series(metric, named, tuple(of(sample) for sample in range(self.samples))))

    def counter(
        self, metric: str, a_scrape: Callable[[int], float] | float, begin: float = 0.0, **labels: object
    ) -> None:
        """A counter by what it gains before each sample."""
        gains = a_scrape if callable(a_scrape) else lambda _: a_scrape
        total = begin
        totals: list[Value] = []
        for sample in range(self.samples):
            total += gains(sample) if sample else 0.0
            totals.append(total)
        self.add(metric, lambda sample: totals[sample], **labels)

    def membership(self, group: str = "dp") -> None:
        """Every rank is up and in one comparison group."""
        for rank in self.ranks:
            self.add("argus_rank_up", 1, rank=rank)
            self.add("argus_group_expected_ranks", self.size, rank=rank, group=group)

    def phase(
        self,
        rank: int,
        phase: str,
        seconds: Callable[[int], float] | float,
        spans: float = 4,
        **labels: object,
    ) -> None:
        """`spans` in each scrape interval, all alike; `seconds` of one by sample, or for all."""
        base: dict[str, object] = {"kind": "compute", "group": "dp"}
        where = base | labels | {"rank": rank, "phase": phase}
        of = seconds if callable(seconds) else lambda _: seconds
        self.counter("argus_phase_duration_seconds_count", spans, **where, source="event")
        self.counter(
            "argus_phase_duration_seconds_sum", lambda sample: spans * of(sample), **where, source="event"
        )
        self.add("argus_phase_window_max_seconds", of, **where)

    def iterations(
        self, seconds: Callable[[int], float] | float, spans: float = 4, last: int | None = None
    ) -> None:
        """Iterations of every rank: `spans` alike in each scrape interval, none after sample `last`."""
        given = seconds if callable(seconds) else lambda _: seconds
        end = self.samples if last is None else last

        def of(sample: int) -> float:
            return given(min(sample, end))

        for rank in self.ranks:
            for power, metric in enumerate(("count", "sum", "squared_total")):
                self.counter(
                    f"argus_iteration_duration_seconds_{metric}",
                    lambda sample, power=power: spans * of(sample) ** power if sample <= end else 0.0,
                    rank=rank,
                )
            self.add(
                "argus_iteration_last_timestamp_seconds", lambda sample: STEP * min(sample, end), rank=rank
            )
            # The extremes of the trailing minute.
            for name, extreme in (("min", min), ("max", max)):
                self.add(
                    f"argus_iteration_window_{name}_seconds",
                    lambda sample, extreme=extreme: extreme(of(max(0, sample - age)) for age in range(4)),
                    rank=rank,
                )


def _mapped(series: Iterable[Series], change: Callable[[Series], tuple[Value, ...]]) -> list[Series]:
    return [dataclasses.replace(one, values=change(one)) for one in series]


def restarted(series: Iterable[Series], at: int) -> list[Series]:
    """Every process begins anew at sample `at`: its counters are 0 there and go on as before."""

    def change(one: Series) -> tuple[Value, ...]:
        base = one.values[at]
        if not one.is_counter or not isinstance(base, int | float):
            return one.values
        after = [value - base if isinstance(value, int | float) else value for value in one.values[at:]]
        return (*one.values[:at], *after)

    return _mapped(series, change)


def gap(series: Iterable[Series], first: int, length: int) -> list[Series]:
    """No scrape succeeds for `length` samples; nothing says that a series has ended."""
    return _mapped(
        series,
        lambda one: (*one.values[:first], *[None] * length, *one.values[first + length :]),
    )


def ended(series: Iterable[Series], at: int) -> list[Series]:
    """Every rank says goodbye: its exporter no longer has the series."""
    return _mapped(series, lambda one: (*one.values[:at], STALE, *[None] * (len(one.values) - at - 1)))


def two_scrapers(series: Iterable[Series]) -> list[Series]:
    """A second scraper stores into the same place; what it saw last is an interval older."""
    twice: list[Series] = []
    for one in series:
        first = {"instance": FIRST_HOST} | one.labels | {"prometheus": "a"}
        twice.append(dataclasses.replace(one, labels=first))
        older = (one.values[0], *one.values[:-1]) if one.is_counter else one.values
        twice.append(dataclasses.replace(one, labels=first | {"prometheus": "b"}, values=older))
    return twice


def on_two_instances(series: Sequence[Series], rank: int, at: int, length: int) -> list[Series]:
    """The process of one rank moves to another host at sample `at`, and all begin anew, as jobs do.

    The exporter that lost it keeps its last values, with `argus_rank_up` 0, for `length` samples.
    """
    moved: list[Series] = []
    for one, anew in zip(series, restarted(series, at), strict=True):
        labels = {"instance": FIRST_HOST} | one.labels
        if one.labels.get("rank") != str(rank):
            moved.append(dataclasses.replace(anew, labels=labels))
            continue
        last = 0 if one.metric == "argus_rank_up" else one.values[at - 1]
        old: tuple[Value, ...] = (*one.values[:at], *[last] * length, STALE)
        old = (*old, *[None] * (len(one.values) - len(old)))[: len(one.values)]
        moved.append(dataclasses.replace(one, labels=labels, values=old))
        new = (*[None] * at, *anew.values[at:])
        moved.append(dataclasses.replace(one, labels={"instance": SECOND_HOST} | one.labels, values=new))
    return moved
