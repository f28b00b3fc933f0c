"""Warnings that a peer can provoke at will: each kind once a minute at most."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

_INTERVAL_S: Final = 60.0


class LogLimiter:
    """Counts what it holds back and says so with the next line of that kind."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said_at: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def warning(self, kind: str, text: str) -> None:
        """Log `text` unless a line of this kind was logged within the last minute."""
        now = self._clock()
        if now - self._said_at.get(kind, -_INTERVAL_S) < _INTERVAL_S:
            self._held_back[kind] = self._held_back.get(kind, 0) + 1
            return
        self._said_at[kind] = now
        held_back = self._held_back.pop(kind, 0)
        self._log.warning("%s%s", text, f" more_since_last_line={held_back}" if held_back else "")
