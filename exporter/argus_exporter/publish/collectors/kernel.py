"""The modes of the top (kernel, stream) pairs in the last complete window, and their running totals.

The running totals advance with the records, every two seconds; those of a pair begin with its first record,
published or not, so that a pair which comes back goes on where it was. All the rest changes with a window
only: its samples are made once and kept, which is also how `exposition` sees at once that they are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from argus_core import catalogue
from argus_exporter.kernels.window_summary import PairLabel, WindowStatistics
from argus_exporter.place.topology import Identity
from argus_exporter.publish.collectors.base import FamilyBuilder, rank_labels, with_samples
from argus_exporter.ranks.rank_state import RankState

_OF_WINDOW: Final = (
    catalogue.KERNEL_MODE_EVENTS,
    catalogue.KERNEL_MODE_P50,
    catalogue.KERNEL_MODE_P99,
    catalogue.KERNEL_TAIL_EVENTS,
    catalogue.KERNEL_WINDOW_LAST_STEP,
    catalogue.KERNEL_WINDOW_STEPS,
    catalogue.KERNEL_CUTOFF,
    catalogue.KERNEL_COVERAGE,
)


@dataclass(frozen=True)
class _WindowSamples:
    """What one window of a rank publishes.

    Attributes:
        samples: by family, as in `_OF_WINDOW`.
        pairs: labels of the published pairs.
    """

    window: WindowStatistics
    identity: Identity
    samples: tuple[list[Sample], ...]
    pairs: dict[PairLabel, dict[str, str]]


class KernelCollector:
    name = "kernel"

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[RankState, _WindowSamples] = WeakKeyDictionary()

    def collect(self, ranks: Sequence[RankState], now: float) -> Iterator[Metric]:  # noqa: ARG002
        of_window = [FamilyBuilder(family) for family in _OF_WINDOW]
        launches = FamilyBuilder(catalogue.KERNEL_LAUNCHES)
        seconds = FamilyBuilder(catalogue.KERNEL_DURATION_TOTAL)
        info = FamilyBuilder(catalogue.KERNEL_INFO)
        for state in ranks:
            if state.kernels.window is None:
                continue
            kept = self._samples(state, state.kernels.window)
            for builder, samples in zip(of_window, kept.samples, strict=True):
                builder.metric.samples += samples
            names: dict[str, str] = {}
            for pair, labels in kept.pairs.items():
                totals = state.kernels.totals_of(pair)
                if totals is None:  # beyond the limit of pairs that are counted
                    continue
                launches.add(labels, totals.count)
                seconds.add(labels, totals.seconds)
                statistics = state.kernels.published[pair].statistics
                names[statistics.kernel] = statistics.name
            base = rank_labels(state)
            for kernel, name in names.items():
                info.add(base | {"kernel": kernel, "name": name}, 1)
        return with_samples((*of_window, launches, seconds, info), "no kernel window is complete")

    def _samples(self, state: RankState, window: WindowStatistics) -> _WindowSamples:
        kept = self._kept.get(state)
        if kept is None or kept.window is not window or kept.identity is not state.identity:
            kept = self._kept[state] = _window_samples(state, window)
        return kept


def _window_samples(state: RankState, window: WindowStatistics) -> _WindowSamples:
    builders = [FamilyBuilder(family) for family in _OF_WINDOW]
    events, p50, p99, tail, last_step, steps, cutoff, coverage = builders
    base = rank_labels(state)
    last_step.add(base, window.boundary.last_step)
    steps.add(base, window.boundary.steps)
    cutoff.add(base, window.cutoff)
    coverage.add(base, window.coverage)
    pairs: dict[PairLabel, dict[str, str]] = {}
    for pair, published in state.kernels.published.items():
        labels = pairs[pair] = base | {"kernel": pair[0], "stream": pair[1]}
        for id_, mode in published.modes.items():
            of_mode = labels | {"mode": str(id_)}
            events.add(of_mode, mode.count)
            p50.add(of_mode, mode.p50)
            p99.add(of_mode, mode.p99)
        tail.add(labels, published.statistics.modes.tail_events)
    samples = tuple(builder.metric.samples for builder in builders)
    return _WindowSamples(window, state.identity, samples, pairs)
