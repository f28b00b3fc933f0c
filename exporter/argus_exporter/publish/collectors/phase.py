"""Phase durations as sums and counts, the longest span of the trailing window, and whom a phase waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.place.topology import suspects_along
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class PhaseCollector:
    name = "phase"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:
        duration = FamilyBuilder(catalogue.PHASE_DURATION)
        longest = FamilyBuilder(catalogue.PHASE_WINDOW_MAX)
        info = FamilyBuilder(catalogue.PHASE_INFO)
        for state in ranks:
            base = rank_labels(state)
            # The maximum has no source label: where two clocks measure one phase the longer reading counts.
            maxima: dict[tuple[str, str, str], float] = {}
            for key, totals in state.phases.items():
                place = {"phase": key.phase, "kind": key.kind, "group": key.group}
                duration.add_summary(base | place | {"source": key.source}, totals.count, totals.seconds)
                seconds = totals.longest.value(now)
                if seconds is not None:
                    short = key.phase, key.kind, key.group
                    maxima[short] = max(seconds, maxima.get(short, 0.0))
            for (phase, kind, group), seconds in maxima.items():
                longest.add(base | {"phase": phase, "kind": kind, "group": group}, seconds)
            for (phase, kind), waits in state.phases.waits().items():
                labels = base | {"phase": phase, "kind": kind, "waits": waits}
                if waits not in ("none", "unknown"):
                    labels["set"] = suspects_along(state.identity, waits.split(","))
                info.add(labels, 1)
        return with_samples((duration, longest, info), "no phase has been reported")
