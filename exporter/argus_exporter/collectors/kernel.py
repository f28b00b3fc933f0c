"""The modes of the top (kernel, stream) pairs in the last complete window, and their running totals.

The running totals advance with the records, every two seconds; those of a pair begin with its first record,
published or not, so that a pair which comes back goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from argus_core import catalogue
from argus_exporter.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks import RankState


class KernelCollector:
    name = "kernel"

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        events = FamilyBuilder(catalogue.KERNEL_MODE_EVENTS)
        p50 = FamilyBuilder(catalogue.KERNEL_MODE_P50)
        p99 = FamilyBuilder(catalogue.KERNEL_MODE_P99)
        tail = FamilyBuilder(catalogue.KERNEL_TAIL_EVENTS)
        last_step = FamilyBuilder(catalogue.KERNEL_WINDOW_LAST_STEP)
        steps = FamilyBuilder(catalogue.KERNEL_WINDOW_STEPS)
        coverage = FamilyBuilder(catalogue.KERNEL_COVERAGE)
        cutoff = FamilyBuilder(catalogue.KERNEL_CUTOFF)
        launches = FamilyBuilder(catalogue.KERNEL_LAUNCHES)
        seconds = FamilyBuilder(catalogue.KERNEL_DURATION_TOTAL)
        info = FamilyBuilder(catalogue.KERNEL_INFO)
        for state in ranks:
            window = state.window
            if window is None:
                continue
            base = rank_labels(state)
            last_step.add(base, window.boundary.last_step)
            steps.add(base, window.boundary.steps)
            coverage.add(base, window.coverage)
            cutoff.add(base, window.cutoff)
            for (kernel, stream), published in state.published.items():
                pair = base | {"kernel": kernel, "stream": stream}
                for id_, mode in published.modes.items():
                    labels = pair | {"mode": str(id_)}
                    events.add(labels, mode.count)
                    p50.add(labels, mode.p50)
                    p99.add(labels, mode.p99)
                tail.add(pair, published.statistics.modes.tail_events)
            names: dict[str, str] = {}
            for label, published in state.published.items():
                totals = state.pair_totals(label)
                if totals is None:  # beyond the limit of pairs that are counted
                    continue
                pair = base | {"kernel": label[0], "stream": label[1]}
                launches.add(pair, totals.count)
                seconds.add(pair, totals.seconds)
                names[published.statistics.kernel] = published.statistics.name
            for kernel, name in names.items():
                info.add(base | {"kernel": kernel, "name": name}, 1)
        families = (events, p50, p99, tail, last_step, steps, launches, seconds, cutoff, coverage, info)
        return with_samples(families, "no kernel window is complete")
