"""What each rank does now: rules abstain outside training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class ActivityCollector:
    name = "activity"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        activity = FamilyBuilder(catalogue.ACTIVITY)
        for state in ranks:
            if state.activity is not None:
                activity.add(rank_labels(state) | {"activity": state.activity.name.lower()}, 1)
        return with_samples((activity,), "no rank has said what it does")
