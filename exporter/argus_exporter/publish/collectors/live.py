"""What each rank is in the middle of: its open spans and the last collective it entered (the shared page)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class LiveCollector:
    name = "live"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        open_since = FamilyBuilder(catalogue.PHASE_OPEN)
        sequence = FamilyBuilder(catalogue.COLLECTIVE_SEQUENCE)
        for state in ranks:
            base, live = rank_labels(state), state.live()
            for (phase, kind), began in live.open_since.items():
                open_since.add(base | {"phase": phase, "kind": kind}, began)
            for group, number in live.collectives.items():
                sequence.add(base | {"group": group}, number)
        return with_samples((open_since, sequence), "no rank shares a page with an open span or a collective")
