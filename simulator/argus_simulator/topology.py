"""Which rank sits where: parallel coordinates, process groups and hosts of the simulated job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dimension = Literal["dp", "tp", "pp"]

DIMENSIONS: tuple[Dimension, ...] = ("tp", "dp", "pp")
"""Fastest first, as Megatron numbers ranks: tensor-parallel mates are neighbours on one host."""


@dataclass(frozen=True)
class Topology:
    """Sizes of the parallel dimensions; ranks are numbered 0 to `ranks` - 1."""

    dp: int = 8
    tp: int = 1
    pp: int = 1
    ranks_per_host: int = 8

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def sizes(self) -> dict[str, int]:
        return {"dp": self.dp, "tp": self.tp, "pp": self.pp}

    def coordinates(self, rank: int) -> dict[str, int]:
        """Place of a rank along each dimension."""
        place: dict[str, int] = {}
        rest = rank
        for dimension in DIMENSIONS:
            rest, place[dimension] = divmod(rest, self.sizes[dimension])
        return place

    def rank_at(self, coordinates: dict[str, int]) -> int:
        """Inverse of `coordinates`."""
        rank = 0
        for dimension in reversed(DIMENSIONS):
            rank = rank * self.sizes[dimension] + coordinates[dimension]
        return rank

    def members(self, rank: int, dimension: Dimension) -> tuple[int, ...]:
        """The process group of `rank` along `dimension`, in ascending order."""
        place = self.coordinates(rank)
        return tuple(self.rank_at({**place, dimension: index}) for index in range(self.sizes[dimension]))

    def host(self, rank: int) -> str:
        return f"sim-host-{rank // self.ranks_per_host}"
