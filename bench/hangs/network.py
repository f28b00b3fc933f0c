"""What NCCL's network steps wait for in a step that does not end: the memory of libargus_nccl, by its layout.

A collective is a ring of its members, host after host; what passes between two hosts goes by a proxy at each
end, and within a host over NVLink, which has no steps. An all-to-all is a send and a receive of each pair.
The forms are those of NCCL's source (eight slots in flight, states 8 to 12 and 20): proxies post what their
host has launched, and a GPU takes part once it has started. Nothing here knows who is to blame.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from argus_core import nccl_page
from argus_simulator.topology import Topology
from bench.hangs.step import Exchange, HungStep, Standing, names_of

Lacks = Literal["data", "room"]
Wait = Literal["send_gpu_wait", "send_peer_wait", "send_wait", "receive_wait", "receive_gpu_wait"]

SLOTS: Final = 8
"""NCCL_STEPS: transfers in flight between two neighbours."""
_ROUNDS: Final = 8
"""Of a ring, each of one step a member: a choice, of a message larger than what fits between members."""
_PAIR: Final = 32
"""Steps of one pair of an all-to-all: more than there are slots, as of any large message."""
_FEW: Final = 4
"""Of a send in a pipeline, which ends once it is handed over (`bench.hangs.step`)."""


@dataclass(frozen=True)
class Lost:
    """What does not arrive: of data, at `to`; of word that `to` has room, at `rank`."""

    exchange: Exchange
    rank: int
    to: int
    lacks: Lacks


@dataclass
class Hop:
    """From one member to the next.

    Attributes:
        filled: steps that the GPU has given away; arrived: of these, at the other end; taken: by its GPU.
    """

    rank: int
    to: int
    network: bool
    lacks: Lacks | None
    steps: int
    filled: int = 0
    arrived: int = 0
    taken: int = 0

    def waits(self, posted: Mapping[int, bool], frozen: frozenset[int]) -> Iterator[tuple[int, int, Wait]]:
        """(rank, peer, state) of the oldest step at each end."""
        if not self.network:
            return
        if posted[self.rank] and self.arrived < self.steps:
            wire: Wait = "send_wait" if self.lacks == "data" else "send_peer_wait"
            yield self.rank, self.to, wire if self.filled > self.arrived else "send_gpu_wait"
        if posted[self.to] and self.taken < self.steps:
            seen = self.arrived > self.taken and self.to not in frozen
            yield self.to, self.rank, "receive_gpu_wait" if seen else "receive_wait"


def settle(hops: Sequence[Hop], posted: Mapping[int, bool], able: Mapping[int, bool], *, ring: bool) -> None:
    """Let everything move that can. `able`: whose GPU has started it; hops of a ring are in its order."""
    moved = True
    while moved:
        moved = False
        for at, hop in enumerate(hops):
            before = hops[at - 1] if ring else None
            fed = before is None or hop.filled == 0 or before.arrived >= hop.filled
            behind = hop.arrived if hop.network else hop.taken
            if able[hop.rank] and fed and hop.filled < hop.steps and hop.filled - behind < SLOTS:
                hop.filled += 1
                if before is not None:
                    before.taken = max(before.taken, hop.filled - 1)
                moved = True
            room = posted[hop.to] and hop.arrived - hop.taken < SLOTS
            if hop.filled > hop.arrived and room and hop.lacks is None:
                hop.arrived += 1
                moved = True
            last = not ring or hops[(at + 1) % len(hops)].filled == hop.steps
            if able[hop.to] and last and hop.taken < hop.arrived:
                hop.taken += 1
                moved = True


class Network:
    """What each rank's memory says of the step that does not end.

    Args:
        lost: what is lost between two members, of the collective of the case.
        frozen: ranks of which no thread runs any more.
        void: collectives that end for nobody, as not all have called them.
    """

    def __init__(
        self, step: HungStep, topology: Topology, lost: Lost | None, frozen: frozenset[int],
        void: frozenset[Exchange],
    ) -> None:  # fmt: skip
        self._topology, self._lost, self._frozen, self._void = topology, lost, frozen, void
        self._ranks = step.ranks
        self._open = [self._operations(standing) for standing in step.ranks]
        self.waits: dict[int, list[tuple[int, str, str, int, Wait]]] = {
            rank: [] for rank in range(len(step.ranks))
        }
        """Of a rank: position, group, function, peer, state."""
        for exchange in {exchange for one in self._open for exchange in one}:
            self._settle(exchange)
        for found in self.waits.values():
            found.sort()

    def _operations(self, standing: Standing) -> dict[Exchange, int]:
        return {
            node.exchange: position
            for position, node in enumerate(standing.nodes[: standing.launched])
            if node.exchange and node.role != "compute" and not standing.done[position]
        }

    def _settle(self, exchange: Exchange) -> None:
        holders = [rank for rank, one in enumerate(self._open) if exchange in one]
        node = self._ranks[holders[0]].nodes[self._open[holders[0]][exchange]]
        if node.role in ("send", "recv"):
            self._send(exchange, holders)
            return
        members = self._topology.members(holders[0], node.dimension)
        posted = {rank: exchange in self._open[rank] for rank in members}
        able = {rank: posted[rank] and self._able(rank, exchange) for rank in members}
        function = names_of(node)[1]
        if function:
            after = (*members[1:], members[0])
            steps = _ROUNDS * (len(members) - 1)
            hops = [self._hop(exchange, rank, to, steps) for rank, to in zip(members, after, strict=True)]
        else:
            hops = [self._hop(exchange, rank, to) for rank in members for to in members if to != rank]
        settle(hops, posted, able, ring=bool(function))
        self._note(exchange, hops, posted, function)

    def _send(self, exchange: Exchange, holders: Sequence[int]) -> None:
        """The sender has ended it, or not begun; who is to receive it is its neighbour in the pipeline."""
        roles = {
            node.role: rank
            for rank, standing in enumerate(self._ranks)
            for node in standing.nodes
            if node.exchange == exchange
        }
        sender, receiver = roles["send"], roles["recv"]
        hop = self._hop(exchange, sender, receiver, _FEW)
        posted = {rank: rank in holders for rank in (sender, receiver)}
        if not posted[sender] and self._sent(sender, exchange):
            hop.filled = hop.arrived = hop.steps
        able = {rank: posted[rank] and self._able(rank, exchange) for rank in (sender, receiver)}
        settle([hop], posted, able, ring=False)
        self._note(exchange, [hop], posted, "")

    def _sent(self, rank: int, exchange: Exchange) -> bool:
        standing = self._ranks[rank]
        return any(
            done and node.exchange == exchange
            for node, done in zip(standing.nodes, standing.done, strict=True)
        )

    def _able(self, rank: int, exchange: Exchange) -> bool:
        started = self._ranks[rank].started[self._open[rank][exchange]]
        return started and rank not in self._frozen and exchange not in self._void

    def _hop(self, exchange: Exchange, rank: int, to: int, steps: int = _PAIR) -> Hop:
        lost = self._lost
        here = lost is not None and (lost.exchange, lost.rank, lost.to) == (exchange, rank, to)
        apart = self._topology.host_index(rank) != self._topology.host_index(to)
        return Hop(rank, to, apart, lost.lacks if lost is not None and here else None, steps)

    def _note(
        self, exchange: Exchange, hops: Sequence[Hop], posted: Mapping[int, bool], function: str
    ) -> None:
        for hop in hops:
            for rank, peer, wait in hop.waits(posted, self._frozen):
                name = function or ("Send" if wait.startswith("send") else "Recv")
                self.waits[rank].append((self._open[rank][exchange], exchange[0], name, peer, wait))


class Memory:
    """The memory of one rank, which its exporter reads.

    Args:
        groups: members of the rank's process groups, by name.
    """

    def __init__(self, rank: int, groups: Mapping[str, Sequence[int]]) -> None:
        self._groups = dict(groups)
        self._slots = {name: slot for slot, name in enumerate(groups)}
        self.descriptor = nccl_page.make()
        fields: dict[str, int] = dict.fromkeys(nccl_page.HEADER_FIELDS, 0)
        fields |= {"magic": nccl_page.MAGIC, "version": nccl_page.VERSION, "state": 1, "table": 6}
        fields |= {"nccl_version": 23007, "mask": 0x816, "communicators": len(groups)}
        os.pwrite(self.descriptor, nccl_page.HEADER.pack(*fields.values()), 0)
        for name, members in groups.items():
            told: dict[str, int | bytes] = dict.fromkeys(nccl_page.COMMUNICATOR_FIELDS, 0)
            told |= {
                "hash": zlib.crc32(name.encode()) + 1,
                "rank": members.index(rank),
                "ranks": len(members),
            }
            told |= {"state": nccl_page.LIVE, "generation": 1, "name": b""}
            at = nccl_page.PAGE * (1 + self._slots[name])
            os.pwrite(self.descriptor, nccl_page.COMMUNICATOR.pack(*told.values()), at)

    def stands(self, waits: Sequence[tuple[int, str, str, int, Wait]], now_ns: int) -> None:
        """From now on. `waits`: in their order; what is behind another one to the same peer is not begun."""
        peers: dict[str, dict[int, list[tuple[str, int, Wait]]]] = {}
        for number, (position, group, function, peer, wait) in enumerate(waits):
            # Launched one after the other; sends and receives of one all-to-all are calls of their own.
            entered = now_ns + position * 1_000_000 + number * 1_000 * (function in ("Send", "Recv"))
            of = peers.setdefault(group, {}).setdefault(self._groups[group].index(peer), [])
            if all(wait.startswith("send") != other.startswith("send") for _, _, other in of):
                of.append((function, entered, wait))
        for group, found in peers.items():
            for at, (member, steps) in enumerate(sorted(found.items())[: nccl_page.PEERS - 1]):
                self._write(self._slots[group], at, member, steps, now_ns)

    def goes_on(self) -> None:
        for slot in self._slots.values():
            size = nccl_page.PEERS * nccl_page.PEER.size
            os.pwrite(self.descriptor, bytes(size), nccl_page.PAGE * (2 + slot) - size)

    def close(self) -> None:
        os.close(self.descriptor)

    def _write(
        self, slot: int, at: int, member: int, steps: Sequence[tuple[str, int, Wait]], now_ns: int
    ) -> None:
        states = len(nccl_page.STEP_STATES)
        oldest, functions, entered, moved = [0] * states, [0, 0], [0, 0], [0, 0]
        for function, when, wait in steps:
            way = not wait.startswith("send")
            oldest[nccl_page.STEP_STATES.index(wait)] = 1
            functions[way], entered[way], moved[way] = nccl_page.FUNCTIONS.index(function), when, now_ns
        none = [0] * states
        packed = nccl_page.PEER.pack(
            member + 1, now_ns, 0, 0, *none, *none, *oldest, *oldest, *functions, *entered, *moved
        )
        end = nccl_page.PAGE * (2 + slot)
        os.pwrite(self.descriptor, packed, end - (nccl_page.PEERS - at) * nccl_page.PEER.size)
