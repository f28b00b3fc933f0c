"""What a report says of somebody: one verdict, or one group shift, over the time that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

Points = tuple[tuple[float, float], ...]
"""(Unix seconds, value)."""


@dataclass(frozen=True)
class Told:
    """An alert of one severity, from the first to the last time (Unix seconds); `active`: still."""

    severity: str
    first: float
    last: float
    active: bool


@dataclass(frozen=True)
class Suspect:
    """Somebody whom rules or worker accuse, or whom the worker calls a victim.

    Attributes:
        rank: empty where it is about a set, a group or the whole job.
        group: the process group that it is about.
        set: ranks of which one is meant, as they wait for one another.
        members: ranks of group or set; empty for what is about a rank, or where they are not known.
        words: what it is, of the table of causes.
        where: phases with the share of the time that each costs, or kernel and stream.
        shift: largest ratio (0.1: 10 % slower) of an L3 anomaly, else NaN.
        lost: share of the job's time that it costs at the end, or did at most; NaN: unknown.
        gpus: the same in GPUs.
        gpu_seconds: what it has cost over the time; 0 where unknown.
        first, last: Unix time; `active` where it holds at the end.
        told: the alerts about it.
    """

    rank: str
    node: str
    level: str
    verdict: str
    cause: str
    team: str
    words: str
    where: tuple[tuple[str, float], ...]
    shift: float
    lost: float
    gpus: float
    first: float
    last: float
    active: bool
    group: str = ""
    set: str = ""
    members: tuple[str, ...] = ()
    gpu_seconds: float = 0.0
    told: tuple[Told, ...] = ()


@dataclass(frozen=True)
class Excuse:
    """Who looked like `cause` and was not named, as `by` explains it; nobody: the job.

    Attributes:
        by_rank: whose; the rank's own where they are equal, empty where it is of a group or the job.
    """

    rank: str
    group: str
    set: str
    cause: str
    by: str
    by_rank: str
    active: bool


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
