"""What ranks did in their last steps, where steps are so long that the rules' window holds fewer than three.

For all other ranks the rules take their means from the totals; of these they take what is told here, so that
nothing in Prometheus has to look back ten minutes at every rank.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from argus_exporter.ranks.phases import PhaseKey

_WINDOW_S: Final = 600.0
_LONG_S: Final = 25.0
"""A mean over `window` of jsonnet/config.libsonnet (120 s) needs three steps, by the scrapes that lie in it.

Two scrapes a minute apart have seen two steps of 30 s, or one; where steps vary about that, a mean would come
and go, and with it whoever is found by it.
"""

PhaseTotals = Mapping[PhaseKey, tuple[int, float]]
"""Spans and seconds, by phase."""


@dataclass(frozen=True)
class RecentMean:
    """Of one phase.

    Attributes:
        seconds: of one span, without the step that had most.
        spans_per_second: in all steps.
    """

    seconds: float
    spans_per_second: float


@dataclass(frozen=True)
class _Mark:
    at: float
    steps: int
    phases: PhaseTotals
    work: Mapping[str, float]


class LongSteps:
    """The last steps of one rank. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        """Ends of steps, as far apart as long steps are: one may begin at any time."""
        self._durations: deque[float] = deque(maxlen=3)
        self._steps = 0

    def ended(
        self,
        now: float,
        steps: int,
        seconds: float,
        phases: Callable[[], PhaseTotals],
        work: Mapping[str, float],
    ) -> None:
        """A step ended.

        Args:
            steps: that the rank has made in all.
            seconds: that this one took.
            phases: called at most once in 25 s.
            work: total of each unit.
        """
        if steps <= self._steps:  # its process has started again
            self._marks.clear()
            self._durations.clear()
        self._steps = steps
        self._durations.append(seconds)
        if not self._marks or now - self._marks[-1].at >= _LONG_S:
            self._forget(now)
            self._marks.append(_Mark(now, steps, phases(), dict(work)))

    def means(self, now: float) -> dict[PhaseKey, RecentMean]:
        """By phase; empty where steps are not long, or where too few ended in the last ten minutes."""
        marks = self._recent(now)
        if not marks:
            return {}
        over = marks[-1].at - marks[0].at
        found = ((key, _mean([mark.phases for mark in marks], key, over)) for key in marks[-1].phases)
        return {key: mean for key, mean in found if mean is not None}

    def work(self, now: float) -> dict[str, float]:
        """Units of work a step, by unit; empty as `means`."""
        marks = self._recent(now)
        if not marks:
            return {}
        first, last = marks[0], marks[-1]
        steps = last.steps - first.steps
        return {unit: (last.work[unit] - before) / steps for unit, before in first.work.items()}

    def _recent(self, now: float) -> Sequence[_Mark]:
        """Of what a mean can be made. One step alone may be uneven: two decide, and two have to be there."""
        self._forget(now)
        if sum(seconds >= _LONG_S for seconds in self._durations) < 2 or len(self._marks) < 3:
            return ()
        return self._marks

    def _forget(self, now: float) -> None:
        while self._marks and self._marks[0].at <= now - _WINDOW_S:
            self._marks.popleft()


def _mean(totals: Sequence[PhaseTotals], key: PhaseKey, over: float) -> RecentMean | None:
    kept = [one[key] for one in totals if key in one]
    steps = [
        (count - count_before, seconds - seconds_before)
        for (count_before, seconds_before), (count, seconds) in itertools.pairwise(kept)
        if count > count_before
    ]
    if len(steps) < 2:
        return None
    most = max(steps, key=lambda step: step[1])
    spans = sum(count for count, _ in steps)
    seconds = sum(seconds for _, seconds in steps)
    return RecentMean((seconds - most[1]) / (spans - most[0]), spans / over)
