"""Warnings that a peer can provoke at will: each kind once a minute at most."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from argus_core.log import Log

_INTERVAL_S: Final = 60.0


class LogLimiter:
    """Counts what it holds back and says so with the next line of that kind."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said_at: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def warning(self, kind: str, message: str, /, **values: object) -> None:
        """Log `message` unless a line of this kind was logged within the last minute."""
        now = self._clock()
        if now - self._said_at.get(kind, -_INTERVAL_S) < _INTERVAL_S:
            self._held_back[kind] = self._held_back.get(kind, 0) + 1
            return
        self._said_at[kind] = now
        if held_back := self._held_back.pop(kind, 0):
            values["more_since_last_line"] = held_back
        self._log.write(logging.WARNING, message, values)


class Failures:
    """Errors of ours in loops that go on: counted by loop, and each kind said once a minute."""

    def __init__(self, log: Log) -> None:
        self._limiter = LogLimiter(log)
        self.counts: Counter[str] = Counter()

    @contextlib.contextmanager
    def contained(self, loop: str, message: str, /, **values: object) -> Iterator[None]:
        """An error in one round of a loop ends neither the other rounds nor the loop."""
        try:
            yield
        except Exception:
            self.counts[loop] += 1
            self._limiter.warning(f"{message} {values}", message, **values, error=traceback.format_exc())
