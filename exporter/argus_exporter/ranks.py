"""The state that the exporter keeps of each rank, and the life of a rank.

HELLO makes a rank (or brings it back); BYE lets it leave; a connection that ends without BYE leaves it lost,
visible with `argus_rank_up 0` for `ranks.forget_seconds`. Everything here is plain data in, plain data out:
no sockets, no HTTP; the clock is passed in.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_core.modes import Mode
from argus_exporter.communicators import CollectiveSpan
from argus_exporter.config import ExporterConfig
from argus_exporter.extremes import TrailingExtreme
from argus_exporter.kernel_totals import CollectiveTotals, KernelTotals, PairTotals
from argus_exporter.kernel_windows import ClosedWindow, KernelWindows
from argus_exporter.mode_tracking import ModeTracker
from argus_exporter.names import NameTable, Texts
from argus_exporter.stacks.state import StackState
from argus_exporter.topology import DIMENSIONS, Group, Identity, RoutingTable
from argus_exporter.window_summary import PairLabel, PairStatistics, WindowStatistics, WindowSummariser

_PHASES_LIMIT = 256
"""Distinct (phase, kind, group, source) of one rank: users choose phase names, which must stay bounded."""


@dataclass(frozen=True)
class PhaseKey:
    phase: str
    kind: str
    group: str
    source: str


@dataclass
class PhaseTotals:
    count: int = 0
    seconds: float = 0.0
    longest: TrailingExtreme = field(default_factory=lambda: TrailingExtreme(60.0))


@dataclass
class ChannelTotals:
    up: bool = False
    reason: str = ""
    cpu_seconds: float = 0.0
    records: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: defaultdict(int))


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


@dataclass
class Iterations:
    last: wire.Iteration
    shortest: TrailingExtreme
    longest: TrailingExtreme


class RankState:
    """What is known of one rank. One thread (the event loop) calls it, except `summarise_window`."""

    def __init__(self, identity: Identity, config: ExporterConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self.identity = identity
        self.connections = 0
        self.lost_at: float | None = None
        self.activity: wire.Activity | None = None
        self.iterations: Iterations | None = None
        self.phases: dict[PhaseKey, PhaseTotals] = {}
        self.groups: dict[str, int] = {}
        self.work: dict[str, float] = {}
        self.channels: dict[wire.Channel, ChannelTotals] = {}
        self.window: WindowStatistics | None = None
        self.published: dict[PairLabel, PublishedPair] = {}
        self.issue_latency: dict[str, IssueTotals] = {}
        self.voids: dict[str, float] = {}
        self.texts = Texts()
        self.stacks = StackState()
        self.peer_pid: int | None = None
        """The process that speaks for PHASES, as the kernel names it; 0: invisible from our namespace."""
        self._routing = RoutingTable(identity, config.routing)
        windows = config.windows
        self._kernels = KernelWindows(
            windows.seconds, windows.settle_seconds, self.texts.by_id, windows.steps
        )
        self._totals = KernelTotals(self.texts.by_id)
        self._summariser = WindowSummariser()
        self._trackers: dict[PairLabel, ModeTracker] = {}

    # -- life -----------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self.connections > 0

    def attach(self, identity: Identity) -> None:
        """A connection speaks for this rank; until it did, records may have been lost."""
        self._kernels.restart()
        if identity != self.identity:
            self.identity = identity
            self._routing = RoutingTable(identity, self._config.routing)
        self.connections += 1
        self.lost_at = None

    def detach(self) -> None:
        """A connection ended without BYE; the last one leaves the rank lost."""
        self.connections -= 1
        if not self.connected:
            self.lost_at = self._clock()

    # -- records --------------------------------------------------------------------------------------------

    def span(self, record: wire.Span, names: NameTable) -> None:
        phase = names.text(record.phase_id)
        group = self._routing.group_of_phase(phase, names.text(record.group_id))
        try:
            kind, source = wire.Kind(record.kind).name.lower(), wire.Source(record.source).name.lower()
        except ValueError as error:
            raise wire.WireError("value", f"span of {phase!r}: {error}") from error
        key = PhaseKey(phase, kind, group.name, source)
        totals = self._phase(key, group)
        channel = self.channel(wire.Channel.PHASES)
        channel.records += 1
        if totals is None:
            channel.dropped["phases_limit"] += 1
            return
        if kind == "comm" and source != "kernel":
            self._collective_seen(record, names.text(record.group_id), on_device=source == "event")
        seconds = record.duration_ns / 1e9
        totals.count += 1
        totals.seconds += seconds
        totals.longest.add(self._clock(), seconds)

    def _phase(self, key: PhaseKey, group: Group) -> PhaseTotals | None:
        """Totals of a phase; None where the rank has too many."""
        totals = self.phases.get(key)
        if totals is None and len(self.phases) < _PHASES_LIMIT:
            longest = TrailingExtreme(self._config.windows.extremes_seconds)
            totals = self.phases[key] = PhaseTotals(longest=longest)
            self._expect(group)
        return totals

    def _collective_seen(self, record: wire.Span, dimension: str, *, on_device: bool) -> None:
        """Evidence of which dimension the NCCL kernels of that time belong to."""
        if dimension in DIMENSIONS:
            end_ns = record.start_ns + record.duration_ns
            self._kernels.collective(CollectiveSpan(record.start_ns, end_ns, dimension, on_device))

    def iteration(self, record: wire.Iteration) -> None:
        if not (math.isfinite(record.total_seconds) and math.isfinite(record.total_squared)):
            raise wire.WireError("value", "iteration totals are not finite")
        now = self._clock()
        if self.iterations is None:
            window = self._config.windows.extremes_seconds
            self.iterations = Iterations(record, TrailingExtreme(window), TrailingExtreme(window))
        self.iterations.last = record
        seconds = record.duration_ns / 1e9
        self.iterations.shortest.add(now, -seconds)
        self.iterations.longest.add(now, seconds)
        self.channel(wire.Channel.PHASES).records += 1
        self._kernels.iteration(record, now)

    def kernels(self, records: KernelArray, names: NameTable) -> None:
        channel = self.channel(wire.Channel.KERNELS)
        channel.records += len(records)
        own = records.copy()  # the packet's memory is not ours to keep
        own["name_id"] = names.internal_ids(records["name_id"])
        self._totals.add(own)
        before = self._kernels.dropped
        self._kernels.add(own, self._clock())
        if self._kernels.dropped > before:
            channel.dropped["window_limit"] += self._kernels.dropped - before

    def work_done(self, record: wire.Work, names: NameTable) -> None:
        if not math.isfinite(record.total) or record.total < 0:
            raise wire.WireError("value", f"work total {record.total} is not a finite number of 0 or more")
        self.work[names.text(record.unit_id)] = record.total

    def activity_changed(self, record: wire.ActivityChange) -> None:
        try:
            self.activity = wire.Activity(record.activity)
        except ValueError as error:
            raise wire.WireError("value", str(error)) from error

    def channel_state(self, record: wire.ChannelState, names: NameTable) -> None:
        try:
            channel = self.channel(wire.Channel(record.channel))
        except ValueError as error:
            raise wire.WireError("value", str(error)) from error
        channel.up = bool(record.up)
        channel.reason = "" if channel.up else names.text(record.reason_id) or "unknown"
        channel.cpu_seconds = record.cpu_ns / 1e9
        channel.dropped["source"] = record.dropped
        if record.channel == wire.Channel.STACKS:
            self.stacks.inside = channel.up
            self.settle_stacks()

    def sender_dropped(self, count: int) -> None:
        """Records that the sending end could not deliver."""
        self.channel(wire.Channel.PHASES).dropped["socket"] += count

    def settle_stacks(self) -> None:
        """Where stacks are sampled from outside, how that goes decides, not what the rank says of itself."""
        reason = self.stacks.reason
        if reason is not None:
            channel = self.channel(wire.Channel.STACKS)
            channel.up, channel.reason = not reason, reason

    def channel(self, channel: wire.Channel) -> ChannelTotals:
        return self.channels.setdefault(channel, ChannelTotals(up=True))

    def _expect(self, group: Group) -> None:
        if group.size > 0:
            self.groups[group.name] = group.size

    def reconfigure(self, config: ExporterConfig) -> None:
        """Take new windows, kernels, modes and routing; trailing extremes keep the length they began with."""
        self._config = config
        self._routing = RoutingTable(self.identity, config.routing)
        self._kernels.seconds = config.windows.seconds
        self._kernels.settle_seconds = config.windows.settle_seconds
        self._kernels.steps = config.windows.steps

    # -- windows --------------------------------------------------------------------------------------------

    @property
    def pair_totals(self) -> dict[PairLabel, PairTotals]:
        """Running totals of every (kernel, stream); those of the published pairs are published."""
        return self._totals.by_pair

    def complete_windows(self) -> list[ClosedWindow]:
        """Advance the running totals, and hand out the windows that are complete."""
        self._advance_totals()
        return self._kernels.take_complete(self._clock())

    def _advance_totals(self, *, at_once: bool = False) -> None:
        now, dropped = self._clock(), self._totals.dropped
        for collective in self._totals.advance(now, at_once=at_once):
            self._kernel_phase(collective, now)
        if self._totals.dropped > dropped:
            self.channel(wire.Channel.KERNELS).dropped["pairs_limit"] += self._totals.dropped - dropped

    def _kernel_phase(self, collective: CollectiveTotals, now: float) -> None:
        """Count collectives that ran on the GPU as spans of a phase."""
        group = self._routing.group_of_phase(collective.phase, collective.dimension)
        totals = self._phase(PhaseKey(collective.phase, "comm", group.name, "kernel"), group)
        if totals is None:
            self.channel(wire.Channel.KERNELS).dropped["phases_limit"] += collective.count
            return
        totals.count += collective.count
        totals.seconds += collective.seconds
        totals.longest.add(now, collective.longest)

    def summarise_window(self, window: ClosedWindow) -> WindowStatistics:
        """The expensive part, free of shared state: in a worker thread, one window of a rank at a time."""
        config = self._config
        return self._summariser.summarise(
            window,
            self.identity,
            self.published.keys(),
            config.kernels.top_pairs,
            config.modes,
            config.routing,
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
        self._advance_totals(at_once=True)  # a published pair has its totals from the first scrape on
        for kernel_class, latency in statistics.issue_latency.items():
            totals = self.issue_latency.setdefault(kernel_class, IssueTotals())
            totals.count += latency.count
            totals.seconds += latency.seconds
            totals.quantiles = latency.quantiles
        if statistics.voids is not None:
            for void, seconds in vars(statistics.voids).items():
                self.voids[void] = self.voids.get(void, 0.0) + seconds
        self.window, self.published = statistics, published


class Ranks:
    """All ranks that this host's exporter knows."""

    def __init__(self, config: ExporterConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._ranks: dict[tuple[str, int], RankState] = {}

    @property
    def clock(self) -> Callable[[], float]:
        return self._clock

    def reconfigure(self, config: ExporterConfig) -> None:
        """Take a new configuration, for the ranks that are here and for those to come."""
        self._config = config
        for state in self._ranks.values():
            state.reconfigure(config)

    def hello(self, identity: Identity) -> RankState:
        state = self._ranks.get(identity.key)
        if state is None:
            state = self._ranks[identity.key] = RankState(identity, self._config, self._clock)
        state.attach(identity)
        return state

    def bye(self, state: RankState) -> None:
        """The rank ended on purpose: its series end with the next scrape."""
        if self._ranks.get(state.identity.key) is state:
            del self._ranks[state.identity.key]

    def forget_lost(self) -> None:
        """Drop ranks that were lost `ranks.forget_seconds` ago."""
        limit = self._clock() - self._config.ranks.forget_seconds
        for key, state in list(self._ranks.items()):
            if state.lost_at is not None and state.lost_at <= limit:
                del self._ranks[key]

    def __iter__(self) -> Iterator[RankState]:
        return iter(sorted(self._ranks.values(), key=lambda state: state.identity.key))

    def __len__(self) -> int:
        return len(self._ranks)
