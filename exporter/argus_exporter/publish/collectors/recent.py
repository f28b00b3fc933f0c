"""What ranks with long steps did in the last ten minutes, see `argus_exporter.ranks.long_steps`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class RecentCollector:
    name = "recent"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:
        seconds = FamilyBuilder(catalogue.PHASE_RECENT)
        spans = FamilyBuilder(catalogue.PHASE_RECENT_SPANS)
        work = FamilyBuilder(catalogue.WORK_RECENT)
        for state in ranks:
            base = rank_labels(state)
            for key, mean in state.long_steps.means(now).items():
                labels = base | dataclasses.asdict(key)
                seconds.add(labels, mean.seconds)
                spans.add(labels, mean.spans_per_second)
            for unit, amount in state.long_steps.work(now).items():
                work.add(base | {"unit": unit}, amount)
        return with_samples((seconds, spans, work), "no rank has long steps")
