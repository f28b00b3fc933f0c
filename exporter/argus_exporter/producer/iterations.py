"""Where an iteration begins and ends, from the order of data fetches, forwards and optimizer steps.

An iteration runs from its first data fetch (or forward, where data does not come from a DataLoader) to the
end of the last optimizer step. It is complete when every optimizer of the cycle has stepped, and the next
fetch or forward closes it. The cycle is learnt: the optimizers that stepped in the iteration before. So
gradient accumulation (many forwards, one step) and several optimizers (one forward and step each) are one
iteration.

Simplified from EROICA's sequence detection (arXiv:2506.08528), which looks for a repeated subsequence.
"""

from __future__ import annotations

from collections.abc import Callable


class IterationDetector:
    """Turns events into iterations. Called on the training thread only.

    Args:
        ended: receives (start_ns, end_ns) of each iteration.
    """

    def __init__(self, ended: Callable[[int, int], None]) -> None:
        self._ended = ended
        self._start_ns = 0
        self._end_ns = 0
        self._stepped: set[int] = set()
        self._cycle: frozenset[int] = frozenset()
        self._opening_ns = 0
        """First fetch or forward since the last optimizer step: it may open the next iteration."""
        self._fetches_open = False
        """The running iteration began with a fetch: while the cycle is unknown, the next fetch ends it."""
        self._trained = False
        """A forward with gradients ran since the last optimizer step."""
        self.manual = False
        """The user marks iterations; what the hooks see is ignored."""

    def opening(self, time_ns: int, *, trains: bool = False) -> None:
        """A data fetch begins, or a forward pass, which is certain to train."""
        if self.manual:
            return
        if not self._stepped:
            if not self._start_ns:
                self._start_ns, self._fetches_open = time_ns, not trains
        elif self._stepped >= self._cycle if self._cycle else self._fetches_open and not trains:
            self._close(self._opening_ns or time_ns)
        else:
            self._opening_ns = self._opening_ns or time_ns
        if trains:
            self._trained = True

    def void(self) -> None:
        """What opened was no training (evaluation, an exhausted loader): forget it."""
        if not self._trained:
            if self._stepped:
                self._opening_ns = 0
            else:
                self._start_ns = 0

    def optimizer_begins(self, optimizer: int) -> None:
        """`optimizer` (its id) is about to step. One that steps again does so in a new iteration.

        Where no fetch or forward was seen between (a compiled step function), it began at the last end.
        """
        if not self.manual and optimizer in self._stepped:
            self._close(self._opening_ns or self._end_ns)

    def optimizer_ended(self, optimizer: int, time_ns: int) -> None:
        if self.manual:
            return
        self._stepped.add(optimizer)
        self._end_ns = time_ns
        self._opening_ns = 0
        self._trained = False

    def mark(self, start_ns: int, end_ns: int) -> None:
        """The user's own iteration."""
        self.manual = True
        self._ended(start_ns, end_ns)

    def finish(self) -> None:
        """The process ends: an iteration whose optimizers have all stepped is complete."""
        if not self.manual and self._stepped and self._stepped >= self._cycle:
            self._close(0)

    def _close(self, next_start_ns: int) -> None:
        start, end = self._start_ns, self._end_ns
        self._cycle = frozenset(self._stepped)
        self._stepped.clear()
        self._start_ns, self._opening_ns = next_start_ns, 0
        if start:  # without a seen start there is no duration to report
            self._ended(start, end)
