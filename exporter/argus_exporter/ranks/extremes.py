"""Trailing extremes: minimum and maximum of what happened in the last so many seconds."""

from __future__ import annotations

from collections import deque
from typing import Final

_DENSE: Final = 64
"""Values that are kept in any case. Beyond them so many in a window: a job that sends ever smaller ones must
not fill the memory; the maximum then goes down by steps of a 64th of the window."""


class TrailingExtreme:
    """Largest value of the last `window_s` seconds, amortised O(1) an update (a monotonic queue).

    The window is of time and not of scrapes, so that two scrapers see the same. For a minimum, add negated
    values.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._queue: deque[tuple[float, float]] = deque()  # values strictly decreasing, times increasing

    def add(self, now: float, value: float) -> None:
        queue = self._queue
        while queue and queue[-1][1] <= value:
            queue.pop()
        if len(queue) >= _DENSE:
            self._expire(now)
            if queue and now - queue[-1][0] < self._window_s / _DENSE:
                return
        queue.append((now, value))

    def value(self, now: float) -> float | None:
        """None when nothing happened in the window."""
        self._expire(now)
        return self._queue[0][1] if self._queue else None

    def _expire(self, now: float) -> None:
        while self._queue and self._queue[0][0] <= now - self._window_s:
            self._queue.popleft()
