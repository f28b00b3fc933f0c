"""The state that the exporter keeps of each rank, and the life of a rank.

HELLO makes a rank (or brings it back); BYE lets it leave; a connection that ends without BYE leaves it lost,
visible with `argus_rank_up 0` for `ranks.forget_seconds`. Of several connections the one that carries the
phases decides. Everything here is plain data in, plain data out: no sockets, no HTTP; the clock is passed in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from argus_core import wire
from argus_core.log import Log
from argus_core.nccl_page import NcclPage, NcclPageError
from argus_core.shared_page import PageError
from argus_exporter.kernels.anatomy import COMPUTE
from argus_exporter.kernels.pipeline import KernelPipeline
from argus_exporter.kernels.totals import CollectiveTotals
from argus_exporter.names import Texts
from argus_exporter.place.topology import Identity, RoutingTable
from argus_exporter.place.topology_file import NO_TOPOLOGY, Topology
from argus_exporter.ranks.channels import Attachment, Channels, ChannelTotals
from argus_exporter.ranks.config import RankConfig
from argus_exporter.ranks.host_totals import HostTotals
from argus_exporter.ranks.iterations import Iterations
from argus_exporter.ranks.layers import Layers
from argus_exporter.ranks.live import Live, LivePage
from argus_exporter.ranks.long_steps import LongSteps, PhaseTotals
from argus_exporter.ranks.nccl_totals import NcclTotals
from argus_exporter.ranks.peers import is_trusted
from argus_exporter.ranks.phases import PhaseKey, Phases
from argus_exporter.ras.outcome import Outcome
from argus_exporter.stacks.state import StackState

log = Log(__name__)

_UNITS_LIMIT: Final = 16
"""Distinct units of work of one rank."""

StepSink = Callable[["RankState", wire.Iteration], None]


class RankState:
    """What is known of one rank. One thread (the event loop) calls it.

    Args:
        reported: who the rank is, as it says itself.
        clock: monotonic seconds.
        step_sinks: each is called with every finished step, and returns at once.
    """

    def __init__(
        self,
        reported: Identity,
        config: RankConfig,
        clock: Callable[[], float],
        topology: Topology = NO_TOPOLOGY,
        step_sinks: Sequence[StepSink] = (),
    ) -> None:
        self._step_sinks = step_sinks
        self._config = config
        self._clock = clock
        self._topology = topology
        self._reported = reported
        self.identity = topology.place(reported)
        self._identified = False
        """The training process itself has said who the rank is."""
        self.uid: int | None = None
        """The user whose processes speak for the rank; None until one other than root or ourselves does."""
        self.peer_pid: int | None = None
        """The process that speaks for PHASES, as the kernel names it; 0: invisible from our namespace."""
        self.left = False
        """Said BYE, while another connection of its process is still open: no longer published."""
        self.lost_at: float | None = None
        self.page: LivePage | None = None
        self.nccl_totals = NcclTotals()
        self.channels = Channels()
        self.texts = Texts()
        self.activity: wire.Activity | None = None
        self.iterations: Iterations | None = None
        self.work: dict[str, float] = {}
        self.host = HostTotals()
        self.stacks = StackState()
        self.ras: Outcome | None = None
        """What NCCL says of the job, where this rank's process was asked and the job still stands."""
        self.phases = Phases(self._routing(), config.windows.extremes_seconds, clock)
        self.long_steps = LongSteps()
        self.layers = Layers()
        self.kernels = KernelPipeline(
            config, self._proven, self.texts.by_id, clock, self._kernels_lost, self._collectives_ran
        )

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
            self.kernels.restart()
        if attachment.leads:
            if not self.is_process_of(attachment, reported, page):
                self.host = HostTotals()
            self.peer_pid = attachment.pid
            self.left = False
            # What the job trains comes in a record of its own, after HELLO.
            known = self._reported
            self._reported = dataclasses.replace(reported, model=known.model, backend=known.backend)
            self._identify()
        elif self.peer_pid is None:
            self.peer_pid = attachment.pid
        if page is not None:
            if self.page is None or page.memory != self.page.memory:
                self.nccl_totals = NcclTotals()  # of another process
            self.close()
            self.page = page
        if not is_trusted(attachment.uid):
            self.uid = attachment.uid
        self.channels.attach(attachment)
        if self.connected:
            self.lost_at = None

    def is_process_of(self, attachment: Attachment, reported: Identity, page: LivePage | None) -> bool:
        """Whether the connection comes from the process that speaks for the rank.

        From another PID namespace the kernel names none, and a container that starts again has the same
        numbers inside: then it is told by the memory that it shares.
        """
        if attachment.pid != self.peer_pid:
            return False
        if attachment.pid:
            return True
        if page is not None and self.page is not None and page.memory != self.page.memory:
            return False
        return reported.pid == self._reported.pid

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
        if self.page is not None:
            self.page.close()
            self.page = None

    # -- place ----------------------------------------------------------------------------------------------

    def trains(self, model: str, backend: str) -> None:
        """What the job trains, and with what."""
        self._reported = dataclasses.replace(self._reported, model=model, backend=backend)
        self.identity = self._topology.place(self._reported)

    def reconfigure(self, config: RankConfig, topology: Topology) -> None:
        """Take new windows, modes, topology and routing; extremes keep the length they began with."""
        self._config = config
        self._topology = topology
        self.identity = topology.place(self._reported)
        self.phases.reroute(self._routing(), config.windows.extremes_seconds)
        self.kernels.reconfigure(config)

    def _identify(self) -> None:
        """The training process has said where the rank is."""
        self._identified = True
        identity = self._topology.place(self._reported)
        if identity != self.identity:
            self.identity = identity
            self.kernels.moved()
            self.phases.reroute(self._routing(), self._config.windows.extremes_seconds)

    def _proven(self) -> Identity:
        """Where only a kernel channel has spoken, which knows no topology, the rank has no place."""
        if self._identified:
            return self.identity
        return dataclasses.replace(self.identity, coordinates={}, sizes={})

    def _routing(self) -> RoutingTable:
        return RoutingTable(self.identity, self._config.routing)

    # -- what is going on -----------------------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """An iteration has ended, and the running one is not overdue."""
        return self.iterations is not None and not self.iterations.overdue(self._clock())

    def live(self) -> Live:
        """What the rank is in the middle of; nothing where its producer shares no page."""
        if self.page is None:
            return Live()
        try:
            return self.page.read(self.phases.routing, self._within_limit, goes_on=self.goes_on)
        except PageError as error:
            log.warning("shared page given up", **self.identity.names, error=error)
            self.channel(wire.Channel.PHASES).dropped["page"] += 1
            self.close()
            return Live()

    def nccl(self) -> NcclPage | None:
        """What NCCL's plugin in the rank's process has counted; None where there is none."""
        if self.page is None:
            return None
        try:
            return self.page.read_nccl()
        except NcclPageError as error:
            log.warning("memory of NCCL's plugin given up", **self.identity.names, error=error)
            self.page.give_up_nccl()
            return None

    def unix_seconds(self, monotonic_ns: int) -> float:
        """Unix time of a moment of the producer's CLOCK_MONOTONIC; 0 where it shares no page."""
        return self.page.unix_seconds(monotonic_ns) if self.page is not None else 0.0

    def _within_limit(self, name: str) -> str:
        """A name of the page, within the limit of the rank's names."""
        kept = self.texts.limited(name)
        if kept != name:
            self.channel(wire.Channel.PHASES).dropped["names_limit"] += 1
        return kept

    # -- records --------------------------------------------------------------------------------------------

    def channel(self, channel: wire.Channel) -> ChannelTotals:
        return self.channels[channel]

    def stepped(self, record: wire.Iteration) -> None:
        """A step ended."""
        if self.iterations is None:
            self.iterations = Iterations.starting_with(record, self._config.windows.extremes_seconds)
        now = self._clock()
        self.iterations.add(record, now)
        seconds = record.duration_ns / 1e9
        self.long_steps.ended(now, record.total_count, seconds, self._phase_totals, self.work)
        self.kernels.iteration(record)
        for sink in self._step_sinks:
            sink(self, record)

    def _phase_totals(self) -> PhaseTotals:
        """Of spans, and of kernels where they are divided."""
        anatomy = self.kernels.anatomy.phases
        groups = self.phases.compared("compute") if anatomy else {}
        found = {key: (totals.count, totals.seconds) for key, totals in self.phases.items()}
        for phase, parts in anatomy.items():
            key = PhaseKey(phase, "compute", groups.get(phase, "unknown"), "gpu")
            found[key] = parts.spans, parts.parts[COMPUTE] / 1e9
        return found

    def worked(self, unit: str, total: float) -> bool:
        """Take the total of a unit of work; False where the rank has too many units."""
        if unit not in self.work and len(self.work) >= _UNITS_LIMIT:
            return False
        self.work[unit] = total
        return True

    def settle_stacks(self) -> None:
        """Where stacks are sampled from outside, how that goes decides, not what the rank says of itself."""
        reason = self.stacks.reason
        if reason is not None:
            channel = self.channel(wire.Channel.STACKS)
            channel.up, channel.reason = not reason, reason

    def _kernels_lost(self, reason: str, records: int) -> None:
        self.channel(wire.Channel.KERNELS).dropped[reason] += records

    def _collectives_ran(self, ran: CollectiveTotals) -> None:
        """Count collectives that ran on the GPU as spans of a phase."""
        if not self.phases.count(
            ran.phase,
            "comm",
            ran.dimension,
            "kernel",
            spans=ran.count,
            seconds=ran.seconds,
            longest=ran.longest,
        ):
            self._kernels_lost("phases_limit", ran.count)
