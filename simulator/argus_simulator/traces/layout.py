"""Ranks, coordinates and process groups of a simulated job, named as the exporter names them."""

from __future__ import annotations

from dataclasses import dataclass

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
        if self.dp % self.ep:
            raise ValueError(f"ep is {self.ep}; allowed: a divisor of dp ({self.dp})")

    @property
    def topology(self) -> Topology:
        return Topology(self.dp, self.tp, self.pp, self.ranks_per_host)

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    def place(self, rank: int) -> dict[str, int]:
        """Coordinates of a rank; ep where experts are spread."""
        at = self.topology.coordinates(rank)
        place = {"dp": at["dp"], "tp": at["tp"], "pp": at["pp"]}
        if self.ep > 1:
            place["ep"] = at["dp"] % self.ep
        return place

    def host(self, rank: int) -> str:
        return self.topology.host(rank)

    def role(self, rank: int) -> str:
        at = self.place(rank)
        return f"pp{at['pp']}.tp{at['tp']}"

    def group(self, rank: int, dimension: str) -> str:
        """Name of the rank's process group along `dimension`: dp, tp, pp, ep, edp or world."""
        at = self.place(rank)
        if dimension == "world":
            return "world"
        if dimension == "ep":
            return f"ep:pp{at['pp']}.tp{at['tp']}.block{at['dp'] // self.ep}"
        if dimension == "edp":
            return f"edp:pp{at['pp']}.tp{at['tp']}.ep{at['dp'] % self.ep}"
        shared = ".".join(f"{name}{at[name]}" for name in ("dp", "pp", "tp") if name != dimension)
        return f"{dimension}:{shared}"

    def members(self, group: str, dimension: str) -> tuple[int, ...]:
        """Ranks of a group, ascending."""
        return tuple(rank for rank in range(self.ranks) if self.group(rank, dimension) == group)

    def neighbour(self, rank: int, stages: int) -> int:
        """The rank `stages` pipeline stages further on."""
        at = self.topology.coordinates(rank)
        return self.topology.rank_at({**at, "pp": at["pp"] + stages})


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """The 1F1B order of one stage: ("forward" | "backward", microbatch)."""
    warmup = min(stages - 1 - stage, microbatches)
    order = [("forward", index) for index in range(warmup)]
    for index in range(microbatches - warmup):
        order += [("forward", warmup + index), ("backward", index)]
    return order + [("backward", index) for index in range(microbatches - warmup, microbatches)]
