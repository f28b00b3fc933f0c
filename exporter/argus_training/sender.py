"""A thread that flushes the recorder, so that the thread that trains does not pay for system calls.

Packing and a send that wakes the exporter take some 30 us with cold caches, more than all hooks of a step.
Here they hold the GIL for a part of that, once a second, and the send itself holds nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Sender:
    """Calls `flush` every `interval_s` until stopped.

    A daemon: it never keeps the process from ending. It does not exist in a child of fork.

    Raises:
        RuntimeError: the system gives no thread.
    """

    def __init__(self, flush: Callable[[], None], interval_s: float) -> None:
        self._flush = flush
        self._interval_s = interval_s
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="argus-sender", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Flush now, not at the end of the interval. Never waits."""
        if not self._wake.is_set():
            self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """Let it end; wait for a flush that is under way."""
        self._stopped = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if not self._stopped:
                self._flush()
