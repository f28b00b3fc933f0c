"""Signals that end us, made orderly: an exception while working, put off while stopping."""

from __future__ import annotations

import signal
import threading
from types import FrameType

_TERMINATING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(SystemExit):
    """SIGTERM or SIGHUP, as an exception: unwinds through every `with`."""


class StopSignals:
    """Owns the handlers from `raise_them` to `restore`. Does nothing outside the main thread."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, object] = {}

    def raise_them(self) -> None:
        """SIGTERM and SIGHUP raise `Terminated` from here on; Ctrl-C raises KeyboardInterrupt anyway."""
        for number in _TERMINATING:
            self._set(number, _terminate)

    def put_off(self) -> None:
        """Ignore them, and Ctrl-C: stopping takes bounded time, and half stopped is worst."""
        for number in (*_TERMINATING, signal.SIGINT):
            self._set(number, signal.SIG_IGN)

    def restore(self) -> None:
        """The handlers that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave us
        self._before.clear()

    def _set(self, number: signal.Signals, handler: object) -> None:
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(number, handler)  # type: ignore[arg-type]  # one of ours
            self._before.setdefault(number, before)


def _terminate(number: int, _: FrameType | None) -> None:
    raise Terminated(128 + number)
