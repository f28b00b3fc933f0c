"""Who is accused of what: verdicts and group shifts put together by the ranks that they are about. No I/O.

One fault speaks in many series: in each phase that it slows, in kernels, by rank and by group. A person wants
to read once who it is, and below it what speaks against them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from argus_core.causes import WORDS
from argus_l3_worker.reports.findings import GroupFinding, Suspect
from argus_l3_worker.roles import ANY_ROLE, natural, stage_of

_PART: Final = re.compile(r"([a-z]+)(\d+)")

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Subject:
    """A rank, a group of ranks, or the job (no ranks), and what speaks against it.

    Attributes:
        name: `rank 3`, `one of tp:dp0.pp1`, `group tp:dp0.pp1`, `node host2 of pp0`, `the job`.
        hosts: of its ranks.
        verdicts, shifts: the costliest first.
    """

    name: str
    ranks: tuple[str, ...]
    hosts: tuple[str, ...]
    verdicts: tuple[Suspect, ...]
    shifts: tuple[GroupFinding, ...]

    @property
    def active(self) -> bool:
        """Whether something of it holds at the end."""
        return any(one.active for one in self.verdicts) or any(one.active for one in self.shifts)

    @property
    def lost(self) -> float:
        """Share of the job's time that its causes cost together now, or the costliest cost; 0: unknown."""
        return min(1.0, sum(one.lost for one in self._counted))

    @property
    def gpus(self) -> float:
        """The same in GPUs."""
        return sum(one.gpus for one in self._counted)

    @property
    def gpu_seconds(self) -> float:
        """What they have cost so far; 0 where unknown."""
        return sum(one.gpu_seconds for one in self.verdicts)

    @property
    def _counted(self) -> Sequence[Suspect]:
        """Causes that cost at the same time: those that hold; else the costliest of them."""
        known = [one for one in self.verdicts if math.isfinite(one.lost)]
        return [one for one in known if one.active] or sorted(known, key=lambda one: -one.lost)[:1]

    @property
    def causes(self) -> tuple[tuple[str, str, str], ...]:
        """(cause, team, words), the costliest first."""
        found = {(one.cause, one.team): one.words for one in reversed(self.verdicts)}
        of_shifts = [(one.cause, one.team) for one in self.shifts]
        ordered = dict.fromkeys([(one.cause, one.team) for one in self.verdicts] + of_shifts)
        return tuple((*key, found.get(key) or WORDS.get(key[0], "")) for key in ordered)


def subjects(
    suspects: Iterable[Suspect], groups: Iterable[GroupFinding], hosts: Mapping[str, str]
) -> tuple[Subject, ...]:
    """All that is accused, what still holds first and then by cost.

    Args:
        suspects: culprits; victims are nobody's subject.
        groups: shifts; only slower groups are accused.
        hosts: host by rank.
    """
    verdicts: dict[tuple[str, ...], list[Suspect]] = {}
    shifts: dict[tuple[str, ...], list[GroupFinding]] = {}
    named: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {}
    for one in suspects:
        ranks = (one.rank,) if one.rank else one.members
        # Of a set one rank is meant, of a group of the same ranks all.
        key = ("one of", one.set) if one.set else (ranks or ("", one.group))
        named.setdefault(key, (_name(one), ranks))
        verdicts.setdefault(key, []).append(one)
    for shift in groups:
        if shift.shift <= 0.0:
            continue
        where = f"{shift.coordinate} {shift.value}" if shift.value else "ranks with nothing in common"
        key = shift.members or ("", where)
        named.setdefault(key, (f"{where} of {shift.role}", shift.members))
        shifts.setdefault(key, []).append(shift)
    found = []
    for key, (name, ranks) in named.items():
        of_ranks = tuple(sorted({hosts[rank] for rank in ranks if hosts.get(rank)}))
        against = tuple(sorted(verdicts.get(key, ()), key=_by_cost))
        found.append(Subject(name, ranks, of_ranks, against, tuple(shifts.get(key, ()))))
    return tuple(sorted(found, key=lambda one: (not one.active, -one.gpu_seconds, -_largest(one), one.name)))


def _name(one: Suspect) -> str:
    if one.rank:
        return f"rank {one.rank}"
    if one.set:
        return f"one of {one.set}"
    return f"group {one.group}" if one.group else "the job"


def _by_cost(one: Suspect) -> tuple[object, ...]:
    return -one.gpu_seconds, one.level, -abs(one.shift) if math.isfinite(one.shift) else 0.0, str(one.where)


def _largest(one: Subject) -> float:
    every = (*(of.shift for of in one.verdicts), *(of.shift for of in one.shifts))
    return max((abs(shift) for shift in every if math.isfinite(shift)), default=0.0)


def members_of_group(group: str, info: Mapping[str, Labels]) -> tuple[str, ...]:
    """Ranks of a process group by its name, such as `dp:pp0.tp1` or `ep:pp0.tp0.block2`; none where unknown.

    Args:
        info: `argus_rank_info` by rank.
    """
    dimension, colon, shared = group.partition(":")
    parts = [_PART.fullmatch(part) for part in shared.split(".")] if colon else []
    if not dimension or not parts or None in parts:
        return ()
    wanted = {part[1]: part[2] for part in parts if part is not None}
    experts = _experts(info.values())
    return _those(info, lambda of: all(_coordinate(of, name, experts) == wanted[name] for name in wanted))


def members_at(role: str, coordinate: str, value: str, info: Mapping[str, Labels]) -> tuple[str, ...]:
    """Ranks of a role, or of a stage such as `pp0`, at a value of a coordinate; none where unknown."""
    experts = _experts(info.values())
    return _those(
        info,
        lambda of: (
            bool(value)
            and _coordinate(of, coordinate, experts) == value
            and role in (of.get("role") or ANY_ROLE, stage_of(of.get("role") or ANY_ROLE))
        ),
    )


def _those(info: Mapping[str, Labels], wanted: Callable[[Labels], bool]) -> tuple[str, ...]:
    return tuple(sorted((rank for rank, of in info.items() if wanted(of)), key=natural))


def _experts(info: Iterable[Labels]) -> int:
    return len({of["ep"] for of in info if of.get("ep")})


def _coordinate(of: Labels, name: str, experts: int) -> str:
    if name in ("block", "edp"):  # derived: see groups.coordinates_of
        return str(int(of["dp"]) // experts) if experts and of.get("dp", "").isdigit() else ""
    return of.get(name, "")


def listed(names: Sequence[str], most: int = 8) -> str:
    """`1, 2, 3 and 5 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
