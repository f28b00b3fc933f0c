"""What every collector shares: the interface, and families made from the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client.metrics_core import Metric

from argus_core.catalogue import Family
from argus_exporter.ranks.rank_state import RankState


class NoData(Exception):
    """Nothing to publish here: an ordinary state, unlike an error."""


class Collector(Protocol):
    """Turns rank states into families. `name` is its label value in the exporter's own metrics."""

    name: str

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:
        """Yield families. `now` is monotonic seconds.

        Raises:
            NoData: no rank feeds this collector.
        """
        ...


class FamilyBuilder:
    """Samples of one catalogue family, checked against its labels."""

    def __init__(self, family: Family) -> None:
        self._family = family
        base = family.name.removesuffix("_total") if family.type == "counter" else family.name
        self.metric = Metric(base, family.help, family.type)
        self._required = frozenset(family.labels)
        self._allowed = self._required | frozenset(family.optional_labels)
        self._checked: set[tuple[str, ...]] = set()

    def add(self, labels: Mapping[str, str], value: float) -> None:
        """One sample of a gauge or counter."""
        self._check(labels)
        self.metric.add_sample(self._family.name, dict(labels), value)

    def add_summary(
        self,
        labels: Mapping[str, str],
        count: int,
        total: float,
        quantiles: Mapping[float, float] | None = None,
    ) -> None:
        """The samples of a summary: `quantiles` (rank in 0..1 to value), where the family has any, first.

        Raises:
            ValueError: labels that the family lacks, or quantiles for a family without.
        """
        self._check(labels)
        if quantiles and not self._family.quantiles:
            raise ValueError(f"{self._family.name} has no quantiles in the catalogue")
        for rank, value in sorted((quantiles or {}).items()):
            self.metric.add_sample(self._family.name, {**labels, "quantile": f"{rank:g}"}, value)
        self.metric.add_sample(f"{self._family.name}_count", dict(labels), float(count))
        self.metric.add_sample(f"{self._family.name}_sum", dict(labels), total)

    def _check(self, labels: Mapping[str, str]) -> None:
        names = tuple(labels)
        if names not in self._checked:  # thousands of samples have the same few sets of labels
            if not self._required <= labels.keys() <= self._allowed:
                raise ValueError(
                    f"{self._family.name} has labels {sorted(labels)}, not {sorted(self._required)}"
                )
            self._checked.add(names)


def rank_labels(state: RankState) -> dict[str, str]:
    """The base labels of every rank series."""
    return {"training_job": state.identity.training_job, "rank": str(state.identity.rank)}


def with_samples(builders: Iterable[FamilyBuilder], why_none: str) -> Iterator[Metric]:
    """The families that have samples.

    Raises:
        NoData: none has.
    """
    filled = [builder.metric for builder in builders if builder.metric.samples]
    if not filled:
        raise NoData(why_none)
    yield from filled
