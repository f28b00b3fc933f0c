"""When a job began, when its steps ended, and when it was over."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class JobTimeline:
    """Times of a job.

    Attributes:
        start, end: Unix times of its first and its last moment.
        step_ends: Unix time at which each step ended on all ranks.
    """

    start: float
    end: float
    step_ends: Sequence[float]

    def begins(self, step: int) -> float:
        """When a step begins; the end of the job for one that it did not reach."""
        if step <= 0:
            return self.start
        return self.step_ends[step - 1] if step <= len(self.step_ends) else self.end

    def steps_between(self, start: float, end: float) -> int:
        """Steps that ended between two Unix times; after the last one, as many as there usually are."""
        ended = bisect.bisect_right(self.step_ends, end) - bisect.bisect_right(self.step_ends, start)
        after = end - max(start, self.step_ends[-1] if self.step_ends else start)
        return ended + int(max(0.0, after) / self._usual_s)

    @property
    def _usual_s(self) -> float:
        """Median step; the whole timeline where there are none."""
        ends = [self.start, *self.step_ends]
        return (
            statistics.median(map(float.__sub__, ends[1:], ends)) if self.step_ends else self.end - self.start
        )
