"""Compress the durations of one (kernel, stream) into KDE modes: a triple (count, p50, p99) each.

Valleys of a Gaussian kernel density estimate over log durations are the boundaries between modes.
No number of modes is given, there is no warm-up and no history. Cost O(n log n) for the sort, then O(n).

Two methods:

* `recursive` (default): Scott's bandwidth is estimated again inside each segment that a valley cut
  off, and again without a few far events, because both inflate the first sigma: with a third mode
  10x away the literal formula counts modes right in 27 % of windows, this one in 97 %
  (docs/evidence/modes.md).
* `scott`: the paper's literal method, one bandwidth for the whole window, for comparison with it.

Every quantile here is type 7 of Hyndman & Fan 1996: linear between order statistics, in seconds.

The compiled twin in native/numeric runs where it was built; ARGUS_NO_NATIVE=1 keeps to numpy. Both
receive the same sorted input and give the same modes, up to rounding.

Source: ARGUS section 5.2 (KDE, valleys, filters). It leaves the thresholds open: docs/evidence/modes.md.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from argus_core import native
from argus_core.settings import constant

Floats = NDArray[np.float64]

# A leaf needs about 256 points to draw its density; 8192 covers a window with far outliers at h / 3.
_GRID_POINTS: Final = (256, 8192)
_SCOTT_GRID_POINTS: Final = (512, 512)
# Bandwidths: the kernel is cut at 4 h, where it has fallen to 0.0003 of its height.
_KERNEL_REACH: Final = 4.0
_GRID_MARGIN: Final = 3.0
# Below this a bandwidth is rounding noise of the logarithm, not spread.
_BANDWIDTH_MINIMUM: Final = 1e-12
# The literal method knows no prominence, but the last bits of a flat density are not a valley.
_SCOTT_PROMINENCE: Final = 1.0 - 1e-9
# From five events on, one outlier cannot touch the quartiles that its cut is judged by.
_TAIL_MIN_EVENTS: Final = 5
# Log units. On a coarse clock 2 and 3 ticks are a ratio of exactly 1.5: not for rounding to decide.
_ROUNDING: Final = 1e-9
# Interquartile range of a standard normal: turns an IQR into a standard deviation.
_NORMAL_IQR: Final = 1.349


@dataclass(frozen=True)
class Mode:
    """Events that belong together. Type-7 quantiles of their durations, in seconds."""

    count: int
    p50: float
    p99: float


@dataclass(frozen=True)
class Modes:
    """What one window of one (kernel, stream) says. Every event is in exactly one of the three.

    Attributes:
        modes: ascending by p50.
        tail_events: events too far from the median of their mode to describe it.
        dropped: durations that were zero, negative or not finite, and so have no logarithm.
    """

    modes: tuple[Mode, ...]
    tail_events: int
    dropped: int


@dataclass(frozen=True)
class ModeConfig:
    """How modes are told apart. Measurements behind the defaults: docs/evidence/modes.md.

    `scott` uses only tick_seconds, min_events, min_share and min_boundary_ratio.
    """

    method: Literal["recursive", "scott"] = constant(
        "recursive",
        "scott, the literal method of the ARGUS paper, is there to be compared with (bench/modes.py)",
    )
    tick_seconds: float = constant(
        0.0,
        "resolution of the clock: equal durations are spread evenly over one tick, since spikes a tick "
        "apart would each become a mode; 0 where durations are continuous",
    )
    prominence: float = constant(0.85, "a valley stays if it is at most this share of its lower peak")
    min_events: int = constant(5, "a mode has at least this many events")
    min_share: float = constant(0.005, "a mode has at least this share of the window's events")
    min_boundary_ratio: float = constant(1.05, "neighbouring boundaries lie at least this factor apart")
    max_depth: int = constant(6, "how often a segment may be cut again")
    bandwidth_floor: float = constant(0.002, "least bandwidth in log units: finer structure is no mode")
    bandwidth_floor_ticks: float = constant(0.6, "least bandwidth in clock ticks, whichever is larger")
    tail_ratio: float = constant(1.5, "an event within this factor of its mode's median is never tail")
    tail_deviations: float = constant(
        6.0, "nor is one within this many robust standard deviations (IQR / 1.349) of the logarithms"
    )

    def __post_init__(self) -> None:
        for key, allowed, meets in (
            ("method", "recursive, scott", self.method in ("recursive", "scott")),
            ("tick_seconds", "0 or a positive number", 0.0 <= self.tick_seconds < math.inf),
            ("prominence", "over 0, under 1", 0.0 < self.prominence < 1.0),
            ("min_events", "1 or more", self.min_events >= 1),
            ("min_share", "0 to 1", 0.0 <= self.min_share <= 1.0),
            ("min_boundary_ratio", "1 or more", 1.0 <= self.min_boundary_ratio < math.inf),
            ("max_depth", "0 to 32", 0 <= self.max_depth <= 32),
            ("bandwidth_floor", "0 or a positive number", 0.0 <= self.bandwidth_floor < math.inf),
            ("bandwidth_floor_ticks", "0 or a positive number", 0.0 <= self.bandwidth_floor_ticks < math.inf),
            ("tail_ratio", "over 1, infinity to cut no tail", self.tail_ratio > 1.0),
            ("tail_deviations", "0 or a positive number", 0.0 <= self.tail_deviations < math.inf),
        ):
            if not meets:
                raise ValueError(f"{key} is {getattr(self, key)!r}; allowed: {allowed}")


@dataclass(frozen=True)
class Tuning:
    """A ModeConfig resolved for one window: all that the two twins need to know."""

    min_count: int
    prominence: float
    boundary_spacing: float  # log units
    max_depth: int
    bandwidth_floor: float  # log units
    bandwidth_floor_seconds: float
    grid_points: tuple[int, int]
    tail_log_ratio: float  # infinite: no tail
    tail_deviations: float


DEFAULT_CONFIG: Final = ModeConfig()


def find_modes(durations: Floats, config: ModeConfig = DEFAULT_CONFIG) -> Modes:
    """Compress one window of durations; a function of the multiset of its durations alone.

    No random numbers: permuting the events, or asking again, changes nothing. Degenerate windows:
    no usable event gives no mode; one event, or all equal, gives one mode with p50 = p99; fewer
    than twice `min_events` events give one mode; fewer than five keep even an outlier.

    Args:
        durations: seconds, shape (n,), any order; what is not finite and positive is counted as dropped.
        config: see ModeConfig.

    Source: ARGUS section 5.2, equation 1; the recursion and the tail are ours (docs/evidence/modes.md).
    """
    given = np.asarray(durations, dtype=np.float64)
    events = given[(given > 0.0) & (given < np.inf)]
    dropped = given.size - events.size
    count = events.size
    if count == 0:
        return Modes((), 0, dropped)
    events.sort()
    if events[0] == events[-1]:
        value = float(events[0])
        return Modes((Mode(count, value, value),), 0, dropped)
    if config.tick_seconds > 0.0:
        events = spread_ties(events, config.tick_seconds)
    logs, tuning = np.log(events), _resolve(config, count)
    compiled = native.library()
    if compiled is None:
        modes = _split_into_modes(events, logs, tuning)
    else:
        modes = tuple(Mode(*triple) for triple in compiled.split_modes(events, logs, tuning))
    return Modes(modes, count - sum(mode.count for mode in modes), dropped)


def mode_counts(windows: Floats, config: ModeConfig) -> NDArray[np.int64]:
    """Events of each mode that `find_modes` finds in each of several windows, in one call.

    Args:
        windows: seconds, finite and > 0, ascending in each window, whose events are not all equal; shape
            (windows, n), n >= 2.
        config: one without a clock tick.

    Returns:
        Shape (windows, most), 0 where a window has fewer modes.
    """
    logs, tuning = np.log(windows), _resolve(config, windows.shape[1])
    compiled = native.library()
    if compiled is not None:
        return compiled.mode_counts(windows, logs, tuning)
    counts = np.zeros((windows.shape[0], windows.shape[1] // tuning.min_count + 1), dtype=np.int64)
    for row, of_window in enumerate(zip(windows, logs, strict=True)):
        modes = _split_into_modes(*of_window, tuning)
        counts[row, : len(modes)] = [mode.count for mode in modes]
    return counts


def spread_ties(events: Floats, tick: float) -> Floats:
    """Spread equal durations evenly over their clock tick: dithering without random numbers.

    A group reaches at most half a tick, and at most halfway to its neighbours, so the order holds
    whatever the true tick is. A median of spread events is the median of grouped data: finer than
    a tick, where the raw one would jump by a whole tick (5 % at 20 us and 1 us).

    Args:
        events: seconds, ascending, > 0, shape (n,), n >= 1.
        tick: seconds, > 0.

    Returns:
        Seconds, ascending, > 0, shape (n,).
    """
    starts = np.concatenate(([0], np.flatnonzero(events[1:] != events[:-1]) + 1))
    if starts.size == events.size:
        return events
    sizes = np.diff(starts, append=events.size)
    values = events[starts]
    gaps = np.concatenate(([tick], np.diff(values), [tick]))
    reach = 0.5 * np.minimum(np.minimum(tick, values), np.minimum(gaps[:-1], gaps[1:]))
    # Midpoints of equal parts of (-reach, reach): a group of one stays where it is.
    lowest, step = np.repeat(np.stack((reach * (1.0 / sizes - 1.0), 2.0 * reach / sizes)), sizes, axis=1)
    within = np.arange(events.size) - np.repeat(starts, sizes)
    return np.asarray(events + lowest + step * within)


def _resolve(config: ModeConfig, count: int) -> Tuning:
    min_count = max(config.min_events, math.ceil(config.min_share * count))
    spacing = math.log(config.min_boundary_ratio)
    if config.method == "scott":
        return Tuning(
            min_count=min_count,
            prominence=_SCOTT_PROMINENCE,
            boundary_spacing=spacing,
            max_depth=0,
            bandwidth_floor=0.0,
            bandwidth_floor_seconds=0.0,
            grid_points=_SCOTT_GRID_POINTS,
            tail_log_ratio=math.inf,
            tail_deviations=0.0,
        )
    return Tuning(
        min_count=min_count,
        prominence=config.prominence,
        boundary_spacing=spacing,
        max_depth=config.max_depth,
        bandwidth_floor=config.bandwidth_floor,
        bandwidth_floor_seconds=config.bandwidth_floor_ticks * config.tick_seconds,
        grid_points=_GRID_POINTS,
        tail_log_ratio=math.log(config.tail_ratio),
        tail_deviations=config.tail_deviations,
    )


def _split_into_modes(events: Floats, logs: Floats, tuning: Tuning) -> tuple[Mode, ...]:
    """Numpy twin of argus_modes_split (native/numeric/modes.hpp): its oracle and its fallback.

    Args:
        events: seconds, ascending, shape (n,), n >= 2.
        logs: their natural logarithms.
        tuning: resolved configuration.
    """
    cuts = [0, events.size]
    pending = [(0, events.size, 0)]
    while pending:
        begin, end, depth = pending.pop()
        inner, core = _cuts(events[begin:end], logs[begin:end], tuning)
        edges = [begin + edge for edge in (core[0], *inner, core[1])]
        cuts += edges[1:-1]
        # A segment is looked at again where its bandwidth will be another: cut, or without islands.
        if depth < tuning.max_depth and (inner or core != (0, end - begin)):
            pending += [(a, b, depth + 1) for a, b in pairwise(edges)]
    cuts.sort()
    kept = (_without_tail(logs, begin, end, tuning) for begin, end in pairwise(cuts))
    return tuple(
        Mode(end - begin, _quantile(events, begin, end, 0.5), _quantile(events, begin, end, 0.99))
        for begin, end in kept
    )


def _cuts(events: Floats, logs: Floats, tuning: Tuning) -> tuple[list[int], tuple[int, int]]:
    """Indices at which valleys cut one segment (none: a single mode), and its core.

    The core is the segment without its islands: events at either end beyond a valley, too few for a
    mode. Cuts are found again without them, since one far event widens the bandwidth until it
    hides what is near: with 1 % of outliers that lost a third of the two-mode windows of 200 events.
    """
    count = logs.size
    whole = (0, count)
    if count < 2 * tuning.min_count:
        return [], whole
    bandwidth = max(
        1.06 * float(np.std(logs, ddof=1)) * count**-0.2,
        tuning.bandwidth_floor,
        tuning.bandwidth_floor_seconds / _quantile(events, 0, count, 0.5),
    )
    extent = float(logs[-1] - logs[0])
    # Within one bandwidth of each other all kernels are concave, so their sum has one peak.
    if bandwidth <= _BANDWIDTH_MINIMUM or extent <= bandwidth:
        return [], whole
    origin = float(logs[0]) - _GRID_MARGIN * bandwidth
    span = extent + 2.0 * _GRID_MARGIN * bandwidth
    fewest, most = tuning.grid_points
    points = min(most, max(fewest, math.ceil(3.0 * span / bandwidth) + 1))
    step = span / (points - 1)
    density = _density(logs, bandwidth, origin, step, points)
    valleys = _valleys(density)
    if valleys.size == 0:
        return [], whole
    at_cut = np.searchsorted(logs, origin + valleys * step)
    core = (
        int(at_cut[at_cut < tuning.min_count].max(initial=0)),
        int(at_cut[count - at_cut < tuning.min_count].min(initial=count)),
    )
    enough = (at_cut >= tuning.min_count) & (count - at_cut >= tuning.min_count)
    valleys = valleys[enough]
    if valleys.size == 0:
        return [], core
    candidates = _Candidates(
        place=(valleys * step).tolist(),
        cut=at_cut[enough].tolist(),
        height=density[valleys].tolist(),
        peak=np.maximum.reduceat(density, np.concatenate(([0], valleys))).tolist(),
    )
    candidates.merge_small(count, tuning.min_count)
    candidates.merge_close(tuning.boundary_spacing)
    candidates.merge_shallow(tuning.prominence)
    return candidates.cut, core


def _density(logs: Floats, bandwidth: float, origin: float, step: float, points: int) -> Floats:
    """Gaussian KDE on an equally spaced grid, up to a constant factor: linear binning, convolution.

    Source: ARGUS equation 1; linear binning after Fan & Marron 1994, doi:10.1080/10618600.1994.10474628.
    """
    position = (logs - origin) / step
    node = position.astype(np.intp)
    to_next = np.bincount(node, weights=position - node, minlength=points)
    weights = np.bincount(node, minlength=points) - to_next
    weights[1:] += to_next[:-1]
    reach = min(int(_KERNEL_REACH * bandwidth / step) + 1, points - 1)
    kernel = np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) * (step / bandwidth)))
    # Direct, not by FFT: empty stretches between modes stay exactly 0, and at this size it is faster.
    return np.convolve(weights, kernel)[reach : reach + points]


def _valleys(density: Floats) -> NDArray[np.intp]:
    """Grid indices of the local minima; the middle of a flat one."""
    change = np.diff(density)
    moves = np.flatnonzero(change)
    rises = change[moves] > 0.0
    bottom = np.flatnonzero(~rises[:-1] & rises[1:])
    return np.asarray((moves[bottom] + 1 + moves[bottom + 1]) // 2)


@dataclass
class _Candidates:
    """Valleys still in question, ascending, and the peaks between them (one more than valleys)."""

    place: list[float]  # log units
    cut: list[int]
    height: list[float]
    peak: list[float]

    def _drop(self, index: int) -> None:
        del self.place[index], self.cut[index], self.height[index]
        self.peak[index] = max(self.peak[index], self.peak.pop(index + 1))

    def merge_small(self, count: int, min_count: int) -> None:
        """Smallest segment first, across the higher of its two valleys, until all are large enough."""
        while self.cut:
            edges = [0, *self.cut, count]
            sizes = [b - a for a, b in pairwise(edges)]
            smallest = min(sizes)
            if smallest >= min_count:
                return
            segment = sizes.index(smallest)
            if segment == 0:
                self._drop(0)
            elif segment == len(self.cut) or self.height[segment - 1] >= self.height[segment]:
                self._drop(segment - 1)
            else:
                self._drop(segment)

    def merge_close(self, spacing: float) -> None:
        """Of two boundaries closer than `spacing`, the one in the deeper valley stays."""
        index = 0
        while index + 1 < len(self.place):
            if self.place[index + 1] - self.place[index] >= spacing:
                index += 1
                continue
            self._drop(index if self.height[index] >= self.height[index + 1] else index + 1)
            index = max(index - 1, 0)

    def merge_shallow(self, prominence: float) -> None:
        """Shallowest valley first, until each is at most `prominence` of its lower peak."""
        while self.height:
            shares = [
                height / min(left, right)
                for height, left, right in zip(self.height, self.peak, self.peak[1:], strict=False)
            ]
            worst = max(shares)
            if worst <= prominence:
                return
            self._drop(shares.index(worst))


def _without_tail(logs: Floats, begin: int, end: int, tuning: Tuning) -> tuple[int, int]:
    """Narrow a mode to the events near its median.

    Robust: judged by quartiles, which a few outliers cannot move. One 5x outlier kept in a mode of
    20 events would read as 17 times its sigma (docs/evidence/modes.md).
    """
    if end - begin < _TAIL_MIN_EVENTS or math.isinf(tuning.tail_log_ratio):
        return begin, end
    middle = _quantile(logs, begin, end, 0.5)
    iqr = _quantile(logs, begin, end, 0.75) - _quantile(logs, begin, end, 0.25)
    reach = max(tuning.tail_log_ratio, tuning.tail_deviations * iqr / _NORMAL_IQR) + _ROUNDING
    segment = logs[begin:end]
    return (
        begin + int(np.searchsorted(segment, middle - reach)),
        begin + int(np.searchsorted(segment, middle + reach, side="right")),
    )


def _quantile(ascending: Floats, begin: int, end: int, q: float) -> float:
    """Type-7 quantile of ascending[begin:end]: linear between the two nearest order statistics."""
    position = q * (end - begin - 1)
    lower = int(position)
    low = float(ascending[begin + lower])
    high = float(ascending[min(begin + lower + 1, end - 1)])
    # Not above `high` by a rounding: p50 <= p99 has to hold.
    return min(low + (position - lower) * (high - low), high)
