"""Where every rank of a job is when a step never ends: who has called what, what has started and ended.

The order of calls, the streams and who needs what are those of the lab's schedules (Megatron's, DDP's and
FSDP2's). There are no times here: each host launches and each GPU runs all that it can, and what is left is
the hang.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from argus_core import wire
from argus_simulator.engine.schedule import Marked, Node, RankSchedule
from argus_simulator.topology import Topology

Exchange = tuple[str, str, int]
"""Group, phase and number: equal on all members of one collective."""
How = Literal["host", "process", "gpu", "link", "call"]

KERNEL_OPERATIONS: Final = {
    "all-reduce": ("all_reduce", "AllReduce"),
    "all-gather": ("_all_gather_base", "AllGather"),
    "reduce-scatter": ("_reduce_scatter_base", "ReduceScatter"),
    "dispatch": ("all_to_all", ""),
    "combine": ("all_to_all", ""),
}
"""What torch's flight recorder and NCCL's RAS call a collective, by the end of the name of its phase."""
UNCOUNTED: Final = "Broadcast"
"""What RAS does not count, from NCCL 2.29 on."""


@dataclass(frozen=True)
class Break:
    """What is wrong with one rank, or with one of its collectives.

    Attributes:
        how: `host`: its main thread never comes to launch the node. `process`: nor does anything else of it
            run, so that a collective that it is in does not end either. `gpu`: the node, a computation, never
            ends. `link`: the node, a collective, ends for nobody. `call`: the rank calls another one.
        node: position in the rank's schedule; as many as it has nodes: the end of the step.
    """

    how: How
    rank: int
    node: int


@dataclass(frozen=True)
class Program:
    """What a rank does in the step that hangs, and in the next one, which others may begin.

    Attributes:
        step: nodes of one step.
    """

    nodes: tuple[Node, ...]
    marked: tuple[Marked, ...]
    step: int

    @classmethod
    def of(cls, schedule: RankSchedule) -> Program:
        count = len(schedule.nodes)
        again = [
            dataclasses.replace(
                node,
                needs=tuple(one + count for one in node.needs),
                exchange=node.exchange and (*node.exchange[:2], node.exchange[2] + _SECOND),
            )
            for node in schedule.nodes
        ]
        marked = [
            dataclasses.replace(one, first=one.first + count, last=one.last + count)
            for one in schedule.marked
        ]
        return cls((*schedule.nodes, *again), (*schedule.marked, *marked), count)


_SECOND: Final = 1_000_000
"""What numbers of exchanges of the next step begin with."""


@dataclass
class Standing:
    """One rank where it comes no further."""

    program: Program
    launched: int = 0
    """Nodes that its host has launched; it launches them in order."""
    done: list[bool] = field(default_factory=list)
    started: list[bool] = field(default_factory=list)
    waits_on: int = -1
    """The node that the host waits for in the call of the one after; -1: none."""

    @property
    def nodes(self) -> Sequence[Node]:
        return self.program.nodes

    @property
    def ended(self) -> bool:
        """Whether the rank has ended the step in which others hang."""
        return self.launched > self.program.step

    def collectives(self) -> dict[str, list[int]]:
        """Positions of the rank's collectives, by group, in the order of their calls."""
        found: dict[str, list[int]] = {}
        for position, node in enumerate(self.nodes):
            if node.role == "collective" and node.exchange:
                found.setdefault(node.exchange[0], []).append(position)
        return found

    def open_spans(self, stuck_in: int = -1) -> list[tuple[str, wire.Kind, int]]:
        """Phase, kind and first node of what the host is in the middle of, the innermost last.

        Args:
            stuck_in: the node in whose launch the host stands still; -1: it stands between two.
        """
        here = self.launched
        found = []
        for one in self.program.marked:
            inside = one.first < here <= one.last or one.first <= stuck_in <= one.last
            awaited = one.kind is wire.Kind.COMM and not one.apart and one.last == self.waits_on
            if inside or awaited:
                found.append((one.phase, one.kind, one.first))
        return sorted(found, key=lambda one: one[2])

    def gpu_span(self) -> tuple[str, wire.Kind] | None:
        """What the GPU is in the middle of, by events on the stream of the computation, else on another.

        A span has its events once the host has ended it. It begins on its stream when all before it has ended
        there; a wait, once the stream has come to it.
        """
        found: list[tuple[bool, int, int, Marked]] = []
        for one in self.program.marked:
            first, ends = self.nodes[one.first], (one.last, *one.until)
            if one.last >= self.launched or all(self.done[end] for end in ends):
                continue
            begun = all(self.done[node] for node in one.after or first.needs)
            if begun and (self.started[one.first] or one.kind is wire.Kind.COMM):
                found.append((not one.apart, one.first, -one.last, one))
        if not found:
            return None
        *_, innermost = max(found, key=lambda one: one[:3])
        return innermost.phase, innermost.kind


class HungStep:
    """The last step of a job, as far as it comes.

    Args:
        programs: one a rank.
        broken: what is wrong.
        ahead: launches that may be unfinished on the device before the host waits.
        blocking: the host waits for each collective that a computation needs, as with gloo; else the stream
            does.
    """

    def __init__(
        self, topology: Topology, programs: Sequence[Program], broken: Sequence[Break], ahead: int,
        *, blocking: bool,
    ) -> None:  # fmt: skip
        self._topology, self._broken = topology, broken
        self._ahead, self._blocking = ahead, blocking
        self.ranks = [
            Standing(one, 0, [False] * len(one.nodes), [False] * len(one.nodes)) for one in programs
        ]
        self._stops = {one.rank: one.node for one in broken if one.how in ("host", "process")}
        self._endless = {(one.rank, one.node) for one in broken if one.how == "gpu"}
        self._void = {
            programs[one.rank].nodes[one.node].exchange for one in broken if one.how in ("link", "call")
        }
        self._gone = {one.rank for one in broken if one.how == "process"}
        self._arrived: dict[Exchange, set[int]] = {}
        self._sent: set[Exchange] = set()
        self._before = [_before_in_stream(one.nodes) for one in programs]
        self._solve()

    def _solve(self) -> None:
        moved = True
        while moved:
            moved = False
            for rank in range(len(self.ranks)):
                moved |= self._run(rank)

    def _run(self, rank: int) -> bool:
        """All that the rank can do now."""
        standing, moved = self.ranks[rank], False
        while self._launch(rank, standing) or self._progress(rank, standing):
            moved = True
        return moved

    def _launch(self, rank: int, standing: Standing) -> bool:
        at, nodes = standing.launched, standing.nodes
        standing.waits_on = -1
        if at >= self._stops.get(rank, len(nodes) + 1) or at == len(nodes):
            return False
        if at == standing.program.step and not all(standing.done[:at]):
            return False  # the loss is read
        if self._blocking:
            awaited = [
                one
                for one in nodes[at].needs
                if nodes[one].role in ("collective", "recv") and not standing.done[one]
            ]
            if awaited:
                standing.waits_on = awaited[-1]
                return False
        if at - sum(standing.done[:at]) >= self._ahead:
            return False
        standing.launched += 1
        return True

    def _progress(self, rank: int, standing: Standing) -> bool:
        moved = False
        for position in range(standing.launched):
            if standing.done[position]:
                continue
            node = standing.nodes[position]
            before = self._before[rank][position]
            able = (before < 0 or standing.done[before]) and all(standing.done[one] for one in node.needs)
            if not able:
                continue
            if not standing.started[position]:
                standing.started[position] = moved = True
            if self._ends(rank, position, node):
                standing.done[position] = moved = True
        return moved

    def _ends(self, rank: int, position: int, node: Node) -> bool:
        if node.exchange is None or node.role == "compute":
            return (rank, position) not in self._endless
        if node.role == "send":
            self._sent.add(node.exchange)
            return True
        if node.role == "recv":
            return node.exchange in self._sent
        arrived = self._arrived.setdefault(node.exchange, set())
        arrived.add(rank)
        members = self._topology.members(rank, node.dimension)
        if node.exchange in self._void or len(arrived) < len(members):
            return False
        # Who is gone takes no part in what it was in when it went: the last that it has launched.
        return not any(self._last_called(one) == node.exchange for one in self._gone.intersection(members))

    def _last_called(self, rank: int) -> Exchange | None:
        stop = self._stops[rank]
        node = self.ranks[rank].nodes[stop - 1] if stop else None
        return node.exchange if node is not None and node.role == "collective" else None


def _before_in_stream(nodes: Sequence[Node]) -> list[int]:
    """The node before each in its stream; -1: none."""
    last: dict[str, int] = {}
    found = []
    for position, node in enumerate(nodes):
        found.append(last.get(node.stream, -1))
        last[node.stream] = position
    return found


def names_of(node: Node) -> tuple[str, str]:
    """What the flight recorder and RAS call a collective; "" where RAS does not count it."""
    return next(names for end, names in KERNEL_OPERATIONS.items() if node.phase.endswith(end))


def divergent(node: Node) -> tuple[str, str]:
    """What a rank calls that calls something else: of this and of what it should call, NCCL counts one."""
    return ("broadcast", UNCOUNTED) if names_of(node)[1] else KERNEL_OPERATIONS["all-reduce"]


def launches(standing: Standing, steps: int, diverges: Collection[int]) -> Mapping[str, Mapping[str, int]]:
    """What NCCL has launched, by group and function, after so many whole steps before this one.

    Args:
        diverges: nodes in whose place the rank calls something else.
    """
    found: dict[str, dict[str, int]] = {}
    for group, positions in standing.collectives().items():
        counts = found.setdefault(group, {})
        for position in positions:
            node = standing.nodes[position]
            called = divergent(node)[1] if position in diverges else names_of(node)[1]
            before = steps if position < standing.program.step else 0
            for function, count in ((names_of(node)[1], before), (called, position < standing.launched)):
                if function:
                    counts[function] = counts.get(function, 0) + count
    return found
