"""Who is accused of what: accusations put together by the ranks that they are about. No I/O.

One fault speaks in many series: by several causes, in kernels, by rank and by group. A person wants to read
once who it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from argus_l3_worker.roles import ANY_ROLE, coordinates_of, natural, stage_of

_PART: Final = re.compile(r"([a-z]+)(\d+)")

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Accusation:
    """One cause that rules or worker blame on a rank, a set of which one is meant, a group, or the job.

    Attributes:
        level: L1 or L2 of the rules, L3 of the worker.
        series: the selector of what accuses, for as long as it does.
        ranks: whom it is about, as far as known; none for the job.
        lost: share of the job's time that it costs, or did when it was last there; NaN: unknown.
        gpu_seconds: what it has cost over the time; 0 where unknown.
        typical, last: when it cost the median, and when it was last there; Unix time.
        active: whether it holds at the end.
    """

    rank: str
    set: str
    group: str
    cause: str
    team: str
    level: str
    series: str
    ranks: tuple[str, ...]
    lost: float
    gpu_seconds: float
    typical: float
    last: float
    active: bool


@dataclass(frozen=True)
class Subject:
    """A rank, a group of ranks, or the job (no ranks), and what speaks against it.

    Attributes:
        name: `rank 3`, `one rank of tp:dp0.pp1`, `group tp:dp0.pp1`, `node host2 of pp0`, `the job`.
        accusations: what holds first, then what rules say, then the costliest.
    """

    name: str
    ranks: tuple[str, ...]
    accusations: tuple[Accusation, ...]

    @property
    def active(self) -> bool:
        return any(one.active for one in self.accusations)

    @property
    def last(self) -> float:
        """When it was last accused, Unix time."""
        return max(one.last for one in self.accusations)

    @property
    def lost(self) -> float:
        """Share of the job's time that its causes cost together now; 0: nothing, or unknown."""
        return sum(one.lost for one in self.accusations if one.active and math.isfinite(one.lost))

    @property
    def gpu_seconds(self) -> float:
        """What they have cost so far; 0 where unknown."""
        return sum(one.gpu_seconds for one in self.accusations)


def subjects(accusations: Iterable[Accusation]) -> tuple[Subject, ...]:
    """All that is accused: what still holds first, then by what it costs now, then by what it has cost."""
    found: dict[tuple[str, ...], list[Accusation]] = {}
    for one in accusations:
        # Of a set one rank is meant, of a group of the same ranks all.
        found.setdefault(("one of", one.set) if one.set else one.ranks or ("", one.group), []).append(one)
    made = []
    for against in found.values():
        against.sort(key=lambda one: (not one.active, math.isnan(one.lost), -one.gpu_seconds, one.cause))
        made.append(Subject(_name(against[0]), against[0].ranks, tuple(against)))
    return tuple(sorted(made, key=lambda one: (not one.active, -one.lost, -one.gpu_seconds, one.name)))


def _name(one: Accusation) -> str:
    if one.rank:
        return f"rank {one.rank}"
    if one.set:
        return f"one rank of {one.set}"
    if one.level == "L3":  # by the coordinate that its ranks share
        return one.group
    return f"group {one.group}" if one.group else "the job"


def hosts_of(ranks: Iterable[str], info: Mapping[str, Labels]) -> tuple[str, ...]:
    """Where ranks are, as far as known."""
    return tuple(sorted({info.get(rank, {}).get("node", "") for rank in ranks} - {""}, key=natural))


def members_of_group(group: str, info: Mapping[str, Labels]) -> tuple[str, ...]:
    """Ranks of a process group by its name, such as `dp:pp0.tp1` or `ep:pp0.tp0.block2`; none where unknown.

    Args:
        info: `argus_rank_info` by rank.
    """
    dimension, colon, shared = group.partition(":")
    parts = [_PART.fullmatch(part) for part in shared.split(".")] if colon else []
    if not dimension or not parts or None in parts:
        return ()
    names = {"block": "edp"}
    return _ranks_at({names.get(part[1], part[1]): part[2] for part in parts if part is not None}, info)


def members_at(role: str, coordinate: str, value: str, info: Mapping[str, Labels]) -> tuple[str, ...]:
    """Ranks of a role, or of a stage such as `pp0`, at a value of a coordinate; none where unknown."""
    role_of = {rank: of.get("role") or ANY_ROLE for rank, of in info.items()}
    at = _ranks_at({coordinate: value}, info) if value else ()
    return tuple(rank for rank in at if role in (role_of[rank], stage_of(role_of[rank])))


def _ranks_at(wanted: Mapping[str, str], info: Mapping[str, Labels]) -> tuple[str, ...]:
    """Those with these values of coordinates."""
    known = coordinates_of(list(info.values()), list(wanted))
    if known.keys() != wanted.keys():
        return ()
    values = zip(*(known[name] for name in wanted), strict=True)
    found = (rank for rank, of in zip(info, values, strict=True) if of == tuple(wanted.values()))
    return tuple(sorted(found, key=natural))


def listed(names: Sequence[str], most: int = 8) -> str:
    """`1, 2, 3 and 5 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
