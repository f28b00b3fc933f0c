"""Finished spans and iterations as they are written down: tuples of plain values, in the order of their ends.

Two forms. The hooks of a step put numbers, three for each span or iteration: its code, begin and end, on the
host's clock of the thread that trains. All else is six values: phase (None: what is no span, but no part of
the one around it either), begin, end, measured time, step, clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

ITERATION: Final = 0
"""In place of a phase's code: an iteration, which ends with this entry. Spans up to it belong to it."""
NO_CODE: Final = -1
"""In place of a phase's code: there were too many names; to be dropped and counted."""
GPU_SPAN: Final = "gpu span"
"""In place of a phase: where a span lay on the GPU, as phase, step, ns after the mark before that, ns."""
TRAINING_CLOCK: Final = 0
"""The host's clock of the thread that trains. Above: another thread, by its ident. Below: a stream."""


class StepLog:
    """Entries of any thread, in the order in which they are written; one thread takes them.

    An array of numbers would keep no tuples, but converts each number by `PyArg_Parse`, which costs six times
    as much as the tuple (instructions counted by callgrind).
    """

    def __init__(self) -> None:
        self._written: deque[tuple[Any, ...]] = deque()
        self.put: Callable[[tuple[Any, ...]], None] = self._written.append
        """Write entries: of three numbers each, one after the other in one tuple, or one of six values."""
        self.waiting: Callable[[], int] = self._written.__len__
        """As `len`, for hooks, who call no more of ours than they must."""

    def __len__(self) -> int:
        """Tuples that wait: an entry or two each."""
        return len(self._written)

    def take(self, most: int) -> Iterator[tuple[Any, ...]]:
        """The entries of the oldest tuples, of `most` at most, which are removed one by one."""
        for _ in range(min(most, len(self._written))):
            entry = self._written.popleft()
            if type(entry[0]) is not int:
                yield entry
                continue
            for at in range(0, len(entry), 3):
                yield entry[at : at + 3]

    def clear(self) -> None:
        self._written.clear()
