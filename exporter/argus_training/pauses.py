"""Running totals of what stops the host now and then: garbage collections by generation, JIT compilations.

The totals are the producer's, so that an exporter restart is no reset.
"""

from __future__ import annotations


class Pauses:
    """One kind of pause: how many, how long in all, and the latest (on the clock of spans)."""

    __slots__ = ("count", "latest_ns", "seconds", "start_ns", "unsent")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.start_ns = 0
        self.latest_ns = 0
        self.unsent = False

    def add(self, start_ns: int, duration_ns: int) -> None:
        self.count += 1
        self.seconds += duration_ns / 1e9
        self.start_ns = start_ns
        self.latest_ns = duration_ns
        self.unsent = True
