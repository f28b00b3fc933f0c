"""All ranks of a fleet as arrays: coordinates, hosts, and the groups that an exporter compares them in.

Ranks are numbered as the lab numbers them: tensor-parallel mates are neighbours, then data-parallel
replicas, then pipeline stages; experts lie inside data parallelism, in consecutive blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Dimension = Literal["dp", "tp", "pp", "ep"]

RANKS_LIMIT: Final = 200_000
"""Ten times the largest jobs known; each rank costs some 10 kB here and some 250 series where they go."""


@dataclass(frozen=True)
class Layout:
    """Sizes of the parallel dimensions. `ep` divides `dp`; 1 where there are no experts."""

    dp: int
    tp: int = 1
    pp: int = 1
    ep: int = 1
    ranks_per_host: int = 8
    host_prefix: str = "sim-host"

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "ep", "ranks_per_host"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 1 or more")
        if self.dp % self.ep:
            raise ValueError(f"ep is {self.ep}; allowed: a divisor of dp ({self.dp})")
        if self.ranks > RANKS_LIMIT:
            raise ValueError(
                f"dp {self.dp} x tp {self.tp} x pp {self.pp} are {self.ranks} ranks; allowed: {RANKS_LIMIT}"
            )

    @classmethod
    def of_ranks(cls, ranks: int, *, tp: int, pp: int, ep: int, ranks_per_host: int) -> Layout:
        """The layout of `ranks` ranks: what tp and pp leave is data parallel."""
        if ranks < 1 or tp < 1 or pp < 1 or ranks % (tp * pp):
            raise ValueError(
                f"{ranks} ranks do not divide into tp {tp} x pp {pp}; allowed: multiples of {max(1, tp * pp)}"
            )
        return cls(ranks // (tp * pp), tp, pp, ep, ranks_per_host)

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def hosts(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    @cached_property
    def coordinates(self) -> dict[str, Ints]:
        """Index of every rank along each dimension, shape (ranks,). `ep` only where there are experts."""
        rank = np.arange(self.ranks)
        found = {
            "dp": rank // self.tp % self.dp,
            "tp": rank % self.tp,
            "pp": rank // (self.tp * self.dp),
        }
        if self.ep > 1:
            found["ep"] = found["dp"] % self.ep
        return found

    @cached_property
    def host(self) -> Ints:
        """Number of every rank's host, shape (ranks,)."""
        return np.arange(self.ranks) // self.ranks_per_host

    def host_name(self, host: int) -> str:
        return f"{self.host_prefix}-{host}"

    def size(self, dimension: Dimension) -> int:
        return int(getattr(self, dimension))

    @cached_property
    def roles(self) -> list[str]:
        at = self.coordinates
        return [f"pp{pp}.tp{tp}" for pp, tp in zip(at["pp"].tolist(), at["tp"].tolist(), strict=True)]

    def groups(self, dimension: Dimension) -> list[str]:
        """Name of every rank's group along a dimension, in the exporter's words."""
        return list(map(self._namer(dimension), range(self.ranks)))

    def _namer(self, dimension: Dimension) -> Callable[[int], str]:
        at = {name: values.tolist() for name, values in self.coordinates.items()}
        shared = [name for name in ("dp", "pp", "tp") if name != dimension]
        if dimension == "ep":
            shared.remove("dp")

        def name(rank: int) -> str:
            parts = [f"{name}{at[name][rank]}" for name in shared]
            if dimension == "ep":
                parts.append(f"block{at['dp'][rank] // self.ep}")
            return f"{dimension}:{'.'.join(parts)}"

        return name

    def last_of_group(self, values: Floats, dimension: Dimension) -> Floats:
        """Largest value in every rank's group along a dimension, at each of its ranks; shape (ranks,)."""
        shape: tuple[int, ...] = (self.pp, self.dp, self.tp)
        axis = {"pp": 0, "dp": 1, "tp": 2}.get(dimension, 2)
        if dimension == "ep":
            shape = (self.pp, self.dp // self.ep, self.ep, self.tp)
        table = values.reshape(shape)
        spread: Floats = np.broadcast_to(table.max(axis=axis, keepdims=True), shape).reshape(-1)
        return spread
