"""Samples of layers as sums and counts: their means are what ranks of one role can be compared by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class LayerCollector:
    name = "layer"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        durations = FamilyBuilder(catalogue.LAYER_DURATION)
        for state in ranks:
            base = rank_labels(state)
            for (layer, microbatch), totals in state.layers.items():
                labels = base | {"layer": layer, "microbatch": str(microbatch)}
                durations.add_summary(labels, totals.count, totals.seconds)
        return with_samples((durations,), "no layer has been sampled")
