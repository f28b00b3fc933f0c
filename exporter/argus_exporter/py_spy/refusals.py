"""The marks by which ranks learn that they must sample themselves (see `argus_core.stack_refusals`)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from argus_core.log import Log
from argus_core.replaced_file import new_text
from argus_core.stack_refusals import all_refusals, refusal_path
from argus_exporter.place.topology import Identity

log = Log(__name__)


class Refusals:
    """Marks beside one socket. A mark that cannot be written leaves a rank without a fallback, no more."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._marks: dict[tuple[str, int], Path] = {}
        """By rank: in containers the same ranks of two jobs may have the same pid, and so one mark."""

    def clear(self) -> None:
        """Remove every mark: at the start those of an exporter that was killed, at the end our own."""
        for mark in list(all_refusals(self._socket)):
            with contextlib.suppress(OSError):
                mark.unlink()
        self._marks.clear()

    def set(self, rank: Identity, reason: str) -> None:
        """Mark a rank as refused."""
        mark = refusal_path(self._socket, rank.rank, rank.pid)
        if self._marks.get(rank.key) == mark:
            return
        self.unset(rank)
        if mark not in self._marks.values():
            try:
                new_text(mark, f"{reason}\n")
            except OSError as error:
                log.warning("no fallback for stacks, the mark cannot be written", path=mark, error=error)
                return
        self._marks[rank.key] = mark

    def unset(self, rank: Identity) -> None:
        """Take a rank's mark away, unless it is another one's too."""
        mark = self._marks.pop(rank.key, None)
        if mark is not None and mark not in self._marks.values():
            with contextlib.suppress(OSError):
                mark.unlink()
