"""Launch-to-start times of kernels by class, see `argus_exporter.kernels.issue_latency`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class IssueLatencyCollector:
    name = "issue_latency"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        latency = FamilyBuilder(catalogue.ISSUE_LATENCY)
        for state in ranks:
            for kernel_class, totals in state.kernels.issue_latency.items():
                labels = rank_labels(state) | {"kernel_class": kernel_class}
                latency.add_summary(labels, totals.count, totals.seconds, totals.quantiles)
        return with_samples((latency,), "no complete kernel window has launch times")
