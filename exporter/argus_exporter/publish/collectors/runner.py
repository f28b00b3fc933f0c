"""Runs the collectors at a scrape, times them, and tells apart "nothing here" from "broken"."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_core.log import Log
from argus_exporter.publish.collectors.base import Collector, FamilyBuilder, NoData
from argus_exporter.ranks.rank_registry import RankRegistry

log = Log(__name__)

_STATES = ("ok", "no_data", "error")


class CollectorRunner:
    """What `prometheus_client` renders: an object with `collect()`.

    Args:
        rank: publish this rank only (`/metrics?rank=3`); None publishes all.
        own: also publish the exporter's own families.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        ranks: RankRegistry,
        *,
        rank: int | None = None,
        own: Callable[[], Iterator[Metric]] | None = None,
    ) -> None:
        self._collectors = collectors
        self._ranks = ranks
        self._rank = rank
        self._own = own

    def collect(self) -> Iterator[Metric]:
        states = list(self._ranks)
        now = self._ranks.clock()
        state_family = FamilyBuilder(catalogue.EXPORTER_COLLECTOR_STATE)
        seconds_family = FamilyBuilder(catalogue.EXPORTER_COLLECTOR_SECONDS)
        for collector in self._collectors:
            began = time.perf_counter()
            families: list[Metric] = []
            try:
                families = list(collector.collect(states, now))
                outcome = "ok"
            except NoData:
                outcome = "no_data"
            except Exception:  # one broken collector must not take the others with it
                log.exception("collector failed", collector=collector.name)
                outcome = "error"
            yield from families if self._rank is None else _of_rank(families, str(self._rank))
            for state in _STATES:
                state_family.add({"collector": collector.name, "state": state}, 1 if state == outcome else 0)
            seconds_family.add({"collector": collector.name}, time.perf_counter() - began)
        if self._own is not None:
            yield state_family.metric
            yield seconds_family.metric
            yield from self._own()


def _of_rank(families: Iterable[Metric], rank: str) -> Iterator[Metric]:
    """The families with the samples of one rank: all were asked, as some tell a rank by the others."""
    for family in families:
        family.samples = [sample for sample in family.samples if sample.labels.get("rank", rank) == rank]
        if family.samples:
            yield family
