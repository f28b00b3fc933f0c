"""The order of a step over all ranks: levels that hold at most one node of each rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from argus_simulator.engine.plan import Deadlock, Level
from argus_simulator.engine.schedule import Node, RankSchedule
from argus_simulator.topology import Topology


class Levels:
    """Numbers the nodes of all ranks in an order in which each has what it waits for.

    Attributes:
        nodes: (rank, position in its schedule) by number; the first ones begin the step of each rank, at -1.
        node_at: numbers by rank and position.
        exchanges: numbers of the collectives.
        levels: the nodes of each.

    Raises:
        Deadlock: the schedules of the ranks do not fit together.
    """

    def __init__(self, topology: Topology, schedules: Sequence[RankSchedule]) -> None:
        self._topology, self._schedules = topology, schedules
        self.nodes = [(rank, -1) for rank in range(topology.ranks)]
        self.node_at: list[list[int]] = [[-1] * len(schedule.nodes) for schedule in schedules]
        self.exchanges: dict[tuple[str, str, int], int] = {}
        self.levels = [self._level(members) for members in self._sort()]

    def _sort(self) -> list[list[tuple[int, int]]]:
        """(rank, position) by level. Each round takes the next node of every rank that can go on."""
        at = [0] * self._topology.ranks
        sent: dict[tuple[str, str, int], int] = {}
        levels: list[list[tuple[int, int]]] = []
        while any(position < len(self._schedules[rank].nodes) for rank, position in enumerate(at)):
            arrived: dict[tuple[str, str, int], int] = {}
            for rank, position in enumerate(at):
                node = self._node(rank, position)
                if node is not None and node.role == "collective" and node.exchange:
                    arrived[node.exchange] = arrived.get(node.exchange, 0) + 1
            ready = []
            for rank, position in enumerate(at):
                node = self._node(rank, position)
                if node is None:
                    continue
                if node.role == "collective" and node.exchange:
                    complete = len(self._topology.members(rank, node.dimension))
                    if arrived[node.exchange] < complete:
                        continue
                if (
                    node.role == "recv"
                    and node.exchange
                    and sent.get(node.exchange, len(levels)) >= len(levels)
                ):
                    continue
                ready.append((rank, position))
            if not ready:
                stuck = next(rank for rank, position in enumerate(at) if self._node(rank, position))
                node = self._node(stuck, at[stuck])
                phase = node.phase if node else ""
                raise Deadlock(f"rank {stuck} waits for ever in {phase}: its peers never enter it")
            for rank, position in ready:
                node = self._node(rank, position)
                if node is not None and node.role == "send" and node.exchange:
                    sent[node.exchange] = len(levels)
                at[rank] += 1
            levels.append(ready)
        return levels

    def _node(self, rank: int, position: int) -> Node | None:
        nodes = self._schedules[rank].nodes
        return nodes[position] if position < len(nodes) else None

    def _level(self, members: list[tuple[int, int]]) -> Level:
        """Number the nodes of a level: computations and sends, receives, then collectives by exchange."""

        def key(member: tuple[int, int]) -> tuple[int, tuple[str, str, int], int]:
            node = self._schedules[member[0]].nodes[member[1]]
            role = {"recv": 1, "collective": 2}.get(node.role, 0)
            return role, node.exchange or ("", "", 0) if role == 2 else ("", "", 0), member[0]

        begin = len(self.nodes)
        ordered = sorted(members, key=key)
        roles = [key(member)[0] for member in ordered]
        sends: list[int] = []
        sizes: list[int] = []
        for (rank, position), role in zip(ordered, roles, strict=True):
            node = self._schedules[rank].nodes[position]
            self.node_at[rank][position] = len(self.nodes)
            self.nodes.append((rank, position))
            if role == 1 and node.exchange:
                sends.append(self._sender(rank, node))
            if role == 2 and node.exchange:
                if node.exchange in self.exchanges:
                    sizes[-1] += 1
                else:
                    self.exchanges[node.exchange] = len(self.exchanges)
                    sizes.append(1)
        receives = begin + roles.count(0)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1])) if sizes else np.zeros(0)
        return Level(
            begin, len(self.nodes), receives, receives + roles.count(1), np.array(sends, np.intp),
            starts.astype(np.intp), np.array(sizes, np.intp),
        )  # fmt: skip

    def _sender(self, rank: int, node: Node) -> int:
        assert node.exchange is not None
        first, second = (int(text) for text in node.exchange[0].split("-"))
        other = second if first == rank else first
        for position, candidate in enumerate(self._schedules[other].nodes):
            if candidate.role == "send" and candidate.exchange == node.exchange:
                return self.node_at[other][position]
        raise Deadlock(f"rank {rank} waits for ever in {node.phase}: rank {other} never sends")
