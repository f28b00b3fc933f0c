"""Pauses of Python's garbage collector, as totals kept by the training process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class GarbageCollector:
    name = "garbage"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        pause = FamilyBuilder(catalogue.GC_PAUSE)
        for state in ranks:
            for generation, total in state.host.collections.items():
                labels = rank_labels(state) | {"generation": str(generation)}
                pause.add_summary(labels, total.count, total.seconds)
        return with_samples((pause,), "no rank reports garbage collections")
