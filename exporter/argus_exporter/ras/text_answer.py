"""RAS's answer in text: what a version before 2.28.7 gives, and what people have kept from `ncclras`.

The text is for people and names outliers only: communicators that nothing is said of are counted but not
described, and of equal ranks there is a number. Counts by function are there from 2.26 on; before, the text
calls the function `collective`, and so do we.

Source: src/ras/client_support.cc of NCCL 2.24.3 to 2.30.7 (rasClientRunInit, rasClientRunComms).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from argus_exporter.ras.errors import RasFailed
from argus_exporter.ras.report import (
    Absence,
    AbsentRank,
    Communicator,
    Level,
    Place,
    PresentRank,
    Report,
    Stage,
    checked_host,
)
from argus_exporter.ras.versions import Version

_VERSION: Final = re.compile(r"NCCL version (\S+)")
_COLLECTED: Final = re.compile(r"Communicators\.\.\. \((\d{1,9}(?:\.\d+)?)s\)")
_GROUP: Final = re.compile(r" *(\d+) +(\d+) +\d+ +[\d-]+ +(\d+) +\d+ +[A-Z]+ +\S+")
"""A row of the table: number of the group, its communicators, and after nodes the ranks of each."""
_PROCESS: Final = re.compile(r"  Process (\d+) on node (\S+) managing GPUs? (\d+)?")
_SECTION: Final = re.compile(r"#(\d+)-\d+ \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)")
_TIMEOUTS: Final = re.compile(r"  Encountered (\d+) communication timeouts? ")
_RANK: Final = re.compile(
    r"  Rank (\d+)"
    r"(?: (has status|has launched up to operation|has not launched any operations|reported)(?: (.+))?)? -- "
    r"(?:GPU (\d+)(?: \(NVML \d+\))? managed by process (\d+) on node (\S+)|"
    r"\[process information not found\])"
)
_RANKS_ALONE: Final = re.compile(
    r"  The (missing|unknown) ranks?: (\d+(?:,\d+)*)|  Rank (\d+) has status (?:UNKNOWN|NOCOMM)"
)
"""Of 2.24 and 2.25, which say nothing else of them."""
_SEVERAL: Final = re.compile(
    r"  (\d+) ranks "
    r"(have status|have launched up to operation|have not launched any operations|reported)(?: (.+))?"
)
_COUNTS_DIFFER: Final = re.compile(r"  Communicator ranks have different (\w{1,32}) operation counts")
_NO_COMMUNICATOR: Final = ("NOCOMM", "UNKNOWN")
"""From 2.26 on, and before."""
_ERRORS: Final = {
    "Unhandled CUDA error": 1,
    "System error": 2,
    "Internal error": 3,
    "Invalid argument": 4,
    "Invalid usage": 5,
    "Remote process error": 6,
}
"""ncclErrorToString, backwards."""


def parse_text(text: str) -> Report:
    """Read an answer.

    Raises:
        RasFailed: it is none of RAS's, or ends before its last part.
    """
    reader = _Reader()
    try:
        version = Version.parse(found[1]) if (found := _VERSION.match(text)) else None
        for line in text.splitlines():
            reader.take(line)
    except ValueError as error:
        raise RasFailed(f"the answer is none of NCCL's RAS: {error}") from error
    if version is None:
        raise RasFailed("the answer is none of NCCL's RAS: it does not begin with NCCL's version")
    if not reader.complete:
        raise RasFailed(f"the answer of NCCL {version} ends early, after {len(text)} characters")
    return reader.report(version)


@dataclass
class _Described:
    """A communicator that something is said of."""

    size: int
    present: dict[int, PresentRank] = field(default_factory=dict)
    absent: dict[int, AbsentRank] = field(default_factory=dict)
    launches: dict[str, list[Level]] = field(default_factory=dict)

    def knows(self, rank: int, place: Place) -> PresentRank:
        return self.present.setdefault(rank, PresentRank(rank, place, stage=None))


class _Reader:
    """Goes through the lines; each is understood by what stands above it."""

    def __init__(self) -> None:
        self.complete = False
        self._collected_s = 0.0
        self._timeouts = 0
        self._sizes: dict[int, int] = {}
        self._count = 0
        self._processes: dict[Absence, list[Place]] = {Absence.DEAD: [], Absence.UNRESPONSIVE: []}
        self._titles: set[Absence] = set()
        self._of: Absence | None = None
        self._described: dict[int, _Described] = {}
        self._now: _Described | None = None
        self._section = ""
        self._function = ""
        self._init = False
        self._group: tuple[str, str] = ("", "")
        """What is said of the ranks below a line on several: what, and which value."""

    def take(self, line: str) -> None:
        if found := _COLLECTED.match(line):
            self._collected_s = float(found[1])
        elif line == "Warnings":
            self.complete = True
        elif line in ("DEAD", "INCOMPLETE"):
            self._of, self._now = Absence.DEAD if line == "DEAD" else Absence.UNRESPONSIVE, None
            self._titles.add(self._of)
        elif (found := _PROCESS.match(line)) and self._of is not None:
            gpu = int(found[3]) if found[3] else None
            self._processes[self._of].append(Place(checked_host(found[2]), int(found[1]), gpu))
        elif found := _TIMEOUTS.match(line):
            self._timeouts = int(found[1])
        elif found := _SECTION.match(line):
            size = self._sizes.get(int(found[1]), 0)
            self._now, self._of = self._described.setdefault(int(found[2], 16), _Described(size)), None
            self._section, self._group = found[3], ("", "")
        elif self._now is not None:
            self._take_of_communicator(line, self._now)
        elif (found := _GROUP.fullmatch(line)) and not self.complete:
            self._sizes[int(found[1])] = int(found[3])
            self._count += int(found[2])

    def _take_of_communicator(self, line: str, now: _Described) -> None:
        if found := _COUNTS_DIFFER.match(line):
            self._function, self._group = found[1], ("", "")
        elif line.startswith(("  Initialization error", "  Asynchronous error")):
            self._init = line.startswith("  Init")
        elif found := _SEVERAL.fullmatch(line):
            self._group = (found[2].removeprefix("have "), found[3] or "0")
            if "launched" in self._group[0]:
                self._add_level(now, int(found[1]), ())
        elif found := _RANK.fullmatch(line):
            self._take_rank(now, found)
        elif found := _RANKS_ALONE.fullmatch(line):
            absence = self._absence(Place()) if found[1] == "missing" else Absence.MISSING
            for rank in map(int, (found[2] or found[3]).split(",")):
                # Before 2.26 whom INCOMPLETE names is also without a status.
                now.absent.setdefault(rank, AbsentRank(rank, Place(), absence))

    def _take_rank(self, now: _Described, found: re.Match[str]) -> None:
        rank = int(found[1])
        place = Place(checked_host(found[6]), int(found[5]), int(found[4])) if found[5] else Place()
        if self._section == "INCOMPLETE":
            now.absent[rank] = AbsentRank(rank, place, self._absence(place))
            return
        alone = found[2] is not None
        if alone:
            self._group = (found[2].removeprefix("has "), found[3] or "0")
        what, value = self._group
        if "launched" in what:
            now.knows(rank, place)
            if alone:
                self._add_level(now, 1, (rank,))
            else:
                levels = now.launches[self._function]
                levels[-1] = Level(levels[-1].count, levels[-1].size, (*levels[-1].ranks, rank))
        elif what == "status" and value in _NO_COMMUNICATOR:
            now.absent[rank] = AbsentRank(rank, place, Absence.MISSING)
        elif what == "status":
            known = now.knows(rank, place)
            now.present[rank] = PresentRank(
                rank, place, Stage(value.lower()), known.init_error, known.async_error
            )
        elif what == "reported":
            known, code = now.knows(rank, place), _ERRORS.get(value, len(_ERRORS) + 2)
            init, wrong = (code, known.async_error) if self._init else (known.init_error, code)
            now.present[rank] = PresentRank(rank, place, known.stage, init, wrong)

    def _add_level(self, now: _Described, size: int, ranks: tuple[int, ...]) -> None:
        now.launches.setdefault(self._function, []).append(Level(int(self._group[1]), size, ranks))

    def _absence(self, place: Place) -> Absence:
        """Of a rank whose process gave no data: that is dead where no other process is missing."""
        if Absence.UNRESPONSIVE not in self._titles:
            return Absence.DEAD
        dead = {(one.host, one.pid) for one in self._processes[Absence.DEAD]}
        return Absence.DEAD if (place.host, place.pid) in dead else Absence.UNRESPONSIVE

    def report(self, version: Version) -> Report:
        return Report(
            nccl_version=str(version),
            communicators=tuple(self._communicators()),
            communicators_count=self._count,
            dead=tuple(self._processes[Absence.DEAD]),
            unresponsive=tuple(self._processes[Absence.UNRESPONSIVE]),
            timeouts=self._timeouts,
            collected_s=self._collected_s,
            from_text=True,
        )

    def _communicators(self) -> Iterator[Communicator]:
        for number, one in self._described.items():
            yield Communicator(
                hash=number,
                size=one.size,
                present=tuple(one.present[rank] for rank in sorted(one.present)),
                absent=tuple(one.absent[rank] for rank in sorted(one.absent)),
                launches={
                    function: tuple(sorted(levels, key=lambda level: level.count))
                    for function, levels in one.launches.items()
                },
            )
