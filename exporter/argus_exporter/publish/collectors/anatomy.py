"""GPU time of phases and iterations by what ran, see `argus_exporter.kernels.phase_anatomy`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.kernels.anatomy import PARTS
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState


class AnatomyCollector:
    name = "anatomy"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        seconds = FamilyBuilder(catalogue.PHASE_GPU)
        spans = FamilyBuilder(catalogue.PHASE_GPU_SPANS)
        exposed = FamilyBuilder(catalogue.PHASE_EXPOSED)
        iterations = FamilyBuilder(catalogue.ITERATION_GPU)
        for state in ranks:
            base, anatomy = rank_labels(state), state.kernels.anatomy
            groups = state.phases.compared("compute") if anatomy.phases else {}
            for phase, totals in anatomy.phases.items():
                group = groups.get(phase, "unknown")
                of_phase = base | {"phase": phase, "kind": "compute", "group": group}
                for part, nanoseconds in zip(PARTS, totals.parts, strict=True):
                    seconds.add(of_phase | {"part": part}, nanoseconds / 1e9)
                spans.add(of_phase, totals.spans)
                for awaited, nanoseconds in totals.exposed.items():
                    exposed.add(base | {"phase": phase, "group": awaited}, nanoseconds / 1e9)
            for part, nanoseconds in zip(PARTS, anatomy.iterations or (), strict=False):
                iterations.add(base | {"part": part}, nanoseconds / 1e9)
        return with_samples((seconds, spans, exposed, iterations), "no step with its kernels is complete")
