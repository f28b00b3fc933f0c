"""Kernel records of one rank to windows, and windows to the modes of the top (kernel, stream) pairs.

A window ends at a step divisible by `window_steps`, a power of two chosen so that it lasts about
`windows.seconds`; a window that cut a step would move counts between modes and can hide a slow rank (DESIGN
section 4). Without iteration marks windows are cut by plain time. A kernel belongs to the window in which it
started, so one that straddles a boundary is counted once.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_core.modes import ModeConfig, Modes, find_modes
from argus_exporter.streams import label_streams

_MEDIAN_OF_STEPS = 16
_PENDING_LIMIT = 4_000_000
"""Kernel records kept for one open window (160 MB); 1e5 events a minute need 1e5."""


@dataclass(frozen=True)
class Boundary:
    """The end of a window: the step that closed it, its length in steps (0: by time), and when it ended."""

    last_step: int
    steps: int
    end_ns: int


@dataclass(frozen=True)
class ClosedWindow:
    """Records of one complete window, ready to be clustered (in another thread)."""

    boundary: Boundary
    records: KernelArray
    names: dict[int, str]
    streams: dict[int, str]


@dataclass(frozen=True)
class PairStatistics:
    """One (kernel, stream) pair in one window. Times in seconds."""

    kernel: str
    name: str
    stream: str
    count: int
    seconds: float
    modes: Modes | None
    """None where the pair is not among the top pairs."""


@dataclass(frozen=True)
class WindowStatistics:
    boundary: Boundary
    pairs: tuple[PairStatistics, ...]
    """By time share, largest first."""
    coverage: float
    cutoff: float


class WindowLength:
    """Chooses the window length in steps from the median step time; every rank derives the same alike.

    The length changes only when the step time has moved by more than 1.5x from what the current length was
    chosen for, so that noise at a power-of-two edge cannot make it alternate.
    """

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=_MEDIAN_OF_STEPS)
        self._chosen_for: tuple[float, float] | None = None
        self.steps = 0

    def add(self, duration_s: float, window_s: float) -> int:
        """Steps in a window of about `window_s` after one more iteration; 0 until enough were seen."""
        self._durations.append(duration_s)
        if len(self._durations) < 4:
            return self.steps
        median = float(np.median(self._durations))
        if median <= 0:
            return self.steps
        if self._chosen_for is not None:
            moved = median / self._chosen_for[0]
            if window_s == self._chosen_for[1] and 1 / 1.5 < moved < 1.5:
                return self.steps
        self._chosen_for = median, window_s
        self.steps = 2 ** max(0, round(math.log2(window_s / median)))
        return self.steps


@dataclass
class KernelWindows:
    """Collects the kernel records of one rank and hands out complete windows."""

    seconds: float
    settle_seconds: float
    names: dict[int, str]
    steps: int | None = None
    """Fixed window length; None derives it from `seconds`."""
    dropped: int = 0
    _length: WindowLength = field(default_factory=WindowLength)
    _records: list[KernelArray] = field(default_factory=list)
    _pending: int = 0
    _boundaries: deque[tuple[Boundary, float]] = field(default_factory=deque)
    _opened_at: int | None = None
    _newest_ns: int = 0
    _marked: bool = False
    _time_index: int | None = None
    _streams: dict[int, str] = field(default_factory=dict)

    def add(self, records: KernelArray, now: float) -> None:
        """Take kernel records; `now` is monotonic seconds."""
        if self._pending + len(records) > _PENDING_LIMIT:
            self.dropped += len(records)
            return
        self._records.append(records)
        self._pending += len(records)
        self._newest_ns = max(self._newest_ns, int(records["start_ns"].max()))
        if not self._marked:
            self._mark_by_time(now)

    def restart(self) -> None:
        """Forget the open window: the producer reconnected, so records are missing."""
        self._records, self._pending = [], 0
        self._boundaries.clear()
        self._opened_at = None
        self._marked = False

    def iteration(self, record: wire.Iteration, now: float) -> None:
        """Take an iteration mark."""
        if not self._marked:  # until now windows were cut by time
            self._marked = True
            self._boundaries.clear()
            # The producer's first iteration: everything that it ever sent lies in the window that it opens.
            self._opened_at = record.step - 1 if record.total_count == 1 else None
        steps = self.steps or self._length.add(record.duration_ns / 1e9, self.seconds)
        if steps and record.step % steps == 0:
            self._boundaries.append((Boundary(record.step, steps, record.end_ns), now))

    def _mark_by_time(self, now: float) -> None:
        length_ns = int(self.seconds * 1e9)
        index = self._newest_ns // length_ns
        if self._time_index is not None and index > self._time_index:
            self._boundaries.append((Boundary(index, 0, index * length_ns), now))
        self._time_index = index

    def take_complete(self, now: float) -> list[ClosedWindow]:
        """Windows whose records have arrived: a later kernel was seen, or the settling time has passed."""
        complete: list[ClosedWindow] = []
        while self._boundaries:
            boundary, arrived = self._boundaries[0]
            if self._newest_ns <= boundary.end_ns and now - arrived < self.settle_seconds:
                break
            self._boundaries.popleft()
            records = self._cut(boundary.end_ns)
            # Complete only if we saw it from its first step on: not before the first boundary of a job that
            # ran already, and not where the window length changed or a mark was lost.
            length = boundary.steps or 1
            if self._opened_at == boundary.last_step - length and len(records):
                self._streams = label_streams(records, self.names, self._streams)
                complete.append(ClosedWindow(boundary, records, dict(self.names), dict(self._streams)))
            self._opened_at = boundary.last_step
        return complete

    def _cut(self, end_ns: int) -> KernelArray:
        everything = np.concatenate(self._records) if self._records else np.empty(0, KERNEL_DTYPE)
        before = everything["start_ns"] <= end_ns
        rest = everything[~before]
        self._records = [rest] if len(rest) else []
        self._pending = len(rest)
        window: KernelArray = everything[before]
        return window


def summarise(
    window: ClosedWindow, top_pairs: int, config: ModeConfig, kernel_ids: dict[str, str]
) -> WindowStatistics:
    """Cluster the top pairs of a window by time share. `kernel_ids` caches full name to label value."""
    records = window.records
    pair = records["name_id"].astype(np.uint64) << np.uint64(32) | records["stream"].astype(np.uint64)
    keys, inverse, counts = np.unique(pair, return_inverse=True, return_counts=True)
    seconds = np.bincount(inverse, weights=records["duration_ns"].astype(np.float64)) / 1e9
    by_share = np.argsort(-seconds, kind="stable")
    total = float(seconds.sum())
    order = np.argsort(inverse, kind="stable")
    starts = np.concatenate(([0], np.cumsum(counts)))
    durations = records["duration_ns"][order].astype(np.float64) / 1e9
    pairs: list[PairStatistics] = []
    for place, index in enumerate(by_share):
        name_id, raw = int(keys[index] >> np.uint64(32)), int(keys[index] & np.uint64(0xFFFFFFFF))
        name = window.names.get(name_id, f"unknown_{name_id}")
        top = place < top_pairs and seconds[index] > 0
        modes = find_modes(durations[starts[index] : starts[index + 1]], config) if top else None
        pairs.append(
            PairStatistics(
                kernel=kernel_ids[name],
                name=name,
                stream=window.streams[raw],
                count=int(counts[index]),
                seconds=float(seconds[index]),
                modes=modes,
            )
        )
    published = [p for p in pairs if p.modes is not None]
    covered = sum(p.seconds for p in published)
    return WindowStatistics(
        boundary=window.boundary,
        pairs=tuple(pairs),
        coverage=covered / total if total else 0.0,
        cutoff=published[-1].seconds / total if published and total else 0.0,
    )
