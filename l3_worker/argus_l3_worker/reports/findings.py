"""What a report says of somebody: one verdict, or one group shift, over the time that was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suspect:
    """A rank, or a group of ranks, that was accused or called a victim.

    Attributes:
        rank: empty where a verdict is about a group or the whole job.
        group, members: the process group that it is about, and its ranks; empty for one about a rank.
        gpu_seconds: what it has cost over the time; 0 where unknown.
        where: phase and group, or kernel and stream.
        shift: largest ratio (0.1: 10 % slower) of an L3 anomaly, else NaN.
        lost: largest share of the iteration that it cost, NaN where unknown.
        first, last: Unix time; `active` where it holds at the end.
    """

    rank: str
    node: str
    level: str
    verdict: str
    cause: str
    team: str
    where: str
    shift: float
    lost: float
    first: float
    last: float
    active: bool
    group: str = ""
    members: tuple[str, ...] = ()
    gpu_seconds: float = 0.0


@dataclass(frozen=True)
class GroupFinding:
    """A group of ranks that L3 found slower; `shift` is the largest ratio. `members`: as far as known."""

    role: str
    kernel: str
    coordinate: str
    value: str
    cause: str
    team: str
    shift: float
    active: bool
    members: tuple[str, ...] = ()
