"""What is under way between two members of a collective that does not end, by the forms of NCCL's source.

Eight slots in flight between two neighbours, states 8 to 12 and 20 of NCCL's proxy: proxies post what their
host has launched, and a GPU takes part once it has started. What passes between two hosts goes by a proxy at
each end, and within a host over NVLink, which has no steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from argus_simulator.topology import Topology

Lacks = Literal["data", "room"]
Wait = Literal["send_gpu_wait", "send_peer_wait", "send_wait", "receive_wait", "receive_gpu_wait"]

SLOTS: Final = 8
"""NCCL_STEPS: transfers in flight between two neighbours."""
ROUNDS: Final = 8
"""Of a ring, each of one step a member: a choice, of a message larger than what fits between members."""
PAIR: Final = 32
"""Steps of one pair of an all-to-all: more than there are slots, as of any large message."""
FEW: Final = 4
"""Of a send in a pipeline."""


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


def ring_of(members: Sequence[int]) -> list[tuple[int, int]]:
    """From each member to the next, host after host."""
    return list(zip(members, (*members[1:], members[0]), strict=True))


def between_hosts(topology: Topology, rank: int, to: int) -> bool:
    return topology.host_index(rank) != topology.host_index(to)


def links_of(
    topology: Topology, members: Sequence[int], ranks: Sequence[int], *, inward: bool
) -> set[tuple[int, int]]:
    """Hops of a ring by which the hosts of these ranks send, or receive; none where it stays in a host."""
    hosts = {topology.host_index(rank) for rank in ranks}
    return {
        (rank, to)
        for rank, to in ring_of(members)
        if between_hosts(topology, rank, to) and topology.host_index(to if inward else rank) in hosts
    }
