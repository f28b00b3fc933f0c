"""What an answer says, whichever form it had: communicators, their ranks, and what those have launched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Absence(StrEnum):
    """Why a communicator has no data of one of its ranks."""

    DEAD = "dead"
    """RAS has given its process up, having tried in vain for a minute to reach it."""
    UNRESPONSIVE = "unresponsive"
    """Its process did not answer in time."""
    MISSING = "missing"
    """Its process answered, but not of this communicator: it left it, or did not join it yet."""


class Stage(StrEnum):
    """How far a rank is in the life of its communicator; the words are those of NCCL's own text."""

    INIT = "init"
    RUNNING = "running"
    FINALIZE = "finalize"
    ABORT = "abort"


RESULTS: Final = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process error",
}
"""ncclResult_t."""

_HOST: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def checked_host(text: str) -> str:
    """A host as an answer has it.

    Raises:
        ValueError: it is none, such as what would do something to a terminal.
    """
    if not _HOST.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no host")
    return text


@dataclass(frozen=True)
class Place:
    """Where a rank runs.

    Attributes:
        host: IP address that its NCCL bootstraps over, or what people put in its place before they kept the
            answer; "" where RAS does not know it.
        pid: in the rank's own pid namespace; None where RAS does not know it.
        gpu: CUDA device in its process; None where the answer does not say.
    """

    host: str = ""
    pid: int | None = None
    gpu: int | None = None


@dataclass(frozen=True)
class PresentRank:
    """A rank that its communicator has data of."""

    rank: int
    place: Place
    stage: Stage | None = Stage.RUNNING
    """None where the text does not say."""
    init_error: int = 0
    async_error: int = 0
    """Both are NCCL's result codes (ncclResult_t); 0: none."""


@dataclass(frozen=True)
class AbsentRank:
    rank: int
    place: Place
    absence: Absence


@dataclass(frozen=True)
class Level:
    """Ranks of a communicator that have launched equally many operations of a function.

    Attributes:
        count: launches on the host since the communicator was made. A launch is no completion.
        size: how many ranks.
        ranks: which; fewer than `size` where the text names outliers only.
    """

    count: int
    size: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Communicator:
    """One communicator of the job.

    Attributes:
        hash: NCCL's, the same number on all member ranks.
        secondary: tells apart what has the same hash; "" where the answer does not say.
        size: how many ranks it was made of; 0 where the text does not say.
        present: ranks with data; in text only those that it names.
        absent: ranks without.
        launches: by function, lowest count first. NCCL counts no sends, receives and all-to-alls, nothing
            that a captured graph launches, and no Broadcast from 2.29 on.
    """

    hash: int
    size: int
    present: tuple[PresentRank, ...] = ()
    absent: tuple[AbsentRank, ...] = ()
    launches: Mapping[str, tuple[Level, ...]] = field(default_factory=dict)
    secondary: str = ""

    def behind(self) -> dict[str, tuple[int, ...]]:
        """By each function whose counts differ, the ranks with the lowest count.

        In a running job counts differ for moments: whoever is behind in one answer need not be stuck.
        """
        return {name: levels[0].ranks for name, levels in self.launches.items() if len(levels) > 1}

    def count_of(self, rank: int, function: str) -> int | None:
        """Launches of a rank; None where the answer does not say."""
        levels = self.launches.get(function, ())
        return next((level.count for level in levels if rank in level.ranks), None)


@dataclass(frozen=True)
class Report:
    """An answer.

    Attributes:
        nccl_version: as NCCL writes it, such as 2.28.9.
        communicators: those that the answer describes; in text only those that something is said of.
        communicators_count: of the job.
        dead, unresponsive: processes of the job, of whatever communicator; filled from text only, where they
            need not appear as ranks.
        timeouts: of RAS itself while it asked the job's processes.
        collected_s: seconds that this took.
        from_text: only outliers are named.
    """

    nccl_version: str
    communicators: tuple[Communicator, ...]
    communicators_count: int
    dead: tuple[Place, ...] = ()
    unresponsive: tuple[Place, ...] = ()
    timeouts: int = 0
    collected_s: float = 0.0
    from_text: bool = False

    def absent(self, absence: Absence) -> set[tuple[object, ...]]:
        """Processes, each once in however many communicators it is absent; an unknown one by its rank."""
        listed = {Absence.DEAD: self.dead, Absence.UNRESPONSIVE: self.unresponsive}.get(absence, ())
        found: set[tuple[object, ...]] = {(place.host, place.pid) for place in listed}
        for each in self.communicators:
            for one in each.absent:
                if one.absence is absence:
                    known = one.place.pid is not None
                    found.add((one.place.host, one.place.pid) if known else (each.hash, one.rank, None))
        return found

    def places(self) -> Iterable[Place]:
        """Of all processes that the answer names."""
        yield from (*self.dead, *self.unresponsive)
        for communicator in self.communicators:
            yield from (one.place for one in communicator.present)
            yield from (one.place for one in communicator.absent)


def stuck(before: Report, after: Report) -> tuple[Communicator, ...]:
    """Communicators of the later answer in which ranks differ and nobody has launched anything in between.

    That some are behind is no hang while any count moves; that none moves is none while all have launched the
    same, as between two iterations.
    """
    earlier = {(one.hash, one.secondary): one.launches for one in before.communicators}
    return tuple(
        one
        for one in after.communicators
        if one.behind() and earlier.get((one.hash, one.secondary)) == one.launches
    )


def waited_for(before: Report, after: Report, *, few: bool = False) -> dict[Place, dict[str, int]]:
    """Who has launched least where communicators are stuck, waits for nobody in another, and does nothing.

    Whoever has launched more than another of its communicator waits for that one, and is often behind in its
    next communicator only because of that. Whoever has launched anything between the answers does not hang.

    Args:
        few: only where less than half of a communicator lack a launch. Where all have called as much, more of
            them lack what one has launched alone, in place of something that NCCL does not count.

    Returns:
        By process, for each function, how many launches it lacks at most. Nobody where an answer does not
        name all ranks, as text. Sends and receives are not counted, so that a rank which waits in one looks
        as if it were waited for: with pipeline stages, more may be named than hang.
    """
    lacks: dict[Place, dict[str, int]] = {}
    excused = _launched_between(before, after)
    for one in stuck(before, after):
        places = {rank.rank: rank.place for rank in one.present}
        for function, lowest in one.behind().items():
            least, *above = one.launches[function]
            if any(level.size != len(level.ranks) for level in (least, *above)):
                return {}
            excused |= {places[rank] for level in above for rank in level.ranks if rank in places}
            for rank in lowest if not few or 2 * len(lowest) < one.size else ():
                of = lacks.setdefault(places.get(rank, Place()), {})
                of[function] = max(above[-1].count - least.count, of.get(function, 0))
    return {place: of for place, of in lacks.items() if place not in excused and place.pid is not None}


def _launched_between(before: Report, after: Report) -> set[Place]:
    """Processes with a count in the later answer that was another one, or none, in the earlier."""
    earlier = {(one.hash, one.secondary): one for one in before.communicators}
    moved: set[Place] = set()
    for one in after.communicators:
        old = earlier.get((one.hash, one.secondary))
        if old is None or old.launches != one.launches:
            known = set() if old is None else _counts(old)
            places = {rank.rank: rank.place for rank in one.present}
            moved |= {places[rank] for _, rank, _ in _counts(one) - known if rank in places}
    return moved


def _counts(one: Communicator) -> set[tuple[str, int, int]]:
    """Function, rank and launches, where there are any."""
    return {
        (function, rank, level.count)
        for function, levels in one.launches.items()
        for level in levels
        for rank in level.ranks
        if level.count
    }


def levels(counts: Mapping[int, int]) -> tuple[Level, ...]:
    """Ranks by how many operations they have launched, lowest first."""
    by_count: dict[int, list[int]] = {}
    for rank, count in counts.items():
        by_count.setdefault(count, []).append(rank)
    return tuple(Level(count, len(ranks), tuple(sorted(ranks))) for count, ranks in sorted(by_count.items()))
