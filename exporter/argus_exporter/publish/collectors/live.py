"""What each rank is in the middle of, from the page that it shares: its open spans; of an overdue iteration
also where its GPU is, and the last collective that it entered, with what torch's flight recorder says of it.
"""

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
        gpu = FamilyBuilder(catalogue.PHASE_ON_GPU)
        sequence = FamilyBuilder(catalogue.COLLECTIVE_SEQUENCE)
        operation = FamilyBuilder(catalogue.COLLECTIVE_OPERATION)
        started = FamilyBuilder(catalogue.COLLECTIVE_STARTED)
        completed = FamilyBuilder(catalogue.COLLECTIVE_COMPLETED)
        for state in ranks:
            base, live = rank_labels(state), state.live()
            overdue = {} if state.goes_on else {"overdue": "true"}
            for (phase, kind), began in live.open_since.items():
                waits = state.phases.waits_of(phase, kind)
                open_since.add(base | {"phase": phase, "kind": kind, "waits": waits} | overdue, began)
            for (phase, kind), began in live.gpu.items():
                gpu.add(base | {"phase": phase, "kind": kind}, began)
            for group, last in live.collectives.items():
                labels = base | {"group": group}
                sequence.add(labels, last.number)
                if last.operation:
                    operation.add(labels | {"operation": last.operation}, last.waited_for)
                if last.started is not None:
                    started.add(labels, last.started)
                if last.completed is not None:
                    completed.add(labels, last.completed)
        families = open_since, gpu, sequence, operation, started, completed
        return with_samples(families, "no rank shares a page with an open span or a collective")
