"""What was learned from RAS about a job, in the job's own ranks and within limits: what is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from argus_exporter.ras.process import is_link_local, is_this_host
from argus_exporter.ras.report import RESULTS, Absence, Communicator, Place, Report, waited_for

MOST_RANKS: Final = 16
"""Named of each kind; where more are, it is no single rank's fault, and the totals say how many."""
MOST_FUNCTIONS: Final = 8
"""NCCL counts five."""


class Result(StrEnum):
    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True)
class Outcome:
    """Of the last question about a job.

    Attributes:
        result: whether there was an answer.
        at: Unix time.
        absent: processes of each kind, however many.
        absent_ranks: the first ranks of those; what RAS names by communicator only is not among them.
        lacks: launches that the first ranks lack for which the others wait, by rank and function.
        errors: NCCL's asynchronous error of the first ranks that have one, by its name.
        report: the answer; None without one.
    """

    result: Result
    at: float
    absent: Mapping[Absence, int] = field(default_factory=dict)
    absent_ranks: Mapping[int, Absence] = field(default_factory=dict)
    lacks: Mapping[tuple[int, str], int] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    report: Report | None = None


def outcome_of(
    report: Report, before: Report | None, at: float, world_size: int, known: Mapping[int, int]
) -> Outcome:
    """What an answer tells of a job's ranks.

    Args:
        before: the last answer, at least `period_seconds` ago; None: this is the first.
        at: Unix time.
        world_size: of the job; not positive: not known.
        known: pid, as NCCL writes it, to rank, of the job's processes on this host.
    """
    ranks = _ranks_of_job(report, world_size, known)
    found = [one for each in report.communicators for one in each.absent if _key(one.place) in ranks]
    # A rank that is dead in one communicator may be missing in another: the worst is told.
    worst_last = sorted(found, key=lambda one: list(Absence).index(one.absence), reverse=True)
    absent = {ranks[_key(one.place)]: one.absence for one in worst_last}
    errors = {
        ranks[_key(one.place)]: RESULTS.get(one.async_error, "unknown")
        for each in report.communicators
        for one in each.present
        if one.async_error and _key(one.place) in ranks
    }
    waited = waited_for(before, report, few=True) if before is not None else {}
    lacks = {ranks[_key(place)]: of for place, of in waited.items() if _key(place) in ranks}
    return Outcome(
        result=Result.ANSWERED,
        at=at,
        absent={absence: len(report.absent(absence)) for absence in Absence},
        absent_ranks={rank: absent[rank] for rank in sorted(absent)[:MOST_RANKS]},
        lacks={
            (rank, function): count
            for rank in sorted(lacks)[:MOST_RANKS]
            for function, count in sorted(lacks[rank].items())[:MOST_FUNCTIONS]
        },
        errors={rank: errors[rank] for rank in sorted(errors)[:MOST_RANKS]},
        report=report,
    )


_Key = tuple[str, int | None]


def _key(place: Place) -> _Key:
    return place.host, place.pid


def _ranks_of_job(report: Report, world_size: int, known: Mapping[int, int]) -> dict[_Key, int]:
    """Ranks of the job by host and pid.

    RAS numbers ranks by communicator. One of as many ranks as the job has numbers them as the job does, where
    it agrees with all that is known of this host; without one, only this host's ranks have their number.
    """
    hosts = {place.host for place in report.places()}
    # Which of several link-local addresses is ours is not known.
    linked = [host for host in hosts if is_link_local(host)]
    here = [host for host in hosts if is_this_host(host) and (host not in linked or len(linked) == 1)]
    local: dict[_Key, int] = {(host, pid): rank for host in here for pid, rank in known.items()}
    for one in report.communicators:
        if one.size == world_size > 0:
            numbered = _numbered(one)
            both = numbered.keys() & local.keys()
            if both and all(numbered[key] == local[key] for key in both):
                return numbered | local
    return local


def _numbered(one: Communicator) -> dict[_Key, int]:
    """Ranks of a communicator whose process has no other rank in it."""
    ranks: dict[_Key, list[int]] = {}
    for key, rank in _members(one):
        ranks.setdefault(key, []).append(rank)
    return {key: of[0] for key, of in ranks.items() if len(of) == 1 and key[1] is not None}


def _members(one: Communicator) -> Iterator[tuple[_Key, int]]:
    yield from ((_key(rank.place), rank.rank) for rank in one.present)
    yield from ((_key(rank.place), rank.rank) for rank in one.absent)
