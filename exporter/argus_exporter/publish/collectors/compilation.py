"""JIT compilation on the host, as totals kept by the training process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class CompilationCollector:
    name = "compilation"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        compilation = FamilyBuilder(catalogue.COMPILE)
        for state in ranks:
            for compiler, total in state.host.compilations.items():
                labels = rank_labels(state) | {"compiler": compiler}
                compilation.add_summary(labels, total.count, total.seconds)
        return with_samples((compilation,), "no rank reports compilations")
