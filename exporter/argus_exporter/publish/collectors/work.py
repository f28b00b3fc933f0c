"""Work done, where the user reports it: normalises uneven input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class WorkCollector:
    name = "work"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        work = FamilyBuilder(catalogue.WORK_UNITS)
        for state in ranks:
            for unit, total in state.work.items():
                work.add(rank_labels(state) | {"unit": unit}, total)
        return with_samples((work,), "no rank reports work units")
