"""Which rank sits where: parallel coordinates, process groups, hosts and racks of the simulated job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Dimension = Literal["dp", "tp", "pp"]

DIMENSIONS: tuple[Dimension, ...] = ("tp", "dp", "pp")
"""Fastest first, as Megatron numbers ranks: tensor-parallel mates are neighbours on one host."""
GROUP_DIMENSIONS = ("tp", "dp", "pp", "ep", "edp", "world")


@dataclass(frozen=True)
class Topology:
    """Sizes of the parallel dimensions; ranks are numbered 0 to `ranks` - 1. `ep` divides `dp`.

    `gpu_models` are dealt to hosts in turn; empty: all alike and not spoken of.
    """

    dp: int = 8
    tp: int = 1
    pp: int = 1
    ranks_per_host: int = 8
    ep: int = 1
    hosts_per_rack: int = 4
    gpu_models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "ep", "ranks_per_host", "hosts_per_rack"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; allowed: 1 or more")
        if self.dp % self.ep:
            raise ValueError(f"ep is {self.ep}; allowed: a divisor of dp ({self.dp})")

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def sizes(self) -> dict[str, int]:
        sizes = {"dp": self.dp, "tp": self.tp, "pp": self.pp}
        return {**sizes, "ep": self.ep} if self.ep > 1 else sizes

    def coordinates(self, rank: int) -> dict[str, int]:
        """Place of a rank along each dimension; ep where experts are spread."""
        place: dict[str, int] = {}
        rest = rank
        for dimension in DIMENSIONS:
            rest, place[dimension] = divmod(rest, self.sizes[dimension])
        if self.ep > 1:
            place["ep"] = place["dp"] % self.ep
        return place

    def rank_at(self, coordinates: dict[str, int]) -> int:
        """Inverse of `coordinates`."""
        rank = 0
        for dimension in reversed(DIMENSIONS):
            rank = rank * self.sizes[dimension] + coordinates[dimension]
        return rank

    def members(self, rank: int, dimension: str) -> tuple[int, ...]:
        """The process group of `rank` along `dimension`, in ascending order."""
        return self._groups[dimension][self.group(rank, dimension)]

    def group(self, rank: int, dimension: str) -> str:
        """Name of the rank's process group, as the exporter names it: dp, tp, pp, ep, edp or world."""
        at = self.coordinates(rank)
        if dimension == "world":
            return "world"
        if dimension in ("ep", "edp") and self.ep > 1:
            last = f"block{at['dp'] // self.ep}" if dimension == "ep" else f"ep{at['ep']}"
            return f"{dimension}:pp{at['pp']}.tp{at['tp']}.{last}"
        if dimension in ("ep", "edp"):
            dimension = "dp"
        shared = ".".join(f"{name}{at[name]}" for name in ("dp", "pp", "tp") if name != dimension)
        return f"{dimension}:{shared}"

    def group_members(self, group: str, dimension: str) -> tuple[int, ...]:
        """Ranks of a group by its name, ascending."""
        return self._groups[dimension][group]

    def groups(self, dimension: str) -> dict[str, tuple[int, ...]]:
        """All process groups along a dimension, by name."""
        return self._groups[dimension]

    def host(self, rank: int) -> str:
        return f"sim-host-{rank // self.ranks_per_host}"

    def host_index(self, rank: int) -> int:
        return rank // self.ranks_per_host

    def rack(self, rank: int) -> int:
        return self.host_index(rank) // self.hosts_per_rack

    def gpu_model(self, rank: int) -> str:
        return self.gpu_models[self.host_index(rank) % len(self.gpu_models)] if self.gpu_models else ""

    def role(self, rank: int) -> str:
        """Ranks that should run the same kernels equally fast; empty: the exporter's own rule is right."""
        if len(set(self.gpu_models)) < 2:
            return ""
        at = self.coordinates(rank)
        return f"pp{at['pp']}.tp{at['tp']}.{self.gpu_model(rank)}"

    @cached_property
    def _groups(self) -> dict[str, dict[str, tuple[int, ...]]]:
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for dimension in GROUP_DIMENSIONS:
            groups = found.setdefault(dimension, {})
            for rank in range(self.ranks):
                name = self.group(rank, dimension)
                groups[name] = (*groups.get(name, ()), rank)
        return found
