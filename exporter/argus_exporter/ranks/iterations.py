"""The steps of a rank: the last one, and the extremes of those before it."""

from __future__ import annotations

from dataclasses import dataclass

from argus_core import wire
from argus_exporter.ranks.extremes import TrailingExtreme


@dataclass
class Iterations:
    """`shortest` keeps negated seconds: the least is the largest of them."""

    last: wire.Iteration
    shortest: TrailingExtreme
    longest: TrailingExtreme

    @classmethod
    def starting_with(cls, first: wire.Iteration, extremes_seconds: float) -> Iterations:
        return cls(first, TrailingExtreme(extremes_seconds), TrailingExtreme(extremes_seconds))

    def add(self, record: wire.Iteration, now: float) -> None:
        """One more step, at `now` (monotonic seconds)."""
        self.last = record
        seconds = record.duration_ns / 1e9
        self.shortest.add(now, -seconds)
        self.longest.add(now, seconds)
