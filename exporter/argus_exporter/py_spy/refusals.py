"""The marks by which ranks learn that they must sample themselves (see `argus_core.stack_refusals`)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from argus_core.log import Log
from argus_core.stack_refusals import all_refusals, refusal_path

log = Log(__name__)


class Refusals:
    """Marks beside one socket. A mark that cannot be written leaves a rank without a fallback, no more."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._marks: set[Path] = set()

    def clear(self) -> None:
        """Remove every mark: at the start those of an exporter that was killed, at the end our own."""
        for mark in list(all_refusals(self._socket)):
            with contextlib.suppress(OSError):
                mark.unlink()
        self._marks.clear()

    def set(self, rank: int, pid: int, reason: str) -> None:
        """Mark a rank as refused; `pid` is the one its HELLO says."""
        mark = refusal_path(self._socket, rank, pid)
        if mark in self._marks:
            return
        try:
            mark.write_text(f"{reason}\n")
        except OSError as error:
            log.warning("no fallback for stacks, the mark cannot be written", path=mark, error=error)
        else:
            self._marks.add(mark)

    def unset(self, rank: int, pid: int) -> None:
        """Take a rank's mark away."""
        mark = refusal_path(self._socket, rank, pid)
        if mark in self._marks:
            self._marks.discard(mark)
            with contextlib.suppress(OSError):
                mark.unlink()
