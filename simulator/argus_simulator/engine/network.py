"""What libargus_nccl would have counted of a job: its operations, and what network steps waited for.

A collective is a ring of its members, host after host; an all-to-all is a pair of each two members, and a
transfer between stages one. Once all members have come, a hop is on the wire for most of the transfer. Where
one hop is slow the transfer lasts as long as that one's: the hop before it waits for room, others for data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from argus_core.nccl_page import STEP_STATES
from argus_simulator.engine.job import JobStep
from argus_simulator.engine.plan import Bools, Floats, Ints, Plan
from argus_simulator.engine.ring import FEW, PAIR, ROUNDS, Hop, between_hosts, ring_of, settle
from argus_simulator.nccl_memory import Memory, Waiting
from argus_simulator.topology import Topology

WIRE_SHARE: Final = 0.8
"""Of a healthy transfer, in which the oldest step of a hop is on the wire: made up."""
BYTES_A_UNIT: Final = 1 << 26
"""Of a message whose transfer takes a unit: made up."""
_FUNCTIONS: Final = ("AllReduce", "AllGather", "ReduceScatter")
"""NCCL's names, which are in those of its kernels; all else sends and receives."""
_SEND_GPU, _SEND_PEER, _SEND_WIRE, _RECEIVE_PEER, _, _RECEIVE_GPU = range(len(STEP_STATES))


@dataclass(frozen=True)
class _Transfer:
    """One communication of some ranks.

    Attributes:
        function: NCCL's name; empty: sends and receives.
        nodes: by rank; of a transfer between stages the sender's first.
        exchange: number of the collective; -1: a transfer between stages.
    """

    group: str
    function: str
    nodes: dict[int, int]
    exchange: int
    bytes: int

    @property
    def steps(self) -> int:
        """Of each hop."""
        return ROUNDS * (len(self.nodes) - 1) if self.function else PAIR if self.exchange >= 0 else FEW

    def hops(self) -> list[tuple[int, int]]:
        """From whom to whom, those of a ring in its order."""
        ranks = tuple(self.nodes)
        if self.function:
            return ring_of(ranks)
        if self.exchange < 0:
            return [(ranks[0], ranks[1])]
        return [(rank, to) for rank in ranks for to in ranks if to != rank]

    def name(self, sends: bool) -> str:
        return self.function or ("Send" if sends else "Recv")


@dataclass(frozen=True)
class _Table:
    """What is the same in every step of a plan. H hops between hosts, T transfers.

    Attributes:
        keys: (group, rank, to) of each hop.
        transfer: whose hop it is, shape (H,).
        send, receive: nodes at both ends, shape (H,).
        near, far: rows of `Traffic` for both ends, shape (H,).
        ahead: the hop between hosts that comes next in its ring; itself where it is of none, shape (H,).
        steps, bytes: that pass it, shape (H,).
        together: transfers that are collectives, shape (T,).
        member, of: nodes of the transfers, and whose they are.
        calls: by (rank, group, function) number, bytes of all and the last node.
    """

    transfers: list[_Transfer]
    keys: list[tuple[str, int, int]]
    transfer: Ints
    send: Ints
    receive: Ints
    near: Ints
    far: Ints
    ahead: Ints
    steps: Ints
    bytes: Ints
    together: Bools
    member: Ints
    of: Ints
    calls: dict[tuple[int, str, str], tuple[int, int, int]]


@dataclass
class _Calls:
    count: int = 0
    bytes: int = 0
    entered_s: float = 0.0
    ended_s: float = 0.0


@dataclass
class Traffic:
    """Counts of a job from its first step on."""

    topology: Topology
    _rows: dict[tuple[int, str, int], int] = field(default_factory=dict)
    """(rank, group, peer)."""
    _tables: dict[Plan, _Table] = field(default_factory=dict)
    _calls: dict[tuple[int, str, str], _Calls] = field(default_factory=dict)
    _ns: Floats = field(default_factory=lambda: np.zeros((0, len(STEP_STATES))))
    _passed: Ints = field(default_factory=lambda: np.zeros((0, 4), np.intp))
    """Steps sent and received, bytes sent and received."""

    def groups(self, plan: Plan, rank: int) -> dict[str, tuple[int, ...]]:
        """Members of the groups in which a rank communicates, by name."""
        named = [group for of, group, _ in self._table(plan).calls if of == rank]
        return {group: self.topology.members(rank, group.partition(":")[0]) for group in named}

    def add(self, done: JobStep) -> None:
        """Count a step that has ended."""
        table, times = self._table(done.plan), done.times
        sender, receiver = times.arrival[table.send], times.arrival[table.receive]
        begun, together = np.full(len(table.transfers), -np.inf), table.together[table.transfer]
        np.maximum.at(begun, table.of, times.arrival[table.member])
        start = np.where(together, begun[table.transfer], sender)
        lasts = times.end[np.where(together, table.receive, table.send)] - start
        own = np.array([done.slow.get(key, 1.0) for key in table.keys])
        slowest = np.ones(len(table.transfers))
        np.maximum.at(slowest, table.transfer, own)
        wire = WIRE_SHARE * lasts * own / slowest[table.transfer]
        late = np.where(together, np.maximum(receiver - sender, 0.0), 0.0)
        full = (own[table.ahead] > own) & (own[table.ahead] == slowest[table.transfer])
        for_room = np.where(full, lasts - wire, 0.0)
        for_data = lasts - wire - for_room
        for rows, state, seconds in (
            (table.near, _SEND_GPU, start - sender - late + for_data),
            (table.near, _SEND_PEER, late + for_room),
            (table.near, _SEND_WIRE, wire),
            (table.far, _RECEIVE_PEER, start - np.maximum(receiver, sender) + wire + for_data),
            (table.far, _RECEIVE_GPU, late + for_room),
        ):
            np.add.at(self._ns[:, state], rows, np.maximum(seconds, 0.0) * 1e9)
        for way, rows in enumerate((table.near, table.far)):
            np.add.at(self._passed[:, way], rows, table.steps)
            np.add.at(self._passed[:, 2 + way], rows, table.bytes)
        for key, (count, bytes_, last) in table.calls.items():
            calls = self._calls.setdefault(key, _Calls())
            calls.count, calls.bytes = calls.count + count, calls.bytes + bytes_
            calls.entered_s = float(times.host[last])
            calls.ended_s = float(times.end[last])

    def write(self, rank: int, memory: Memory, on_monotonic: Callable[[float], int]) -> None:
        """What was counted of a rank. `on_monotonic`: ns by that clock of seconds of the job."""
        last: dict[str, float] = {}
        over_network = {group for of, group, _ in self._rows if of == rank}
        for (of, group, function), calls in self._calls.items():
            if of != rank:
                continue
            last[group] = max(last.get(group, 0.0), calls.ended_s)
            words = dict.fromkeys(("called", "count", "sequence"), calls.count) | {"bytes": calls.bytes}
            words["entered_ns"] = on_monotonic(calls.entered_s)
            if group in over_network:
                words |= {"finished": calls.count, "finished_ns": on_monotonic(calls.ended_s)}
            memory.counts(group, function, words)
        for (of, group, peer), row in self._rows.items():
            if of == rank and group in last:
                sent, received, *bytes_ = self._passed[row].tolist()
                ns = self._ns[row].astype(np.int64).tolist()
                steps = [sent] * 3 + [received, 0, received]
                memory.waited(group, peer, ns, steps, tuple(bytes_), on_monotonic(last[group]))

    def waits(self, done: JobStep) -> dict[int, list[Waiting]]:
        """By rank: what its oldest steps wait for in a step that does not end, when all has moved."""
        plan, times = done.plan, done.times
        found: dict[int, list[Waiting]] = {rank: [] for rank in range(self.topology.ranks)}
        for one in self._table(plan).transfers:
            nodes = one.nodes
            ended = {rank: bool(np.isfinite(times.end[node])) for rank, node in nodes.items()}
            posted = {
                rank: bool(np.isfinite(times.host_end[node])) and not ended[rank]
                for rank, node in nodes.items()
            }
            if not any(posted.values()):
                continue
            able = {rank: posted[rank] and bool(np.isfinite(times.arrival[nodes[rank]])) for rank in nodes}
            lost = done.lost.get(one.exchange)
            hops = [
                Hop(*ends, between_hosts(self.topology, *ends), "data" if lost == ends else None, one.steps)
                for ends in one.hops()
            ]
            for hop in hops if one.exchange < 0 else ():
                hop.filled = hop.arrived = hop.steps * ended[hop.rank]
            settle(hops, posted, able, ring=bool(one.function))
            for hop in hops:
                for rank, peer, wait in hop.waits(posted, frozenset()):
                    name = one.name(wait.startswith("send"))
                    found[rank].append((int(plan.position[nodes[rank]]), one.group, name, peer, wait))
        return {rank: sorted(waits) for rank, waits in found.items()}

    # -- tables ------------------------------------------------------------------

    def _table(self, plan: Plan) -> _Table:
        known = self._tables.get(plan)
        if known is None:
            known = self._tables[plan] = self._compile(plan)
            more = len(self._rows) - len(self._ns)
            self._ns = np.pad(self._ns, ((0, more), (0, 0)))
            self._passed = np.pad(self._passed, ((0, more), (0, 0)))
        return known

    def _compile(self, plan: Plan) -> _Table:
        transfers = list(self._transfers(plan))
        keys: list[tuple[str, int, int]] = []
        columns: list[tuple[int, ...]] = []
        ahead: list[int] = []
        calls: dict[tuple[int, str, str], tuple[int, int, int]] = {}
        for number, one in enumerate(transfers):
            hops = [ends for ends in one.hops() if between_hosts(self.topology, *ends)]
            first = len(keys)
            for at, (rank, to) in enumerate(hops):
                keys.append((one.group, rank, to))
                ahead.append(first + ((at + 1) % len(hops) if one.function else at))
                ends = one.nodes[rank], one.nodes[to]
                rows = self._row(rank, one.group, to), self._row(to, one.group, rank)
                columns.append((number, *ends, *rows, one.steps, one.bytes))
            for rank, node in one.nodes.items():
                sends = rank == next(iter(one.nodes))
                for name in {one.name(True), one.name(False)} if one.exchange >= 0 else {one.name(sends)}:
                    count, bytes_, last = calls.get((rank, one.group, name), (0, 0, node))
                    last = max(last, node, key=lambda each: int(plan.position[each]))
                    calls[rank, one.group, name] = count + 1, bytes_ + one.bytes, last
        of = [(number, node) for number, one in enumerate(transfers) for node in one.nodes.values()]
        transfer, send, receive, near, far, steps, bytes_of = np.array(columns, np.intp).reshape(-1, 7).T
        return _Table(
            transfers, keys, transfer, send, receive, near, far, np.array(ahead, np.intp), steps, bytes_of,
            np.array([one.exchange >= 0 for one in transfers]), np.array([node for _, node in of]),
            np.array([number for number, _ in of]), calls,
        )  # fmt: skip

    def _transfers(self, plan: Plan) -> Iterator[_Transfer]:
        kernels = dict(zip(plan.comm.tolist(), plan.comm_name.tolist(), strict=True))
        members: dict[int, dict[int, int]] = {}
        for node in plan.comm.tolist():
            if plan.exchange[node] >= 0:
                members.setdefault(int(plan.exchange[node]), {})[int(plan.rank[node])] = node
        for exchange, nodes in members.items():
            node = next(iter(nodes.values()))
            name = plan.names[kernels[node]]
            function = next((one for one in _FUNCTIONS if one in name), "")
            group = plan.groups[plan.group_of_exchange[exchange]][0]
            ordered = {rank: nodes[rank] for rank in sorted(nodes)}
            yield _Transfer(group, function, ordered, exchange, round(plan.body[node] * BYTES_A_UNIT))
        for level in plan.levels:
            for receive, send in zip(
                range(level.receives, level.collectives), level.sends.tolist(), strict=True
            ):
                rank, to = int(plan.rank[send]), int(plan.rank[receive])
                group = self.topology.group(rank, "pp")
                yield _Transfer(
                    group, "", {rank: send, to: receive}, -1, round(plan.body[send] * BYTES_A_UNIT)
                )

    def _row(self, rank: int, group: str, peer: int) -> int:
        return self._rows.setdefault((rank, group, peer), len(self._rows))
