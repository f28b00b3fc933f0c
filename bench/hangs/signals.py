"""What Prometheus would have scraped of a case: the exporter's own collectors, in virtual time.

Each rank has a page, records and a connection as a real producer has; what the page says of a step that does
not end is what the hooks and their events (documented: docs/training.md) and torch's flight recorder would
write there; the memory of NCCL's plugin has what its network steps wait for (`bench.hangs.network`). A
stopped process is a file in a folder that stands for /proc, and RAS an answer as NCCL documents it.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from argus_core import wire
from argus_core.link import Link
from argus_core.overdue import overdue_after
from argus_core.shared_page import GPU_WORD, PageWriter, pack_recorded, recorded_word
from argus_exporter.place.topology_file import Topology as Places
from argus_exporter.publish.collectors import ALL_COLLECTORS
from argus_exporter.publish.collectors.stopped import StoppedCollector
from argus_exporter.ras.config import RasConfig
from argus_exporter.ras.outcome import Outcome, Result, outcome_of
from argus_exporter.ras.report import Absence, AbsentRank, Communicator, Place, PresentRank, Report, levels
from argus_simulator.engine.framework_hooks import framework_hooks, waits
from argus_simulator.engine.schedule import RankSchedule
from argus_simulator.fast_play.history import SCRAPE_MS, Clock, Host, InProcess, Series, instance_of
from argus_simulator.nccl_memory import Memory
from argus_simulator.topology import Topology
from bench.hangs.cases import Case
from bench.hangs.network import Network
from bench.hangs.step import UNCOUNTED, Program, Standing, divergent, launches, names_of

WATCHED_S: Final = 240.0
"""After the last step: without proof, a page comes after 180."""
_TRAINED_S: Final = 90.0
_LEAST_STEPS: Final = 12
_FIRST_PID: Final = 100_000
_LATENESS_S: Final = 1.0
"""A sender's thread looks about once a second, and needs two looks that agree."""
_SPREAD: Final = 0.01
"""Of a healthy phase."""


@dataclass(frozen=True)
class Played:
    """The series of a case.

    Attributes:
        stalled_s: Unix time at which the job has stood still for stallMinSeconds, or for five usual durations
            where that is more; of a pause when it ends.
        end_s: until when it was watched.
    """

    case: Case
    series: Series
    stalled_s: float
    end_s: float


class _Rank:
    """A rank's producer, which trains for some steps and then comes no further."""

    def __init__(self, case: Case, rank: int, schedule: RankSchedule, clock: Clock, host: Host) -> None:
        self.case, self.rank, self.schedule = case, rank, schedule
        self.pid = _FIRST_PID + rank
        self.page = PageWriter()
        self._clock = clock
        self.nccl = None if case.blocking else Memory(rank, _groups_of(case.topology, rank, schedule))
        given = None if self.nccl is None else self.nccl.descriptor
        self._link: Link = InProcess(host.ranks, self._hello, self.page.fd, given, pid=self.pid)
        self._random = np.random.default_rng([case.seed, rank])
        self._phases = _durations(schedule)
        self._groups = _calls(schedule)
        self._total = self._squared = 0.0
        self.steps = 0
        self._open: list[int] = []
        """Words of the page that tell of an open span."""
        self._entered: dict[str, int] = {}
        """Collectives of the running step that were counted before its end, by group."""

    def trains(self) -> None:
        """What is said at the start, and again now and then."""
        self._link.add(wire.ActivityChange(self._clock.now_ns, wire.Activity.TRAIN))
        hooks = framework_hooks(self.case.topology, self.case.model.framework)
        for phase, kind, group in self._phases:
            mask = waits(phase, kind, group, self.case.topology, hooks)
            self._link.add(wire.PhaseInfo(self._link.name_id(phase), kind, mask))
        self._link.add(wire.ChannelState(0, 0, 0, wire.Channel.PHASES, 1))
        self._link.flush()

    def step(self, seconds: float) -> None:
        """A step has ended just now."""
        begin = self._clock.now_ns - round(seconds * 1e9)
        for (phase, kind, group), share in self._phases.items():
            own = seconds * share * (1 + _SPREAD * float(self._random.standard_normal()))
            ids = self._link.name_id(phase), self._link.name_id(group) if group else 0
            self._link.add(wire.Span(begin, round(own * 1e9), self.steps, *ids, kind, wire.Source.HOST, 0))
        self.iterates(seconds)
        for group, calls in self._groups.items():
            self._enter(group, calls - self._entered.pop(group, 0))
        self.page.step(self.steps)

    def iterates(self, seconds: float) -> None:
        """A step has ended, whatever of the next has begun."""
        self.steps += 1
        self._total, self._squared = self._total + seconds, self._squared + seconds * seconds
        self._link.add(
            wire.Iteration(
                self.steps, self._clock.now_ns, round(seconds * 1e9), self.steps, self._total, self._squared
            )
        )
        self._link.flush()

    def comes_to(self, standing: Standing, stuck_in: int) -> None:
        """The page of a rank that comes no further."""
        now = self._clock.now_ns
        for group, positions in standing.collectives().items():
            self._entered[group] = sum(position < standing.launched for position in positions)
            self._enter(group, self._entered[group])
        for phase, kind, first in standing.open_spans(stuck_in):
            self._opens(phase, kind, now + first)
        if standing.launched == 0 and stuck_in == 0:
            self._opens("data", wire.Kind.HOST, now)

    def launches(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """What its NCCL has launched goes to the memory of the plugin, by group and function."""
        for group, functions in counts.items():
            for function, count in functions.items():
                if self.nccl is not None and count:
                    numbered = {"called": count, "count": count, "bytes": count, "sequence": count}
                    only_called = {"called": count, "count": 0, "bytes": 0}
                    self.nccl.counts(group, function, only_called if function == UNCOUNTED else numbered)

    def gpu_is_in(self, standing: Standing) -> None:
        """Where the GPU is, by the events of the hooks, goes to the page."""
        inside = standing.gpu_span()
        slot = self.page.phase(*inside) if inside is not None else None
        if slot is not None and not self.case.blocking:
            self.page.words[GPU_WORD] = slot
            self.page.words[GPU_WORD + 1] = self._clock.now_ns

    def records(self, standing: Standing, diverges: frozenset[int]) -> None:
        """What the flight recorder says of the step that does not end goes to the page."""
        for group, positions in standing.collectives().items():
            called = [one for one in positions if one < standing.launched]
            open_ = [one for one in called if not standing.done[one]]
            if not open_ and not self.case.blocking:
                continue  # with NCCL a rank that has nothing under way lists nothing
            slot = self.page.group(group)
            if slot is None or not self.page.words[slot]:
                continue
            shown = open_[0] if open_ else (called or positions)[-1]
            node = standing.nodes[shown]
            operation = (divergent(node) if shown in diverges else names_of(node))[0]
            not_started = sum(not standing.started[one] for one in called) if self.case.timing else None
            self.page.words[recorded_word(slot)] = pack_recorded(
                self.page.words[slot], operation, not_started, len(open_)
            )

    def goes_on(self) -> None:
        """The pause is over."""
        self.page.words[GPU_WORD + 1] = 0
        for word in self._open:
            self.page.words[word] = 0
        if self.nccl is not None:
            self.nccl.goes_on()

    def hangs_up(self) -> None:
        """The process is gone."""
        self._link.close(1 if self.case.failed else None)

    def close(self) -> None:
        self.page.close()
        if self.nccl is not None:
            self.nccl.close()

    def _opens(self, phase: str, kind: wire.Kind, since_ns: int) -> None:
        slot = self.page.phase(phase, kind)
        if slot is not None:
            self.page.words[slot] = since_ns
            self._open.append(slot)

    def _enter(self, group: str, calls: int) -> None:
        slot = self.page.group(group)
        if slot is not None and calls:
            self.page.words[slot] += calls
            self.page.words[slot + 1] = self._clock.now_ns

    def _hello(self) -> wire.Hello:
        topology, rank = self.case.topology, self.rank
        return wire.hello(
            pid=self.pid,
            rank=rank,
            training_job=self.case.name,
            monotonic_ns=self._clock.now_ns,
            realtime_ns=self._clock.now_ns,
            local_rank=rank % topology.ranks_per_host,
            world_size=topology.ranks,
            coordinates=topology.coordinates(rank),
            sizes=topology.sizes,
            node=topology.host(rank),
            gpu_uuid=f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}",
            shares_page=True,
            shares_nccl=self.nccl is not None,
        )


def _durations(schedule: RankSchedule) -> dict[tuple[str, wire.Kind, str], float]:
    """Share of the step of each phase: by the work of its own nodes."""
    bodies: dict[tuple[str, wire.Kind, str], float] = {("data", wire.Kind.HOST, ""): 1.0}
    for one in schedule.marked:
        key = one.phase, one.kind, one.group
        body = sum(node.body for node in schedule.nodes[one.first : one.last + 1])
        bodies[key] = bodies.get(key, 0.0) + body
    total = sum(bodies.values()) * 1.1
    return {key: body / total for key, body in bodies.items()}


def _groups_of(topology: Topology, rank: int, schedule: RankSchedule) -> dict[str, Sequence[int]]:
    """Members of the groups in which the rank communicates, by name."""
    return {
        node.exchange[0]: topology.members(rank, node.dimension)
        for node in schedule.nodes
        if node.exchange and node.role != "compute"
    }


def _calls(schedule: RankSchedule) -> dict[str, int]:
    """Collectives of a step by group."""
    return {group: len(of) // 2 for group, of in Standing(Program.of(schedule)).collectives().items()}


class _Play:
    """One case from its first step to the end of the watch."""

    def __init__(self, case: Case, begin_ns: int, proc: Path) -> None:
        self.case, self._proc = case, proc
        topology = case.topology
        self._clock = Clock(begin_ns)
        collectors = tuple(
            StoppedCollector(proc) if isinstance(one, StoppedCollector) else one for one in ALL_COLLECTORS
        )
        self._hosts = [
            Host(
                self._clock,
                instance_of(case.name, index),
                zlib.crc32(f"{case.name} {index} {case.seed}".encode()) % SCRAPE_MS,
                Places({}),
                collectors,
            )
            for index in range(topology.host_index(topology.ranks - 1) + 1)
        ]
        schedules = case.schedules()
        self._step = case.hung(schedules)
        self._ranks = [
            _Rank(case, rank, schedule, self._clock, self._hosts[topology.host_index(rank)])
            for rank, schedule in enumerate(schedules)
        ]
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._random = np.random.default_rng([case.seed, topology.ranks])
        self._reports: list[Report] = []
        self._steps = 0
        """Whole ones, before the one in which somebody hangs."""
        self._over = False
        """The pause is."""
        self._hung_ns: int | None = None
        self._missed = case.missed
        """Which scrape is still to fail."""

    def run(self) -> Played:
        case = self.case
        step_ns = round(case.step_s * 1e9)
        steps = max(_LEAST_STEPS, round(_TRAINED_S / case.step_s))
        begin = self._clock.now_ns
        for rank in self._ranks:
            self._at(begin, rank.trains)
        for number in range(1, steps + 1):
            self._at(begin + number * step_ns, self._end_step)
        self._steps = steps
        last = begin + steps * step_ns
        self._at(last + step_ns // 2, self._hang)
        self._at(last + round((overdue_after(case.step_s) + _LATENESS_S) * 1e9), self._record)
        if case.ras:
            ras = RasConfig()
            for number in range(round((WATCHED_S - ras.after_seconds) / ras.period_seconds)):
                self._at(
                    last + round((ras.after_seconds + 2 + number * ras.period_seconds) * 1e9), self._ask_ras
                )
        ended = any(one.ended for one in self._step.ranks)
        stalled_s = (last + ended * (step_ns // 2)) / 1e9 + max(60.0, 5 * case.step_s)
        if case.pause_s:
            over = last + step_ns // 2 + round(case.pause_s * 1e9)
            self._at(over, self._go_on)
            for number in range(1, int((WATCHED_S - case.pause_s) / case.step_s)):
                self._at(over + number * step_ns, self._end_step)
        end = last + round(WATCHED_S * 1e9)
        self._play(end)
        series: Series = {}
        for host in self._hosts:
            series |= host.series()
        for rank in self._ranks:
            rank.close()
        return Played(case, series, stalled_s, end / 1e9)

    def _at(self, at_ns: int, act: Callable[[], object]) -> None:
        heapq.heappush(self._due, (at_ns, len(self._due), act))  # type: ignore[misc]

    def _play(self, end_ns: int) -> None:
        """Everything in its time, scrapes among it."""
        while True:
            host = min(self._hosts, key=lambda one: one.due_ms)
            scrape_ns = host.due_ms * 1_000_000
            if self._due and self._due[0][0] <= scrape_ns:
                at_ns, _, act = heapq.heappop(self._due)
                self._clock.now_ns = at_ns
                act()
            elif scrape_ns > end_ns:
                return
            else:
                self._clock.now_ns = scrape_ns
                host.scrape(reached=self._hears(self._hosts.index(host)))

    def _hears(self, host: int) -> bool:
        """Whether this scrape reaches the exporter of a host."""
        if self._hung_ns is None:
            return True
        hung_s = (self._clock.now_ns - self._hung_ns) / 1e9
        if self._missed is not None and host == self._missed[0] and hung_s >= self._missed[1]:
            self._missed = None
            return False
        return host != self.case.gone

    def _end_step(self) -> None:
        seconds = self.case.step_s * (1 + 0.01 * float(self._random.standard_normal()))
        for rank in self._ranks:
            rank.step(seconds)

    def _hang(self) -> None:
        self._hung_ns = self._clock.now_ns
        stuck = {one.rank: one.node for kind, one in self.case.wrong if one.how == "host"}
        for rank, standing in zip(self._ranks, self._step.ranks, strict=True):
            rank.comes_to(standing, stuck.get(rank.rank, -1))
            rank.launches(launches(standing, self._steps, self._diverges(rank.rank)))
            if standing.ended:
                rank.iterates(self.case.step_s / 2)
        self._network()
        for kind, one in self.case.wrong:
            rank = self._ranks[one.rank]
            if kind == "stopped":
                folder = self._proc / str(rank.pid)
                folder.mkdir(parents=True)
                (folder / "stat").write_text(f"{rank.pid} (python3 train) T 1 1\n")
            if kind == "died":
                rank.hangs_up()

    def _network(self) -> None:
        """What NCCL's plugin leaves in the memory of each rank."""
        if self.case.blocking:
            return
        broken = [one for _, one in self.case.wrong]
        called = [self._ranks[one.rank].schedule.nodes[one.node] for one in broken if one.how == "call"]
        network = Network(
            self._step,
            self.case.topology,
            self.case.lost,
            frozenset(one.rank for one in broken if one.how == "process"),
            frozenset(node.exchange for node in called if node.exchange),
        )
        for rank in self._ranks:
            if rank.nccl is not None:
                rank.nccl.stands(network.waits[rank.rank], self._clock.now_ns)

    def _diverges(self, rank: int) -> frozenset[int]:
        """Nodes in whose place the rank calls something else."""
        return frozenset(one.node for _, one in self.case.wrong if one.how == "call" and one.rank == rank)

    def _record(self) -> None:
        """While a pause is overdue, too. Who is stopped or dead looks at nothing."""
        if self._over:
            return
        gone = {one.rank for _, one in self.case.wrong if one.how == "process"}
        for rank, standing in zip(self._ranks, self._step.ranks, strict=True):
            if rank.rank not in gone:
                rank.gpu_is_in(standing)
            if rank.rank not in gone and self.case.recorder:
                rank.records(standing, self._diverges(rank.rank))

    def _go_on(self) -> None:
        self._over = True
        for host in self._hosts:
            for state in host.ranks:
                state.ras = None
        for rank in self._ranks:
            rank.goes_on()
            if self._step.ranks[rank.rank].ended:
                rank.steps -= 1  # it is counted already
            rank.step(self.case.pause_s + self.case.step_s)

    # -- RAS ------------------------------------------------------------------

    def _ask_ras(self) -> None:
        """What the exporter of rank 0 learns (`argus_exporter.hangs.ras_watch`)."""
        if self._over:
            return
        how = {one.rank: kind for kind, one in self.case.wrong if one.how == "process"}
        states = {state.identity.rank: state for state in self._hosts[0].ranks if state.connected}
        if not states or self.case.gone == 0:
            return
        asked = states[min(states)]
        if min(states) in how:
            asked.ras = Outcome(Result.FAILED, self._clock.seconds())
            return
        report = self._report(how)
        before = self._reports[-1] if self._reports else None
        self._reports.append(report)
        known = {_FIRST_PID + rank: rank for rank in states}
        asked.ras = outcome_of(report, before, self._clock.seconds(), self.case.topology.ranks, known)

    def _report(self, how: dict[int, str]) -> Report:
        counts = {
            rank: launches(standing, self._steps, self._diverges(rank))
            for rank, standing in enumerate(self._step.ranks)
        }
        return Report("2.30.7", tuple(self._communicators(how, counts)), len(self._groups()), collected_s=5.0)

    def _groups(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for rank, standing in enumerate(self._step.ranks):
            for group in standing.collectives():
                groups.setdefault(group, []).append(rank)
        return groups

    def _communicators(
        self, how: Mapping[int, str], counts: Mapping[int, Mapping[str, Mapping[str, int]]]
    ) -> Iterator[Communicator]:
        for group, members in self._groups().items():
            absent = [rank for rank in members if rank in how]
            present = [rank for rank in members if rank not in how]
            functions = {name for rank in present for name in counts[rank][group]} - {UNCOUNTED}
            yield Communicator(
                hash=zlib.crc32(group.encode()),
                size=len(members),
                present=tuple(PresentRank(members.index(rank), self._place(rank)) for rank in present),
                absent=tuple(
                    AbsentRank(
                        members.index(rank),
                        self._place(rank),
                        Absence.DEAD if how[rank] == "died" else Absence.UNRESPONSIVE,
                    )
                    for rank in absent
                ),
                launches={
                    name: levels({members.index(rank): counts[rank][group].get(name, 0) for rank in present})
                    for name in functions
                },
            )

    def _place(self, rank: int) -> Place:
        host = self.case.topology.host_index(rank)
        address = f"198.51.{host // 250}.{host % 250 + 1}" if host else "127.0.0.1"  # RFC 5737: nobody's
        return Place(address, _FIRST_PID + rank, rank % self.case.topology.ranks_per_host)


def play(cases: Sequence[Case], begin_ms: int, proc: Path) -> Iterator[Played]:
    """Each case, from some moment within a scrape's interval after the begin."""
    for case in cases:
        begin = begin_ms + case.seed % SCRAPE_MS
        yield _Play(case, begin * 1_000_000, proc / case.name).run()
