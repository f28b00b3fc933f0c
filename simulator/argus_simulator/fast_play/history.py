"""What Prometheus would have scraped from a job of the fault lab, computed in virtual time.

The job, its producers, the exporter's state of each rank and its collectors are the real ones; what is left
out is the waiting, the socket and the text of the scrape. Spans of one step that count as one phase are added
up before the exporter counts them, unless the rank sends kernels; a test compares that with one by one.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.link import ORDER, Link
from argus_core.remote_write import Labels
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.kernels.config import KernelsConfig
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.place.topology_file import JobTopology
from argus_exporter.place.topology_file import Topology as Places
from argus_exporter.publish.collectors import ALL_COLLECTORS, Collector, CollectorRunner
from argus_exporter.ranks.channels import Attachment, channels_of
from argus_exporter.ranks.live import adopt_page
from argus_exporter.ranks.phases import Phases, PhaseTotals
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from argus_simulator.engine.plan import SPAN_DTYPE
from argus_simulator.fast_play.storage import STALE, Floats, Ints
from argus_simulator.lab import Scenario
from argus_simulator.lab.hardware import counters
from argus_simulator.player import Player, Progress
from argus_simulator.producers import gpu_uuid

SCRAPE_MS: Final = 15_000
COLLECTORS: Final = tuple(collector.name for collector in ALL_COLLECTORS)
_PORT: Final = 9877

Series = dict[Labels, tuple[Ints, Floats]]
"""Times in ms and values."""


@dataclass(frozen=True)
class History:
    """A job's series, and how it went."""

    training_job: str
    begin_ms: int
    end_ms: int
    """Unix time at which the job ended."""
    series: Series
    progress: Progress


class Clock:
    """Virtual time: Unix ns, and the same as monotonic."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def unix(self) -> int:
        return self.now_ns

    def seconds(self) -> float:
        return self.now_ns / 1e9


def record(
    scenario: Scenario,
    training_job: str,
    begin_ns: int,
    seconds: float,
    *,
    steps: int | None = None,
    settle_s: float = 0.0,
    model: str = "",
    scrape_ms: int = SCRAPE_MS,
    scrape_offsets_ms: Mapping[str, int] | None = None,
    top_pairs: int = 0,
    link: Callable[[Host, Callable[[], wire.Hello], int, int | None], Link] | None = None,
) -> History:
    """Play a job for so long and scrape the exporter of each of its hosts again and again.

    Args:
        begin_ns: Unix time at which the job begins.
        steps: end it after so many of them.
        settle_s: how long the exporters are scraped after the job.
        model: what it trains; jobs alike are compared with one another's past.
        scrape_ms: how often.
        scrape_offsets_ms: when each instance (`instance_of`) is scraped within that; default: by its name.
        top_pairs: (kernel, stream) pairs that a rank publishes; 0: as many as by default.
        link: connects a producer (its HELLO, its page, NCCL's memory) to the exporter of its host.
    """
    connect = link or (lambda host, hello, page, nccl: InProcess(host.ranks, hello, page, nccl))
    clock = Clock(begin_ns)
    topology = scenario.topology.build()
    places = Places({training_job: JobTopology(model=model)})
    config = ExporterConfig(kernels=KernelsConfig(top_pairs)) if top_pairs else ExporterConfig()
    hosts = []
    most = max(one.ranks for one in scenario.topologies)
    for index in range(topology.host_index(most - 1) + 1):
        instance = instance_of(training_job, index)
        offset = (scrape_offsets_ms or {}).get(instance, zlib.crc32(instance.encode()))
        hosts.append(Host(clock, instance, offset, places, every_ms=scrape_ms, config=config))
    gaps = scenario.scrape_gaps

    def wait(span_s: float) -> bool:
        until = clock.now_ns + max(1, round(span_s * 1e9))  # who waits for less would wait for ever
        while (host := min(hosts, key=lambda one: one.due_ms)).due_ms * 1_000_000 <= until:
            clock.now_ns = max(clock.now_ns, host.due_ms * 1_000_000)
            first = hosts.index(host) * topology.ranks_per_host
            player.show(range(first, first + topology.ranks_per_host))
            host.scrape(reached=not unscraped[0])
        clock.now_ns = until
        return False

    unscraped = [False]

    def after(progress: Progress) -> None:
        step = progress.steps
        if step == steps:
            player.stop()
        unscraped[0] = any(first <= step and (end is None or step < end) for first, end in gaps)

    player = Player(
        scenario.job(),
        training_job,
        Path("in-process"),
        clock=clock.unix,
        wait=wait,
        on_step=after,
        monotonic=clock.unix,
        link=lambda rank, hello, page, nccl: connect(hosts[topology.host_index(rank)], hello, page, nccl),
    )
    player.play(seconds)
    end_ms = clock.now_ns // 1_000_000
    wait(settle_s)
    series: Series = {}
    for host in hosts:
        series |= host.series()
    series |= _counters(scenario, training_job, begin_ns // 1_000_000, end_ms, player.progress)
    return History(training_job, begin_ns // 1_000_000, end_ms, series, player.progress)


def _counters(
    scenario: Scenario, training_job: str, begin_ms: int, end_ms: int, progress: Progress
) -> Series:
    """What was scraped meanwhile from dcgm-exporter, where the scenario says what it shows; in a hang too."""
    topology = scenario.topology.build()
    times = np.arange(begin_ms - begin_ms % SCRAPE_MS + SCRAPE_MS, end_ms, SCRAPE_MS)
    steps = np.searchsorted(np.array(progress.step_ends), times / 1000, side="right").tolist()
    found: Series = {}
    for rank in range(topology.ranks):
        shown = [counters(scenario.faults, rank, step) for step in steps]
        node = topology.host(rank)
        of_gpu = {
            "UUID": gpu_uuid(rank),
            "gpu": str(rank % topology.ranks_per_host),
            "Hostname": node,
            "job": "dcgm",
            "instance": f"{training_job}-{node}:9400",
        }
        for name in shown[0] if shown else ():
            labels = tuple(sorted((of_gpu | {"__name__": name}).items()))
            found[labels] = times, np.array([one[name] for one in shown])
    return found


def instance_of(training_job: str, host: int) -> str:
    return f"{training_job}-host-{host}:{_PORT}"


class Host:
    """The exporter of one host, and what Prometheus has scraped from it.

    Args:
        offset_ms: when it is scraped, after multiples of the interval.
        places: its topology file.
        collectors: of what it tells.
        every_ms: the interval.
    """

    def __init__(
        self,
        clock: Clock,
        instance: str,
        offset_ms: int,
        places: Places,
        collectors: Sequence[Collector] = ALL_COLLECTORS,
        *,
        every_ms: int = SCRAPE_MS,
        config: ExporterConfig = ExporterConfig(),  # noqa: B008 (frozen)
    ) -> None:
        self._collectors = collectors
        self._every_ms = every_ms
        self.ranks = RankRegistry(config, clock.seconds, places)
        begin_ms = clock.now_ns // 1_000_000
        self.due_ms = begin_ms + (offset_ms - begin_ms) % every_ms
        self._clock = clock
        self._target = {"job": "argus", "instance": instance}
        self._columns: dict[tuple[str, ...], _Column] = {}
        self._present: set[tuple[str, ...]] = set()

    def scrape(self, *, reached: bool = True) -> None:
        """What is due now; nothing but `up 0` where nobody reaches the host."""
        at_ms = self.due_ms
        self.due_ms += self._every_ms
        self.ranks.forget_lost()
        present: set[tuple[str, ...]] = set()
        for name, labels, value in self._samples() if reached else ():
            key = name, *labels.values()
            column = self._columns.get(key)
            if column is None:
                column = self._columns[key] = _Column(self._labels(name, labels))
            column.add(at_ms, value)
            present.add(key)
        for key in self._present - present:
            self._columns[key].add(at_ms, STALE)
        self._present = present
        up = self._columns.setdefault(("up",), _Column(self._labels("up", {})))
        up.add(at_ms, float(reached))

    def series(self) -> Series:
        return {column.labels: column.arrays() for column in self._columns.values()}

    def _samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for rank in list(self.ranks):
            for window in rank.kernels.take_complete():
                rank.kernels.publish(rank.kernels.summarise(window))
            *_, folded = rank.stacks.tree.take()  # what the ranks sampled of themselves since the last scrape
            if folded:
                rank.stacks.totals.add(folded)
        for family in CollectorRunner(self._collectors, self.ranks).collect():
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value

    def _labels(self, name: str, labels: Mapping[str, str]) -> Labels:
        merged = {**labels, **self._target, "__name__": name}
        return tuple(sorted((key, value) for key, value in merged.items() if value))


@dataclass
class _Column:
    """One series as it grows."""

    labels: Labels
    times: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, at_ms: int, value: float) -> None:
        self.times.append(at_ms)
        self.values.append(value)

    def arrays(self) -> tuple[Ints, Floats]:
        return np.array(self.times, np.int64), np.frombuffer(self.values, np.float64)


class InProcess(Link):
    """A producer's link whose other end is the state of the rank, in this process.

    Args:
        ranks: of the exporter that it reaches.
        hello: called at each connect.
        page: descriptor of the producer's page.
        nccl: of libargus_nccl's memory, where there is one.
        pid: of the producer; 0: it has no process, and no scrape looks for one.
    """

    def __init__(
        self,
        ranks: RankRegistry,
        hello: Callable[[], wire.Hello],
        page: int,
        nccl: int | None = None,
        *,
        pid: int = 0,
    ) -> None:
        super().__init__(Path("in-process"), hello, page_fd=page, nccl_fd=nccl)
        self._ranks = ranks
        self._pid = pid
        self._rank: RankState | None = None
        self._shapes: dict[bytes, _Shape] = {}
        self._phases = bytearray()
        """What was said last of phases."""

    @property
    def connected(self) -> bool:
        return self._rank is not None

    def flush(self) -> None:
        if self._rank is None:
            self._greet()
        assert self._rank is not None
        for type_ in ORDER:
            packed = self._buffers[type_]
            if not packed:
                continue
            self._buffers[type_] = bytearray()
            if type_ == wire.MessageType.NAMES:
                for name in wire.Name.unpack_all(memoryview(packed)):
                    self._bound.bind(name)
            elif type_ == wire.MessageType.PHASES and packed == self._phases:
                continue  # said again, for an exporter that was restarted
            elif type_ == wire.MessageType.SPANS and wire.Channel.KERNELS not in self._attachment.channels:
                self._add_up(self._rank, np.frombuffer(packed, SPAN_DTYPE))
            else:
                count = len(packed) // wire.RECORDS[wire.MessageType(type_)].FORMAT.size
                header = wire.Header(wire.MessageType(type_), count, 0, 0)
                records.take(self._rank, header, memoryview(packed), self._bound)
                if type_ == wire.MessageType.PHASES:
                    self._phases = packed

    def close(self, exit_status: int | None = None) -> None:
        self.flush()
        assert self._rank is not None
        self._ranks.detach(
            self._rank,
            self._attachment,
            said_bye=exit_status is not None and not wire.Bye(exit_status).failed,
        )
        self._rank = None

    def _greet(self) -> None:
        hello = self._hello()
        self._attachment = Attachment(channels_of(hello.channels), os.getuid(), self._pid)
        assert self._page_fd is not None
        shared = (self._page_fd, self._nccl_fd)
        page = adopt_page(hello, [os.dup(one) for one in shared if one is not None])
        self._rank = self._ranks.hello(Identity.from_hello(hello), self._attachment, page)
        self._bound = NameTable(self._rank.texts)
        self._shapes.clear()
        self._phases = bytearray()
        for text, id_ in self._names.items():
            self._bound.bind(wire.Name(id_, wire.encode_name(text)))
        self.connects += 1

    def _add_up(self, rank: RankState, spans: NDArray[np.void]) -> None:
        """Count spans by phase: what `records.span` does one by one."""
        codes = (
            spans["phase_id"].astype(np.uint64) << _PHASE_BITS
            | spans["group_id"].astype(np.uint64) << _GROUP_BITS
            | spans["kind"].astype(np.uint64) << _KIND_BITS
            | spans["source"]
        )
        text = codes.tobytes()
        shape = self._shapes.get(text)
        if shape is None:
            shape = self._shapes[text] = _Shape.of(codes, self._bound, rank.phases)
        own = np.maximum(spans["duration_ns"] / 1e9 - spans["nested_seconds"], 0.0)[shape.order]
        sums, longest = np.add.reduceat(own, shape.starts), np.maximum.reduceat(own, shape.starts)
        rank.channel(wire.Channel.PHASES).records += len(spans)
        now = rank.phases.clock()
        for totals, count, seconds, most in zip(
            shape.totals, shape.counts, sums.tolist(), longest.tolist(), strict=True
        ):
            totals.count += count
            totals.seconds += seconds
            totals.longest.add(now, most)


_PHASE_BITS: Final = np.uint64(40)
_GROUP_BITS: Final = np.uint64(16)
_KIND_BITS: Final = np.uint64(8)
"""Of a number that two spans share which count together."""


@dataclass(frozen=True)
class _Shape:
    """Which spans of a step count together; it is the same in most steps.

    Attributes:
        order: the spans sorted by phase.
        starts: where each phase begins in that order, with the rank's totals of it, and how many it has.
    """

    order: Ints
    starts: Ints
    totals: tuple[PhaseTotals, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, codes: NDArray[np.uint64], names: NameTable, phases: Phases) -> _Shape:
        distinct, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
        found = (
            phases.totals(
                names.text(code >> 40),
                wire.Kind(code >> 8 & 0xFF).name.lower(),
                names.text(code >> 16 & 0xFFFFFF),
                wire.Source(code & 0xFF).name.lower(),
            )
            for code in distinct.tolist()
        )
        totals = tuple(of for of in found if of is not None)
        assert len(totals) == len(distinct), "a job of the lab has few phases"
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        return cls(np.argsort(inverse, kind="stable"), starts, totals, tuple(counts.tolist()))
