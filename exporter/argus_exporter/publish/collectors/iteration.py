"""Iteration totals, kept by the training process, and the last one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class IterationCollector:
    name = "iteration"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        duration = FamilyBuilder(catalogue.ITERATION_DURATION)
        last_step = FamilyBuilder(catalogue.ITERATION_LAST_STEP)
        last_time = FamilyBuilder(catalogue.ITERATION_LAST_TIMESTAMP)
        for state in ranks:
            if state.iterations is None:
                continue
            base, last = rank_labels(state), state.iterations.last
            duration.add_summary(base, last.total_count, last.total_seconds)
            last_step.add(base, last.step)
            last_time.add(base, last.end_ns / 1e9)
        return with_samples((duration, last_step, last_time), "no iteration has finished")
