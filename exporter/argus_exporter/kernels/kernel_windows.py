"""Kernel records of one rank to complete windows.

A window ends at a step divisible by `window_steps`, a power of two chosen so that it lasts about
`windows.seconds`; a window that cut a step would move counts between modes and can hide a slow rank
(docs/evidence/shifts.md). Without iteration marks windows are cut by plain time. A kernel belongs to the
window in which it started, so one that straddles a boundary is counted once.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KernelArray, join, select
from argus_exporter.kernels.communicators import CollectiveSpan

_MEDIAN_OF_STEPS: Final = 16
_STEPS_TO_CHOOSE: Final = 4
_KEPT_WITHIN: Final = 0.7
"""Powers of two that the best length may be away from the one in use: windows of 37 to 98 s for 60 s."""
_PENDING_LIMIT: Final = 4_000_000
"""Kernel records kept for one open window (160 MB); 1e5 events a minute need 1e5."""
_COLLECTIVES_KEPT: Final = 4096
_MARKS_KEPT: Final = 65_536
_LATEST_NS: Final = 2**62
"""The year 2116: later times are nonsense, and must fit 64 bits with a sign."""
_AHEAD_NS: Final = 60_000_000_000
"""How far the time of a kernel may be ahead of the host's: one beyond would hold up all windows."""
_LATE_RECORDS: Final = 5
"""Settling times that a window waits for a first later kernel: the channel delivers in batches."""
_UNMARKED_AFTER: Final = 4
"""Window lengths (or last steps, where longer) of kernels without a mark until windows are cut by time."""


@dataclass(frozen=True)
class Boundary:
    """The end of a window: the step that closed it, its length in steps (0: by time), and when it ended."""

    last_step: int
    steps: int
    end_ns: int


@dataclass(frozen=True)
class ClosedWindow:
    """What one complete window holds, ready to be summarised (in another thread).

    Attributes:
        records: kernel records that started in the window.
        names: kernel names by `name_id`.
        step_ends_ns: ends of iterations, ascending: the one that opened the window and those within it.
        collectives: recent collectives as the host saw them.
    """

    boundary: Boundary
    records: KernelArray
    names: dict[int, str]
    step_ends_ns: NDArray[np.int64]
    collectives: tuple[CollectiveSpan, ...] = ()


class WindowLength:
    """Chooses the window length in steps from the median step time; every rank derives the same alike.

    Ranks of a synchronous job measure the same steps. A length in use is kept while it is within 0.7 powers
    of two of the best one; a rank that chooses anew (its exporter restarted) takes the shorter of two that
    its peers may have kept. So ranks differ only where the step time fell since the others chose.
    """

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=_MEDIAN_OF_STEPS)
        self._power: int | None = None
        self.steps = 0

    def add(self, duration_s: float, window_s: float) -> int:
        """Steps in a window of about `window_s` after one more iteration; 0 until four were seen."""
        self._durations.append(duration_s)
        median = statistics.median(self._durations)
        if len(self._durations) < _STEPS_TO_CHOOSE or median <= 0:
            return self.steps
        best = math.log2(window_s / median)
        if self._power is None or abs(best - self._power) > _KEPT_WITHIN:
            self._power = math.floor(best + 1 - _KEPT_WITHIN)
            self.steps = 2 ** max(0, self._power)
        return self.steps


@dataclass
class KernelWindows:
    """Collects the kernel records of one rank and hands out complete windows.

    Marks may be missing. One lost mark is inferred from the next; a window whose boundary is not known is
    left out. Where kernels come and marks do not, for four windows or steps, windows are cut by time, until
    the next mark.
    """

    seconds: float
    settle_seconds: float
    names: dict[int, str]
    steps: int | None = None
    """Fixed window length; None derives it from `seconds`."""
    unix_ns: Callable[[], int] = time.time_ns
    """The host's clock. It may be set back."""
    dropped: int = 0
    _length: WindowLength = field(default_factory=WindowLength)
    _records: list[KernelArray] = field(default_factory=list)
    _pending: int = 0
    _boundaries: deque[tuple[Boundary, float]] = field(default_factory=deque)
    _opened_at: int | None = None
    _newest_ns: int = 0
    _last_mark: wire.Iteration | None = None
    _marks_until: float = -math.inf
    _marks: deque[int] = field(default_factory=lambda: deque(maxlen=_MARKS_KEPT))
    _collectives: deque[CollectiveSpan] = field(default_factory=lambda: deque(maxlen=_COLLECTIVES_KEPT))
    _time_index: int | None = None

    def add(self, records: KernelArray, now: float) -> None:
        """Take kernel records; `now` is monotonic seconds."""
        if self._pending + len(records) > _PENDING_LIMIT:
            self.dropped += len(records)
            return
        self._records.append(records)
        self._pending += len(records)
        newest_ns = max(self._newest_ns, int(records["start_ns"].max()))
        self._newest_ns = min(newest_ns, self.unix_ns() + _AHEAD_NS)
        if now >= self._marks_until:
            self._mark_by_time(now)

    def collective(self, span: CollectiveSpan) -> None:
        """Take a collective that the host saw."""
        if span.end_ns < _LATEST_NS:
            self._collectives.append(span)

    def restart(self) -> None:
        """Forget the open window: the producer reconnected, so records are missing.

        Whether the job marks its iterations is remembered, for a while.
        """
        self._records, self._pending, self._newest_ns = [], 0, 0
        self._boundaries.clear()
        self._marks.clear()
        self._opened_at = self._time_index = self._last_mark = None

    def iteration(self, record: wire.Iteration, now: float) -> None:
        """Take an iteration mark."""
        seconds = record.duration_ns / 1e9
        if now >= self._marks_until:  # until now windows were cut by time
            self._boundaries.clear()
            self._opened_at = self._time_index = None
        if record.total_count == 1:
            # The producer's first iteration: everything that it ever sent lies in the window that it opens.
            self._opened_at = record.step - 1
        self._marks_until = now + _UNMARKED_AFTER * max(self.seconds, seconds)
        self._marks.append(min(record.end_ns, _LATEST_NS))
        steps = self.steps or self._length.add(seconds, self.seconds)
        last, self._last_mark = self._last_mark, record
        if not steps:
            return
        if record.step % steps == 0:
            self._close(Boundary(record.step, steps, record.end_ns), now)
        elif record.step % steps == 1 and last is not None and last.step == record.step - 2:
            # The mark of the boundary was lost; this step began when that one ended.
            self._close(Boundary(record.step - 1, steps, record.end_ns - record.duration_ns), now)

    def _close(self, boundary: Boundary, now: float) -> None:
        self._boundaries.append((boundary, now))

    def _mark_by_time(self, now: float) -> None:
        length_ns = int(self.seconds * 1e9)
        index = self._newest_ns // length_ns
        if self._time_index is None:  # from marks to time: what is open began at no boundary
            self._opened_at = None
        elif index > self._time_index:
            self._close(Boundary(index, 0, index * length_ns), now)
        self._time_index = index

    def take_complete(self, now: float) -> list[ClosedWindow]:
        """Windows whose records have arrived.

        A long kernel is reported when it ends, after short ones that started later: a window waits for
        `settle_seconds`, by the kernels' clock or by ours. Without any later kernel it waits longer.
        """
        complete: list[ClosedWindow] = []
        while self._boundaries:
            boundary, arrived = self._boundaries[0]
            if not self._settled(boundary.end_ns, now - arrived):
                break
            self._boundaries.popleft()
            records, marks = self._cut(boundary.end_ns)
            # Complete only if we saw it from its first step on: not before the first boundary of a job that
            # ran already, and not where the window length changed or a mark was lost.
            length = boundary.steps or 1
            if self._opened_at == boundary.last_step - length and len(records):
                collectives = tuple(self._collectives)
                complete.append(ClosedWindow(boundary, records, dict(self.names), marks, collectives))
            self._opened_at = boundary.last_step
        return complete

    def _settled(self, end_ns: int, waited_s: float) -> bool:
        if self._newest_ns <= end_ns:
            return waited_s >= _LATE_RECORDS * self.settle_seconds
        return waited_s >= self.settle_seconds or self._newest_ns > end_ns + self.settle_seconds * 1e9

    def _cut(self, end_ns: int) -> tuple[KernelArray, NDArray[np.int64]]:
        everything = join(self._records)
        before = everything["start_ns"] <= end_ns
        rest = select(everything, ~before)
        self._records = [rest] if len(rest) else []
        self._pending = len(rest)
        marks: list[int] = []
        while self._marks and self._marks[0] < end_ns:  # the one that ends the window opens the next
            marks.append(self._marks.popleft())
        window = everything if not len(rest) else select(everything, before)
        return window, np.array(marks, np.int64)
