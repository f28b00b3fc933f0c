"""The processes that a process has started, from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_STATE, _PARENT, _STARTED = 0, 1, 19
"""Places in /proc/PID/stat behind the command's name (proc(5) counts them from 3)."""


@dataclass(frozen=True)
class Relative:
    """A process that is not our own child. Its number may be given to another later; its start time tells."""

    pid: int
    started: str
    """Clock ticks after boot."""

    @property
    def alive(self) -> bool:
        fields = _stat(self.pid)
        return fields is not None and fields[_STARTED] == self.started and fields[_STATE] != "Z"

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def descendants(pid: int) -> set[Relative]:
    """All that `pid` and its children started and that still runs, whatever sessions they lead."""
    parents: dict[int, tuple[int, Relative]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))) is not None:
            relative = Relative(int(entry.name), fields[_STARTED])
            parents[relative.pid] = (int(fields[_PARENT]), relative)
    family, found = {pid}, set[Relative]()
    grown = True
    while grown:
        grown = False
        for child, (parent, relative) in parents.items():
            if parent in family and child not in family:
                family.add(child)
                found.add(relative)
                grown = True
    return found


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
