"""The state that the exporter keeps of each rank, and the life of a rank.

HELLO makes a rank (or brings it back); BYE lets it leave; a connection that ends without BYE leaves it lost,
visible with `argus_rank_up 0` for `ranks.forget_seconds`. Of several connections the one that carries the
phases decides. Everything here is plain data in, plain data out: no sockets, no HTTP; the clock is passed in.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_core.modes import Mode
from argus_core.shared_page import PageError
from argus_exporter.channels import Attachment, Channels, ChannelTotals
from argus_exporter.communicators import CollectiveSpan
from argus_exporter.config import ExporterConfig
from argus_exporter.extremes import TrailingExtreme
from argus_exporter.host_totals import HostTotals
from argus_exporter.kernel_totals import CollectiveTotals, KernelTotals, PairTotals
from argus_exporter.kernel_windows import ClosedWindow, KernelWindows
from argus_exporter.live import Live, LivePage
from argus_exporter.mode_tracking import ModeTracker
from argus_exporter.names import NameTable, Texts
from argus_exporter.peers import is_trusted
from argus_exporter.stacks.state import StackState
from argus_exporter.topology import DIMENSIONS, Group, Identity, RoutingTable
from argus_exporter.topology_file import NO_TOPOLOGY, Topology
from argus_exporter.window_summary import PairLabel, PairStatistics, WindowStatistics, WindowSummariser

log = logging.getLogger(__name__)

_PHASES_LIMIT = 256
"""Distinct (phase, kind, group, source) of one rank: users choose phase names, which must stay bounded."""
_UNITS_LIMIT = 16
"""Distinct units of work of one rank."""
_UNNAMED = "unnamed"
"""Instead of an empty text: an empty label is none to Prometheus."""


@dataclass(frozen=True)
class PhaseKey:
    phase: str
    kind: str
    group: str
    source: str


@dataclass
class PhaseTotals:
    named: str
    """The group as the producer named it; empty: routed by the phase."""
    longest: TrailingExtreme
    count: int = 0
    seconds: float = 0.0


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

    def __init__(
        self,
        reported: Identity,
        config: ExporterConfig,
        clock: Callable[[], float],
        topology: Topology = NO_TOPOLOGY,
    ) -> None:
        self._config = config
        self._clock = clock
        self._topology = topology
        self._reported = reported
        self.identity = topology.place(reported)
        self._identified = False
        """The training process itself has said who the rank is."""
        self.uid: int | None = None
        """The user whose processes speak for the rank; None until one other than root or ourselves does."""
        self.left = False
        """Said BYE, while another connection of its process is still open: no longer published."""
        self.lost_at: float | None = None
        self.activity: wire.Activity | None = None
        self.iterations: Iterations | None = None
        self.phases: dict[PhaseKey, PhaseTotals] = {}
        self.groups: dict[str, int] = {}
        self.work: dict[str, float] = {}
        self.channels = Channels()
        self.host = HostTotals()
        self._page: LivePage | None = None
        self.window: WindowStatistics | None = None
        self.published: dict[PairLabel, PublishedPair] = {}
        self.issue_latency: dict[str, IssueTotals] = {}
        self.voids: dict[str, float] = {}
        self.texts = Texts()
        self.stacks = StackState()
        self.peer_pid: int | None = None
        """The process that speaks for PHASES, as the kernel names it; 0: invisible from our namespace."""
        self._routing = RoutingTable(self.identity, config.routing)
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
        return self.channels.connected

    def attach(self, attachment: Attachment, reported: Identity, page: LivePage | None) -> None:
        """A connection speaks for this rank; until it did, records may have been lost.

        Args:
            reported: who the rank is, by that connection; provisional unless it leads.
            page: what the producer shares, ours from now on.
        """
        if not attachment.channels <= {wire.Channel.STACKS}:
            self._kernels.restart()
        if attachment.leads:
            if attachment.pid != self.peer_pid:
                self.host = HostTotals()
            self.peer_pid = attachment.pid
            self.left = False
            self._identify(reported)
        elif self.peer_pid is None:
            self.peer_pid = attachment.pid
        if page is not None:
            self._share(page)
        if not is_trusted(attachment.uid):
            self.uid = attachment.uid
        self.channels.attach(attachment)
        if self.connected:
            self.lost_at = None

    def detach(self, attachment: Attachment, *, said_bye: bool) -> None:
        """A connection ended. Where it was the one that counts and did not say BYE, the rank is lost."""
        was_connected = self.connected
        self.channels.detach(attachment, said_bye=said_bye)
        if wire.Channel.STACKS in attachment.channels:
            self.stacks.inside = False
            self.settle_stacks()
        if was_connected and not self.connected:
            if said_bye:
                self.left = True
            else:
                self.lost_at = self._clock()

    def close(self) -> None:
        """Give back what the rank holds of the system."""
        if self._page is not None:
            self._page.close()
            self._page = None

    def live(self) -> Live:
        """What the rank is in the middle of; nothing where its producer shares no page."""
        if self._page is None:
            return Live()
        try:
            return self._page.read(self._routing, self._published)
        except PageError as error:
            log.warning("shared page given up job=%s rank=%d detail=%s", *self.identity.key, error)
            self.channel(wire.Channel.PHASES).dropped["page"] += 1
            self.close()
            return Live()

    def _published(self, name: str) -> str:
        """A name of the page, within the limit of the rank's names."""
        kept = self.texts.limited(name)
        if kept != name:
            self.channel(wire.Channel.PHASES).dropped["names_limit"] += 1
        return kept

    def _share(self, page: LivePage) -> None:
        self.close()
        self._page = page

    def _identify(self, reported: Identity) -> None:
        self._identified = True
        # What the job trains comes in a record of its own, after HELLO.
        self._reported = dataclasses.replace(
            reported, model=self._reported.model, backend=self._reported.backend
        )
        identity = self._topology.place(self._reported)
        if identity != self.identity:
            self.identity = identity
            self._totals.label({}, {})  # the next window names the communicators anew
            self._reroute()

    def _reroute(self) -> None:
        """Take the routing anew; a phase that it now compares with others ends as the old series."""
        self._routing = RoutingTable(self.identity, self._config.routing)
        self.groups.clear()
        for key, totals in list(self.phases.items()):
            group = self._routing.group_of_phase(key.phase, totals.named, key.kind)
            if group.name == key.group:
                self._expect(group)
            else:
                del self.phases[key]

    # -- records --------------------------------------------------------------------------------------------

    def span(self, record: wire.Span, names: NameTable) -> None:
        phase, named = names.text(record.phase_id) or _UNNAMED, names.text(record.group_id)
        try:
            kind, source = wire.Kind(record.kind).name.lower(), wire.Source(record.source).name.lower()
        except ValueError as error:
            raise wire.WireError("value", f"span of {phase!r}: {error}") from error
        group = self._routing.group_of_phase(phase, named, kind)
        key = PhaseKey(phase, kind, group.name, source)
        totals = self._phase(key, group, named)
        channel = self.channel(wire.Channel.PHASES)
        channel.records += 1
        if totals is None:
            channel.dropped["phases_limit"] += 1
            return
        if kind == "comm" and source != "kernel":
            self._collective_seen(record, named, on_device=source == "event")
        seconds = record.duration_ns / 1e9
        totals.count += 1
        totals.seconds += seconds
        totals.longest.add(self._clock(), seconds)

    def _phase(self, key: PhaseKey, group: Group, named: str) -> PhaseTotals | None:
        """Totals of a phase; None where the rank has too many."""
        totals = self.phases.get(key)
        if totals is None and len(self.phases) < _PHASES_LIMIT:
            longest = TrailingExtreme(self._config.windows.extremes_seconds)
            totals = self.phases[key] = PhaseTotals(named, longest)
            self._expect(group)
        return totals

    def _collective_seen(self, record: wire.Span, dimension: str, *, on_device: bool) -> None:
        """Evidence of which dimension the NCCL kernels of that time belong to."""
        if dimension in DIMENSIONS:
            end_ns = record.start_ns + record.duration_ns
            self._kernels.collective(CollectiveSpan(record.start_ns, end_ns, dimension, on_device))

    def iteration(self, record: wire.Iteration) -> None:
        for total in (record.total_seconds, record.total_squared):
            if not (math.isfinite(total) and total >= 0):
                raise wire.WireError("value", f"iteration total {total} is not a finite number of 0 or more")
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

    def job_facts(self, record: wire.JobFacts) -> None:
        model, backend = wire.decode_text(record.model), wire.decode_text(record.backend)
        self._reported = dataclasses.replace(self._reported, model=model, backend=backend)
        self.identity = self._topology.place(self._reported)

    def work_done(self, record: wire.Work, names: NameTable) -> None:
        if not math.isfinite(record.total) or record.total < 0:
            raise wire.WireError("value", f"work total {record.total} is not a finite number of 0 or more")
        unit = names.text(record.unit_id) or _UNNAMED
        if unit not in self.work and len(self.work) >= _UNITS_LIMIT:
            self.channel(wire.Channel.PHASES).dropped["units_limit"] += 1
            return
        self.work[unit] = record.total

    def collected(self, record: wire.GarbageCollection) -> None:
        self.channel(wire.Channel.PHASES).records += 1
        self.host.collected(record)

    def compiled(self, record: wire.Compilation, names: NameTable) -> None:
        channel = self.channel(wire.Channel.PHASES)
        channel.records += 1
        if not self.host.compiled(record, names.text(record.compiler_id) or _UNNAMED):
            channel.dropped["compilers_limit"] += 1

    def stack_sample(self, record: wire.StackSample, names: NameTable) -> None:
        if not self.stacks.sample(record, names):
            self.channel(wire.Channel.STACKS).dropped["stacks_limit"] += record.count

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
            self.stacks.sampled_inside(channel.up, names.text(record.reason_id))
            self.settle_stacks()

    def settle_stacks(self) -> None:
        """Where stacks are sampled from outside, how that goes decides, not what the rank says of itself."""
        reason = self.stacks.reason
        if reason is not None:
            channel = self.channel(wire.Channel.STACKS)
            channel.up, channel.reason = not reason, reason

    def channel(self, channel: wire.Channel) -> ChannelTotals:
        return self.channels[channel]

    def _expect(self, group: Group) -> None:
        if group.size > 0:
            self.groups[group.name] = group.size

    def reconfigure(self, config: ExporterConfig, topology: Topology) -> None:
        """Take new windows, modes, topology and routing; extremes keep the length they began with."""
        self._config = config
        self._topology = topology
        self.identity = topology.place(self._reported)
        self._reroute()
        self._kernels.seconds = config.windows.seconds
        self._kernels.settle_seconds = config.windows.settle_seconds
        self._kernels.steps = config.windows.steps

    # -- windows --------------------------------------------------------------------------------------------

    def pair_totals(self, pair: PairLabel) -> PairTotals | None:
        """Running totals of a (kernel, stream); None beyond the limit of pairs that are counted."""
        return self._totals.of(pair)

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
        totals = self._phase(
            PhaseKey(collective.phase, "comm", group.name, "kernel"), group, collective.dimension
        )
        if totals is None:
            self.channel(wire.Channel.KERNELS).dropped["phases_limit"] += collective.count
            return
        totals.count += collective.count
        totals.seconds += collective.seconds
        totals.longest.add(now, collective.longest)

    def summarise_window(self, window: ClosedWindow) -> WindowStatistics:
        """The expensive part, free of shared state: in a worker thread, one window of a rank at a time."""
        config, identity = self._config, self.identity
        if not self._identified:  # only a kernel channel has spoken, which knows no topology
            identity = dataclasses.replace(identity, coordinates={}, sizes={})
        return self._summariser.summarise(
            window,
            identity,
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
