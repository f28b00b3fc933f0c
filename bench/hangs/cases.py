"""Random hangs: a layout, how its ranks call and are watched, what is wrong, and who is to blame."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_simulator.engine.ring import between_hosts, ring_of
from argus_simulator.engine.schedule import Extras, RankSchedule
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.topology import Topology
from bench.hangs.network import Lost
from bench.hangs.step import Break, HungStep, Program, names_of

KINDS: Final = (
    "stopped",
    "stuck",
    "died",
    "diverged",
    "gpu",
    "network",
    "several",
    "most",
    "gone",
    "pause",
)
"""A process that was stopped; a host that is stuck in a phase; a process that died; another collective was
called; all have called and one GPU does not move; a collective does not end; two or three of these at once;
most processes died; a host is gone with its exporter; and a pause that is none of them, of which nothing may
be told."""
LAYOUTS: Final = (
    Topology(dp=4, ranks_per_host=2),
    Topology(dp=8),
    Topology(dp=32),
    Topology(dp=2, tp=2, ranks_per_host=4),
    Topology(dp=4, tp=4, ranks_per_host=4),
    Topology(dp=2, tp=2, pp=2),
    Topology(dp=4, tp=2, pp=4),
    Topology(dp=8, ep=4),
    Topology(dp=8, tp=2, ep=4),
    Topology(dp=4, tp=2, pp=2, ep=2),
    Topology(dp=16, tp=8, pp=1),
    Topology(dp=8, tp=4, pp=4, ep=4),
    Topology(dp=8, ranks_per_host=1),
    Topology(dp=2, tp=1, pp=4, ranks_per_host=1),
)
_ALONE: Final = ("stopped", "stuck", "died")
_DEVICE_QUEUE: Final = 1024
"""Launches that CUDA takes before a launch blocks (the lab's `host.queue`)."""


@dataclass(frozen=True)
class Case:
    """One hang, or a pause that is none.

    Attributes:
        name: of the job.
        step_s: usual duration of a step.
        blocking: collectives block the host, as gloo's do.
        timing: NCCL tells what has started (TORCH_NCCL_ENABLE_TIMING).
        recorder: torch's flight recorder is there.
        ras: NCCL's RAS is asked.
        failed: a process that died said that it failed, as Python does after an exception.
        gone: the host that nobody hears from the hang on.
        missed: a host, and seconds after the hang from which on one scrape of it fails.
        lost: what does not arrive between two hosts, of a collective that does not end.
        wrong: kind of each break; one, or several.
        culprits: ranks that may be named, and of which one must; empty: nobody may be.
        group: which group's collective it is, where a message says one; "": it may say none.
        pause_s: how long a pause lasts; 0: for ever.
    """

    name: str
    kind: str
    topology: Topology
    model: ModelSettings
    seed: int
    step_s: float
    blocking: bool
    timing: bool
    recorder: bool
    ras: bool
    wrong: tuple[tuple[str, Break], ...]
    culprits: frozenset[int]
    group: str = ""
    pause_s: float = 0.0
    lost: Lost | None = None
    failed: bool = False
    gone: int | None = None
    missed: tuple[int, float] | None = None

    def schedules(self) -> list[RankSchedule]:
        return [
            RankSchedule(self.topology, rank, self.model, Extras()) for rank in range(self.topology.ranks)
        ]

    def hung(self, schedules: Sequence[RankSchedule]) -> HungStep:
        return HungStep(
            self.topology,
            [Program.of(one) for one in schedules],
            [one for _, one in self.wrong],
            _DEVICE_QUEUE,
            blocking=self.blocking,
        )

    @property
    def variant(self) -> str:
        """The kind, and whether what tells its culprit is there."""
        if self.kind == "gpu" and not (self.timing and self.recorder):
            return self._gpu()
        if self.kind == "network" and (self.blocking or self.lost is None):
            return "network, gloo" if self.blocking else "network, inside a host"
        if self.kind == "diverged" and not (self.culprits and self.recorder):
            return "diverged, halves" if not self.culprits else "diverged, calls unknown"
        return self.kind

    def _gpu(self) -> str:
        """What NCCL's plugin can tell of it."""
        here = self.topology.ranks_per_host
        if self.topology.ranks <= here:
            return "gpu, one host"
        return "gpu, alone on its host" if here == 1 else "gpu, among others of its host"


def cases(count: int, seed: int) -> Iterator[Case]:
    """As many of each kind."""
    for number in range(count):
        yield _case(number, KINDS[number % len(KINDS)], np.random.default_rng([seed, number]))


def _case(number: int, kind: str, random: np.random.Generator) -> Case:
    # Of a job that nobody hears nothing is told.
    layouts = [one for one in LAYOUTS if kind != "gone" or _hosts(one) > 1]
    topology = layouts[int(random.integers(len(layouts)))]
    sharded = topology.ranks == topology.dp * topology.tp and topology.ep == 1 and random.random() < 0.3
    model = ModelSettings(
        microbatches=int(random.integers(1, 5)),
        layers=int(random.integers(1, 4)),
        framework="fsdp2" if sharded else "",
    )
    # A GPU that stands still while all have called it can only be where hosts run ahead.
    blocking = kind != "gpu" and bool(random.random() < 0.4)
    schedules = [RankSchedule(topology, rank, model, Extras()) for rank in range(topology.ranks)]
    wrong, culprits, group = _wrong(kind, topology, schedules, random)
    lost = None if blocking or kind != "network" else _lost(topology, schedules, wrong[0][1], random)
    hosts, missed = _hosts(topology), random.random() < 0.3
    return Case(
        name=f"case-{number}",
        kind=kind,
        topology=topology,
        model=model,
        seed=int(random.integers(1 << 30)),
        step_s=float(random.uniform(1.0, 8.0)),
        blocking=blocking,
        timing=not blocking and bool(random.random() < 0.5),
        recorder=bool(random.random() < 0.9),
        ras=not blocking and bool(random.random() < 0.5),
        wrong=tuple(wrong),
        culprits=culprits,
        group=group,
        pause_s=float(random.uniform(20.0, 55.0)) if kind == "pause" else 0.0,
        lost=lost,
        failed=bool(random.random() < 0.5),
        gone=topology.host_index(wrong[0][1].rank) if kind == "gone" else None,
        missed=(int(random.integers(hosts)), float(random.uniform(60.0, 210.0))) if missed else None,
    )


def _lost(
    topology: Topology, schedules: Sequence[RankSchedule], broken: Break, random: np.random.Generator
) -> Lost | None:
    """Between which two hosts' members of the collective; None: it goes over NVLink alone."""
    node = schedules[broken.rank].nodes[broken.node]
    assert node.exchange is not None
    members = topology.members(broken.rank, node.dimension)
    pairs = ring_of(members) if names_of(node)[1] else itertools.permutations(members, 2)
    apart = [(one, other) for one, other in pairs if between_hosts(topology, one, other)]
    if not apart:
        return None
    rank, to = apart[int(random.integers(len(apart)))]
    return Lost(node.exchange, rank, to, "data" if random.random() < 0.5 else "room")


def _wrong(
    kind: str,
    topology: Topology,
    schedules: Sequence[RankSchedule],
    random: np.random.Generator,
) -> tuple[list[tuple[str, Break]], frozenset[int], str]:
    """What is wrong, who is to blame, and the group whose collective it is."""
    if kind == "several":
        most = min(3, topology.ranks // 4)
        ranks = random.choice(topology.ranks, int(random.integers(1, most + 1)) + 1, replace=False)[
            : max(most, 1)
        ]
        found = [_of_rank(_ALONE[int(random.integers(3))], int(rank), schedules, random) for rank in ranks]
        return found, frozenset(int(rank) for rank in ranks), ""
    rank = int(random.integers(topology.ranks))
    if kind in ("most", "gone"):
        members = _most(topology, random) if kind == "most" else _neighbours(topology, rank)
        how = "died" if kind == "most" else kind
        return [_of_rank(how, one, schedules, random) for one in members], frozenset(members), ""
    if kind in (*_ALONE, "pause"):
        one = _of_rank("stuck" if kind == "pause" else kind, rank, schedules, random)
        return [one], frozenset() if kind == "pause" else frozenset({rank}), ""
    if kind == "gpu":
        node = _some(schedules[rank], random, "compute")
        return [(kind, Break("gpu", rank, node))], frozenset({rank}), ""
    node = _some(schedules[rank], random, "collective")
    called = schedules[rank].nodes[node]
    assert called.exchange is not None
    group = called.exchange[0]
    if kind == "network":
        return [(kind, Break("link", rank, node))], frozenset(), group
    tie = len(topology.members(rank, called.dimension)) == 2
    return [(kind, Break("call", rank, node))], frozenset() if tie else frozenset({rank}), group


def _hosts(topology: Topology) -> int:
    return topology.host_index(topology.ranks - 1) + 1


def _most(topology: Topology, random: np.random.Generator) -> list[int]:
    """More than half of the ranks, and not all."""
    count = int(random.integers(topology.ranks // 2 + 1, topology.ranks))
    return [int(rank) for rank in random.choice(topology.ranks, count, replace=False)]


def _neighbours(topology: Topology, rank: int) -> list[int]:
    """All ranks of the host of one."""
    host = topology.host_index(rank)
    return [one for one in range(topology.ranks) if topology.host_index(one) == host]


def _of_rank(
    kind: str, rank: int, schedules: Sequence[RankSchedule], random: np.random.Generator
) -> tuple[str, Break]:
    """Where a rank stops: before, in or after a collective, or anywhere in between."""
    nodes = schedules[rank].nodes
    if kind == "stuck":
        # In a phase of computation, or in its loader: before the first node.
        node = 0 if random.random() < 0.3 else _some(schedules[rank], random, "compute")
        return kind, Break("host", rank, node)
    at = _some(schedules[rank], random, "collective") + int(
        random.integers(2)
    )  # before it, or in it or after
    return kind, Break("process", rank, min(at, len(nodes)))


def _some(schedule: RankSchedule, random: np.random.Generator, role: str) -> int:
    """Position of one of the rank's nodes of a role."""
    found = [position for position, node in enumerate(schedule.nodes) if node.role == role]
    return found[int(random.integers(len(found)))]
