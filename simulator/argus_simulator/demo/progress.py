"""Tells a person what goes on: one line that changes on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_PLAIN_EVERY_S = 5.0


class Reporter:
    """Writes to one stream. `say` is for lines that stay, `now` for what passes."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._start = clock()
        self._live = stream.isatty()
        self._told_at = float("-inf")
        self._open = False

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    def say(self, text: str = "") -> None:
        """A line that stays."""
        self._clear()
        print(text, file=self._stream, flush=True)
        self._told_at = float("-inf")

    def step(self, text: str) -> None:
        """A line that stays, with the time."""
        self.say(f"[{self.seconds:3.0f} s] {text}")

    def now(self, text: str) -> None:
        """What is going on at the moment; overwritten on a terminal, rare elsewhere."""
        line = f"[{self.seconds:3.0f} s] {text}"
        if self._live:
            self._clear()
            print(line, end="", file=self._stream, flush=True)
            self._open = True
        elif self._clock() - self._told_at >= _PLAIN_EVERY_S:
            self._told_at = self._clock()
            print(line, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._stream)
            self._open = False
