"""Spans as the hooks of a step write them down: a tuple of plain numbers, three for each span."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

ITERATION: Final = 0
"""In place of a phase's code: an iteration, which ends with this entry. Spans up to it belong to it."""
NO_CODE: Final = -1
"""In place of a phase's code: there were too many names; to be dropped and counted."""


class StepLog:
    """Entries of any thread, in the order in which they are written; one thread takes them.

    An array of numbers would keep no tuples, but converts each number by `PyArg_Parse`, which costs six times
    as much as the tuple (instructions counted by callgrind).
    """

    def __init__(self) -> None:
        self._written: deque[tuple[int, ...]] = deque()
        self.put: Callable[[tuple[int, ...]], None] = self._written.append
        """Write entries, (code, begin, end) each, one after the other in one tuple."""

    def __len__(self) -> int:
        """Tuples that wait: an entry or two each."""
        return len(self._written)

    def take(self, most: int) -> Iterator[tuple[int, int, int]]:
        """The entries of the oldest tuples, of `most` at most, which are removed one by one."""
        for _ in range(min(most, len(self._written))):
            numbers = self._written.popleft()
            for at in range(0, len(numbers), 3):
                code, begin, end = numbers[at : at + 3]
                yield code, begin, end

    def clear(self) -> None:
        self._written.clear()
