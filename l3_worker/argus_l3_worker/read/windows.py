"""Which windows there are, and when to look at each. No I/O.

Ranks are scraped at different times, so around a window's end some publish the new one, some still the old.
Looked at when most ranks publish it, each window is seen by nearly all of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from argus_l3_worker.read.prometheus import Series

# A window that fewer of the ranks publish is taken to be still coming in.
_COMPLETE_SHARE = 0.9


@dataclass(frozen=True)
class Span:
    """The time that a window's steps took, about: up to Unix time `end`, for `seconds`."""

    end: float
    seconds: float


@dataclass(frozen=True)
class PublishedWindow:
    """A window as the timeline shows it.

    Attributes:
        last_step: the step that closed it.
        first_seen: Unix time from which on more ranks published it than any other.
        time: Unix time, the latest at which most ranks publish it.
        ranks: how many do then.
        seconds: how long its steps took: since the window before was first seen. NaN for the first of all.
    """

    last_step: int
    first_seen: float
    time: float
    ranks: int
    seconds: float = math.nan

    @property
    def span(self) -> Span | None:
        """When its steps were done, as far as the timeline tells; None where it does not."""
        return Span(self.first_seen, self.seconds) if self.seconds > 0.0 else None


def published_windows(timeline: Iterable[Series]) -> list[PublishedWindow]:
    """Windows of one job in order of appearance.

    A window is what more ranks publish than any other at some time: a rank that counts its steps apart, as
    one whose process was replaced or marks none, has windows of its own, which are none of the job's.

    Args:
        timeline: `count_values("last_step", argus_kernel_window_last_step)` over time.

    Where the step goes back, the job was restarted: what came before is left out.
    """
    published: dict[float, dict[int, float]] = defaultdict(dict)
    for series in timeline:
        last_step = float(series.labels["last_step"])
        if math.isfinite(last_step):
            for time, ranks in series.points:
                published[time][int(last_step)] = ranks
    windows: dict[int, PublishedWindow] = {}
    now = 0
    for time, steps in sorted(published.items()):
        # Of equally many the one nearest to where the job is, so that a tie does not go back and forth.
        _, _, step = max((ranks, -abs(step - now), step) for step, ranks in steps.items())
        if step < now:
            windows.clear()
        now = step
        known = windows.setdefault(now, PublishedWindow(now, time, time, 0))
        if steps[now] >= known.ranks:
            windows[now] = replace(known, time=time, ranks=int(steps[now]))
    found = list(windows.values())
    lasted = [after.first_seen - before.first_seen for before, after in pairwise(found)]
    return [replace(one, seconds=of) for one, of in zip(found, [math.nan, *lasted], strict=False)]


def due(
    seen: list[PublishedWindow], judged: int, ranks: int, now: float, patience: float, limit: int
) -> list[PublishedWindow]:
    """The windows to judge now, oldest first, at most `limit`, the newest of those that came since.

    What a backlog leaves out stays out: verdicts are of the last windows, and an older one is none of them.

    Args:
        seen: from `published_windows`.
        judged: last step of the newest window judged before, -1 for none.
        ranks: how many ranks publish windows now.
        now: Unix time of the judgement.
        patience: seconds that the newest window is waited for while less than 90 % of the ranks publish it.
    """
    if not seen:
        return []
    *older, newest = seen
    coming_in = newest.ranks < _COMPLETE_SHARE * ranks and now - newest.first_seen < patience
    ready = older if coming_in else seen
    fresh = [window for window in ready if window.last_step > judged]
    return fresh[-limit:]
