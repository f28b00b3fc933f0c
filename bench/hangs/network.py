"""What NCCL's network steps wait for in a step that does not end.

A collective is a ring of its members, host after host (`argus_simulator.engine.ring`). An all-to-all is a
send and a receive of each pair. Nothing here knows who is to blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from argus_simulator.engine.ring import FEW, PAIR, ROUNDS, Hop, Lacks, between_hosts, ring_of, settle
from argus_simulator.nccl_memory import Waiting
from argus_simulator.topology import Topology
from bench.hangs.step import Exchange, HungStep, Standing, names_of


@dataclass(frozen=True)
class Lost:
    """What does not arrive: of data, at `to`; of word that `to` has room, at `rank`."""

    exchange: Exchange
    rank: int
    to: int
    lacks: Lacks


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
        self.waits: dict[int, list[Waiting]] = {rank: [] for rank in range(len(step.ranks))}
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
            steps = ROUNDS * (len(members) - 1)
            hops = [self._hop(exchange, rank, to, steps) for rank, to in ring_of(members)]
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
        hop = self._hop(exchange, sender, receiver, FEW)
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

    def _hop(self, exchange: Exchange, rank: int, to: int, steps: int = PAIR) -> Hop:
        lost = self._lost
        here = lost is not None and (lost.exchange, lost.rank, lost.to) == (exchange, rank, to)
        apart = between_hosts(self._topology, rank, to)
        return Hop(rank, to, apart, lost.lacks if lost is not None and here else None, steps)

    def _note(
        self, exchange: Exchange, hops: Sequence[Hop], posted: Mapping[int, bool], function: str
    ) -> None:
        for hop in hops:
            for rank, peer, wait in hop.waits(posted, self._frozen):
                name = function or ("Send" if wait.startswith("send") else "Recv")
                self.waits[rank].append((self._open[rank][exchange], exchange[0], name, peer, wait))
