"""Trailing extremes: minimum and maximum of what happened in the last so many seconds."""

from __future__ import annotations

from collections import deque


class TrailingExtreme:
    """Largest value of the last `window_s` seconds, amortised O(1) an update (a monotonic queue).

    The window is of time and not of scrapes, so that two scrapers see the same. For a minimum, add negated
    values.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._queue: deque[tuple[float, float]] = deque()  # values strictly decreasing, times increasing

    def add(self, now: float, value: float) -> None:
        while self._queue and self._queue[-1][1] <= value:
            self._queue.pop()
        self._queue.append((now, value))

    def value(self, now: float) -> float | None:
        """None when nothing happened in the window."""
        while self._queue and self._queue[0][0] <= now - self._window_s:
            self._queue.popleft()
        return self._queue[0][1] if self._queue else None
