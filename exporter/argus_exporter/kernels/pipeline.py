"""Kernel records of one rank to what scrapes see: running totals as they come, modes window by window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_core.modes import Mode, ModeConfig
from argus_exporter.kernels.communicator_streams import Members, by_communicator
from argus_exporter.kernels.communicators import CollectiveSpan
from argus_exporter.kernels.config import KernelsConfig, WindowsConfig
from argus_exporter.kernels.kernel_windows import ClosedWindow, KernelWindows
from argus_exporter.kernels.mode_tracking import ModeTracker
from argus_exporter.kernels.phase_anatomy import DIVIDE_SECONDS, PhaseAnatomy
from argus_exporter.kernels.step_records import SpanOnGpu
from argus_exporter.kernels.totals import FOLD_SECONDS, CollectiveTotals, KernelTotals, PairTotals
from argus_exporter.kernels.window_summary import (
    PairLabel,
    PairStatistics,
    WindowStatistics,
    WindowSummariser,
)
from argus_exporter.place.topology import UNKNOWN, Identity, group_along


class PipelineConfig(Protocol):
    """What of the exporter's configuration concerns kernels."""

    @property
    def windows(self) -> WindowsConfig: ...
    @property
    def kernels(self) -> KernelsConfig: ...
    @property
    def modes(self) -> ModeConfig: ...
    @property
    def routing(self) -> dict[str, str]: ...


@dataclass
class IssueTotals:
    """Launch-to-start times of a kernel class: running totals, and quantiles of the last complete window."""

    count: int = 0
    seconds: float = 0.0
    quantiles: dict[float, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedPair:
    statistics: PairStatistics
    modes: dict[int, Mode]


def _often(usual_seconds: float, windows: WindowsConfig) -> float:
    """Who has shorter windows scrapes more often, and totals must advance between scrapes."""
    return usual_seconds * min(1.0, windows.seconds / WindowsConfig().seconds)


class KernelPipeline:
    """The kernels of one rank. One thread (the event loop) calls it, except `summarise`.

    Args:
        identity: tells the place of the rank, which names the streams of its communicators.
        names: kernel names by `name_id`, as they become known.
        clock: monotonic seconds.
        on_lost: told of records that are not counted, with the reason.
        on_collectives: told of collectives that ran, as running totals are brought up to date.
    """

    def __init__(
        self,
        config: PipelineConfig,
        identity: Callable[[], Identity],
        names: dict[int, str],
        clock: Callable[[], float],
        on_lost: Callable[[str, int], None],
        on_collectives: Callable[[CollectiveTotals], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._clock = clock
        self._on_lost = on_lost
        self._on_collectives = on_collectives
        windows = config.windows
        self._windows = KernelWindows(windows.seconds, windows.settle_seconds, names, windows.steps)
        self._totals = KernelTotals(names, _often(FOLD_SECONDS, windows))
        self.anatomy = PhaseAnatomy(
            names,
            config.kernels.communication,
            windows.settle_seconds,
            self._group_along,
            _often(DIVIDE_SECONDS, windows),
        )
        """GPU time of phases and iterations, by what ran."""
        self.communicators: Mapping[int, Collection[str]] = {}
        """Of NCCL: the dimensions that each may be along, by its stream (`communicator_streams`)."""
        self.members: Mapping[int, Members] = {}
        """Who their ranks are, likewise."""
        self._summariser = WindowSummariser()
        self._trackers: dict[PairLabel, ModeTracker] = {}
        self.window: WindowStatistics | None = None
        """The last complete window; None before the first."""
        self.published: dict[PairLabel, PublishedPair] = {}
        """Of that window, by time share, largest first."""
        self.issue_latency: dict[str, IssueTotals] = {}
        """By kernel class."""
        self.voids: dict[str, float] = {}
        """Idle seconds of the GPU so far, by what they say."""

    def reconfigure(self, config: PipelineConfig) -> None:
        self._config = config
        self._windows.seconds = config.windows.seconds
        self._windows.settle_seconds = config.windows.settle_seconds
        self._windows.steps = config.windows.steps
        self._totals.every_seconds = _often(FOLD_SECONDS, config.windows)
        self.anatomy.every_seconds = _often(DIVIDE_SECONDS, config.windows)
        self.anatomy.records.settle_seconds = config.windows.settle_seconds
        self.anatomy.communication = config.kernels.communication

    def moved(self) -> None:
        """The rank is somewhere else than it was thought to be: the next window names communicators anew."""
        self._totals.label({}, {})
        self.anatomy.label(None)

    def restart(self) -> None:
        """The producer reconnected, so records of the open window are missing."""
        self._windows.restart()
        self.anatomy.records.restart()

    def add(self, records: KernelArray) -> None:
        """Take records, ours from now on."""
        records = by_communicator(records)
        records = self.anatomy.records.kernels(records, self._clock())
        if not len(records):
            return
        self._totals.add(records)
        before = self._windows.dropped
        self._windows.add(records, self._clock())
        if self._windows.dropped > before:
            self._on_lost("window_limit", self._windows.dropped - before)

    def iteration(self, record: wire.Iteration) -> None:
        """Take an iteration mark: windows end with one."""
        self._windows.iteration(record, self._clock())
        self.anatomy.records.iteration(record)

    def gpu_span(self, step: int, span: SpanOnGpu) -> None:
        """Take a span where it lay on the GPU."""
        self.anatomy.records.span(step, span, self._clock())

    def collective(self, span: CollectiveSpan) -> None:
        """Take evidence of which dimension the NCCL kernels of a time belong to."""
        self._windows.collective(span)

    def totals_of(self, pair: PairLabel) -> PairTotals | None:
        """Running totals of a (kernel, stream); None beyond the limit of pairs that are counted."""
        return self._totals.of(pair)

    def close_windows(self) -> None:
        """Summarise and publish the complete windows in this thread, as tests and benchmarks do."""
        for window in self.take_complete():
            self.publish(self.summarise(window))

    def take_complete(self) -> list[ClosedWindow]:
        """Advance the running totals, and hand out the windows that are complete."""
        self._advance()
        self.anatomy.advance(self._clock())
        return self._windows.take_complete(self._clock())

    def _advance(self, *, at_once: bool = False) -> None:
        dropped = self._totals.dropped
        for collectives in self._totals.advance(self._clock(), at_once=at_once):
            self._on_collectives(collectives)
        if self._totals.dropped > dropped:
            self._on_lost("pairs_limit", self._totals.dropped - dropped)

    def summarise(self, window: ClosedWindow) -> WindowStatistics:
        """The expensive part, free of shared state: in a worker thread, one window of a rank at a time."""
        config = self._config
        return self._summariser.summarise(
            window,
            self._identity(),
            self.published.keys(),
            config.kernels.top_pairs,
            config.modes,
            config.routing,
            self.communicators,
        )

    def publish(self, statistics: WindowStatistics) -> None:
        """Make a window the one that scrapes see."""
        published: dict[PairLabel, PublishedPair] = {}
        for pair in statistics.pairs:
            tracker = self._trackers.setdefault(pair.label, ModeTracker())
            published[pair.label] = PublishedPair(pair, tracker.assign(pair.modes.modes))
        for label, tracker in list(self._trackers.items()):
            if label not in published and not tracker.rest():
                del self._trackers[label]
        self._totals.label(statistics.streams, statistics.dimensions)
        self.anatomy.label(statistics.dimensions)
        self._advance(at_once=True)  # a published pair has its totals from the first scrape on
        for kernel_class, latency in statistics.issue_latency.items():
            totals = self.issue_latency.setdefault(kernel_class, IssueTotals())
            totals.count += latency.count
            totals.seconds += latency.seconds
            totals.quantiles = latency.quantiles
        if statistics.voids is not None:
            for void, seconds in vars(statistics.voids).items():
                self.voids[void] = self.voids.get(void, 0.0) + seconds
        self.window, self.published = statistics, published

    def _group_along(self, dimension: str | None) -> str:
        return group_along(self._identity(), dimension).name if dimension else UNKNOWN

    def lose(self, window: ClosedWindow) -> None:
        """A window that could not be summarised."""
        self._on_lost("summarise_error", len(window.records))
