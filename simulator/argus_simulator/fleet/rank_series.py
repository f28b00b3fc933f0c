"""Series of all ranks of a fleet, each from those of the rank that was played for it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core import catalogue
from argus_simulator.fast_play.history import Series
from argus_simulator.fast_play.storage import Floats, Ints
from argus_simulator.fleet.cell import Cell
from argus_simulator.fleet.series_blocks import Block, Row
from argus_simulator.producers import gpu_uuid
from argus_simulator.topology import Topology

_FAMILIES: Final = {name: family for family in catalogue.CATALOGUE for name in family.sample_names}
_APART: Final = frozenset(
    ("__name__", "job", "instance", "training_job", "rank", "dp", "tp", "pp", "ep", "node", "gpu_uuid")
)
"""Labels that each rank has its own of."""
_NUMBERS: Final = {one.name for one in (catalogue.RANK_NUMBER, catalogue.RANK_LEAD, catalogue.RANK_OVERDUE)}
_REPLICA: Final = re.compile(r"(?<=[:.])(dp|block)\d+")
"""What of a group's name says which replica it belongs to; one without goes through all of them."""


@dataclass
class Sampled:
    """Times at which a fleet is seen, in ms; `now` is the number of the present one."""

    first_ms: int
    every_ms: int
    count: int
    now: int = 0

    def look_at(self, at: float) -> None:
        self.now = round((at * 1000 - self.first_ms) / self.every_ms)

    @property
    def seconds(self) -> float:
        """Since the first."""
        return self.now * self.every_ms / 1000

    def table(self, times_ms: Ints, values: Floats) -> Floats:
        """Values by number of the time; NaN where there are none."""
        found = np.full(self.count, np.nan)
        place = (times_ms - self.first_ms) // self.every_ms
        inside = (place >= 0) & (place < self.count)
        found[place[inside]] = values[inside]
        return found


@dataclass(frozen=True, order=True)
class _Kind:
    """Series that ranks have one each of: labels that they share, and what kind of group each names."""

    name: str
    shared: tuple[tuple[str, str], ...]
    group: str
    tells_place: bool

    @property
    def quantile(self) -> str:
        return dict(self.shared).get("quantile", "")


@dataclass(frozen=True)
class _Played:
    group: str
    values: Floats


class RankSeries:
    """Blocks of those series of a history that have a rank.

    Args:
        base: labels of each rank's target, and its number.
        host_prefix: of the names of nodes.
    """

    def __init__(
        self, series: Series, cell: Cell, topology: Topology, base: Sequence[dict[str, str]],
        host_prefix: str, sampled: Sampled,
    ) -> None:  # fmt: skip
        self._cell, self._topology, self._base = cell, topology, base
        self._prefix, self._sampled = host_prefix, sampled
        self._places = [topology.coordinates(rank) for rank in range(topology.ranks)]
        self._played: dict[_Kind, dict[int, _Played]] = {}
        for labels, (times, values) in series.items():
            own = dict(labels)
            if "rank" in own:
                group = own.pop("group", "")
                shared = tuple((key, own[key]) for key in own if key not in _APART)
                kind = _Kind(own["__name__"], shared, re.sub(r"\d+", "", group), "node" in own)
                of_kind = self._played.setdefault(kind, {})
                of_kind[int(own["rank"])] = _Played(group, sampled.table(times, values))

    def blocks(self) -> Iterator[Block]:
        together: dict[tuple[str, str, tuple[int, ...]], list[_Kind]] = {}
        for kind in sorted(self._played):
            played = tuple(sorted(self._played[kind]))
            together.setdefault((kind.name, kind.quantile, played), []).append(kind)
        for (name, _, played), kinds in together.items():
            ranks = np.flatnonzero(np.isin(self._cell.played_as, played))
            family, base = _FAMILIES[name], [self._base[rank] for rank in ranks.tolist()]
            rows = [Row(dict(kind.shared), self._labels(kind, ranks)) for kind in kinds]
            yield Block(name, family.name, family.type, base, rows, self._values(kinds, played, ranks))

    def _values(self, kinds: Sequence[_Kind], played: Sequence[int], ranks: Ints) -> Callable[[], Floats]:
        """What is said now. Numbers of ranks and sizes of groups are the fleet's."""
        columns = np.searchsorted(played, self._cell.played_as[ranks])
        table = np.array([[self._played[kind][rank].values for rank in played] for kind in kinds])
        if kinds[0].name in _NUMBERS:
            return lambda: np.where(np.isnan(table[:, columns, self._sampled.now]), np.nan, ranks)
        if kinds[0].name == catalogue.GROUP_EXPECTED_RANKS.name:
            replicas = self._topology.dp / self._cell.topology.dp
            whole = [_REPLICA.search(self._played[kind][played[0]].group) is None for kind in kinds]
            table *= np.where(whole, replicas, 1.0)[:, None, None]
        return lambda: table[:, columns, self._sampled.now]

    def _labels(self, kind: _Kind, ranks: Ints) -> dict[str, Sequence[str]]:
        found: dict[str, Sequence[str]] = {}
        if not (kind.group or kind.tells_place):
            return found
        at = [self._places[rank] for rank in ranks.tolist()]
        if kind.group:
            played, names = self._played[kind], self._cell.played_as[ranks].tolist()
            found["group"] = [
                self._renamed(played[rank].group, place["dp"]) for rank, place in zip(names, at, strict=True)
            ]
        if kind.tells_place:
            family = _FAMILIES[kind.name]
            known = {*family.labels, *family.optional_labels}
            found |= {name: [str(one[name]) for one in at] for name in at[0] if name in known}
            found["node"] = [f"{self._prefix}-{self._topology.host_index(rank)}" for rank in ranks.tolist()]
            found["gpu_uuid"] = [gpu_uuid(rank) for rank in ranks.tolist()]
        return found

    @functools.cache  # noqa: B019 (as long as the fleet)
    def _renamed(self, group: str, dp: int) -> str:
        own = {"dp": f"dp{dp}", "block": f"block{dp // self._topology.ep}"}
        return _REPLICA.sub(lambda match: own[match[1]], group)
