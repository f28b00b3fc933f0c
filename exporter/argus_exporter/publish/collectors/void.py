"""Idle time of the GPU between steps and within them, see `argus_exporter.kernels.idle_time`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class VoidCollector:
    name = "void"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        voids = FamilyBuilder(catalogue.VOID)
        for state in ranks:
            for void, seconds in state.kernels.voids.items():
                voids.add(rank_labels(state) | {"void": void}, seconds)
        return with_samples((voids,), "no complete kernel window has iteration marks")
