"""The steps of a rank: the last one, and the extremes of those before it."""

from __future__ import annotations

from dataclasses import dataclass

from argus_core import wire
from argus_core.overdue import overdue_after
from argus_exporter.ranks.extremes import TrailingExtreme


@dataclass
class Iterations:
    """`shortest` keeps negated seconds: the least is the largest of them."""

    last: wire.Iteration
    shortest: TrailingExtreme
    longest: TrailingExtreme
    told_at: float = 0.0
    """When the last one was, monotonic seconds."""

    @classmethod
    def starting_with(cls, first: wire.Iteration, extremes_seconds: float) -> Iterations:
        return cls(first, TrailingExtreme(extremes_seconds), TrailingExtreme(extremes_seconds))

    def add(self, record: wire.Iteration, now: float) -> None:
        """One more step, at `now` (monotonic seconds)."""
        self.last, self.told_at = record, now
        seconds = record.duration_ns / 1e9
        self.shortest.add(now, -seconds)
        self.longest.add(now, seconds)

    def overdue(self, now: float) -> bool:
        """Whether the running one takes far longer than they usually do."""
        usual_s = self.last.total_seconds / self.last.total_count if self.last.total_count else 0.0
        return now - self.told_at > overdue_after(usual_s)
