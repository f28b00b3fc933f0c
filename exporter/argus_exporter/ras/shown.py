"""A report for people: trouble first, each communicator in a few lines, none without bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from argus_exporter.ras.report import (
    RESULTS,
    Absence,
    Communicator,
    Level,
    Place,
    PresentRank,
    Report,
    Stage,
    stuck,
    waited_for,
)

MOST_LINES: Final = 20
"""Of one kind; what is left out is counted."""
_ABSENCES: Final = {
    Absence.DEAD: "dead",
    Absence.UNRESPONSIVE: "does not answer",
    Absence.MISSING: "missing: its process answers, but not of this communicator",
}


def shown(report: Report) -> Iterator[str]:
    """Lines: a summary, then the communicators, those with trouble first."""
    yield f"{_summary(report)} (RAS needed {report.collected_s:.3f} s)"
    if report.timeouts:
        yield f"RAS itself ran into {report.timeouts} timeouts: what it did not hear of is unknown"
    for title, places in (("dead", report.dead), ("does not answer", report.unresponsive)):
        yield from _cut([f"process {title}: {_where(place)}" for place in places])
    troubled = [one for one in report.communicators if _has_trouble(one)]
    for one in troubled:
        yield ""
        yield from _communicator(one)
    calm = [one for one in report.communicators if not _has_trouble(one)]
    if calm:
        yield ""
        yield from _cut([f"{_name(one)}: {_counts(one) or 'nothing launched yet'}" for one in calm])
    if report.from_text and (left := report.communicators_count - len(report.communicators)) > 0:
        yield f"{left} communicators without a remark; text names outliers only"


def shown_stuck(before: Report, after: Report, seconds: float) -> Iterator[str]:
    """Lines about where nothing moves, by two answers that are so far apart."""
    communicators = stuck(before, after)
    if not communicators:
        yield f"Where ranks differed {seconds:.0f} s ago, they have launched since, or differ no more."
        return
    names = ", ".join(f"{one.hash:#018x}" for one in communicators[:MOST_LINES])
    more = f" and {len(communicators) - MOST_LINES} more" if len(communicators) > MOST_LINES else ""
    yield f"Nothing was launched for {seconds:.0f} s where ranks differ: {names}{more}"
    lines = []
    for place, lacks in waited_for(before, after).items():
        functions = ", ".join(f"{count} {function}" for function, count in lacks.items())
        lines.append(f"  the others wait for {_where(place)}, which lacks {functions}")
    yield from _cut(lines)


def ranges(ranks: Iterable[int]) -> str:
    """Ranks in short, such as 0-3,8."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][-1] == rank - 1:
            spans[-1] = [spans[-1][0], rank]
        else:
            spans.append([rank])
    parts = ["-".join(map(str, span)) for span in spans]
    more = f",... ({len(parts) - MOST_LINES} more)" if len(parts) > MOST_LINES else ""
    return ",".join(parts[:MOST_LINES]) + more


def _summary(report: Report) -> str:
    absent = [f"{len(found)} {absence}" for absence in Absence if (found := report.absent(absence))]
    behind = sum(bool(one.behind()) for one in report.communicators)
    parts = [
        f"NCCL {report.nccl_version}, {_plural(report.communicators_count, 'communicator')}",
        f"processes: {', '.join(absent)}" if absent else "nobody is absent",
        f"launches differ in {_plural(behind, 'communicator')}" if behind else "all have launched the same",
    ]
    return "; ".join(parts)


def _has_trouble(one: Communicator) -> bool:
    return bool(one.absent or one.behind() or any(map(_remark, one.present)))


def _communicator(one: Communicator) -> Iterator[str]:
    yield _name(one)
    yield from _cut(
        [f"  rank {rank.rank} {_ABSENCES[rank.absence]} ({_where(rank.place)})" for rank in one.absent]
    )
    remarks = [(rank, _remark(rank)) for rank in one.present]
    yield from _cut([f"  rank {rank.rank} {what} ({_where(rank.place)})" for rank, what in remarks if what])
    places = {rank.rank: rank.place for rank in one.present}
    for function, levels in one.launches.items():
        if len(levels) > 1:
            yield from _cut([f"  {function}: {_level(level)}" for level in levels])
            yield from _cut(
                [
                    f"  behind in {function}: rank {rank} ({_where(places.get(rank, Place()))})"
                    for rank in levels[0].ranks
                ]
            )
    if same := _counts(one):
        yield f"  {same}"


def _remark(rank: PresentRank) -> str:
    """What is said of a rank; nothing of one that runs."""
    found = [] if rank.stage in (None, Stage.RUNNING) else [f"is in {rank.stage}"]
    for what, code in (("failed to initialise", rank.init_error), ("has failed", rank.async_error)):
        if code:
            found.append(f"{what}: {RESULTS.get(code, f'NCCL result {code}')}")
    return ", ".join(found)


def _counts(one: Communicator) -> str:
    """Of the functions that all launched equally often."""
    equal = [
        f"{function} {levels[0].count}"
        for function, levels in one.launches.items()
        if len(levels) == 1 and levels[0].count
    ]
    return f"launched by all alike: {', '.join(equal)}" if equal else ""


def _level(level: Level) -> str:
    which = f"rank{'s' if level.size > 1 else ''} {ranges(level.ranks)}" if level.ranks else ""
    who = which if len(level.ranks) == level.size else f"{level.size} ranks"
    return f"{level.count} launched by {who}"


def _name(one: Communicator) -> str:
    return f"communicator {one.hash:#018x}" + (f", {_plural(one.size, 'rank')}" if one.size else "")


def _where(place: Place) -> str:
    if place.pid is None:
        return "its process is not known"
    gpu = "" if place.gpu is None else f", GPU {place.gpu}"
    return f"pid {place.pid} on {place.host}{gpu}"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _cut(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"  ... and {len(lines) - MOST_LINES} more like it (--json has all)"
