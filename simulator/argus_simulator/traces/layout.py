"""The topology of a job whose timelines are simulated, with four ranks a host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from argus_simulator.topology import Topology


@dataclass(frozen=True)
class Layout:
    """Megatron's order of ranks (tp fastest, then dp, then pp); `ep` divides `dp`."""

    dp: int = 8
    tp: int = 1
    pp: int = 1
    ep: int = 1
    ranks_per_host: int = 4

    def __post_init__(self) -> None:
        _ = self.topology

    @cached_property
    def topology(self) -> Topology:
        return Topology(self.dp, self.tp, self.pp, self.ranks_per_host, self.ep)

    @property
    def ranks(self) -> int:
        return self.topology.ranks

    def place(self, rank: int) -> dict[str, int]:
        """Coordinates of a rank; ep where experts are spread."""
        return self.topology.coordinates(rank)

    def host(self, rank: int) -> str:
        return self.topology.host(rank)

    def role(self, rank: int) -> str:
        at = self.place(rank)
        return f"pp{at['pp']}.tp{at['tp']}"

    def group(self, rank: int, dimension: str) -> str:
        """Name of the rank's process group along `dimension`: dp, tp, pp, ep, edp or world."""
        return self.topology.group(rank, dimension)

    def members(self, group: str, dimension: str) -> tuple[int, ...]:
        """Ranks of a group, ascending."""
        return self.topology.group_members(group, dimension)
