"""By how much a rank's modes moved against its role's, signed, in log units.

A comparison per mode does not care about counts, where W1 lets a window edge that moves a few events between
far modes hide a 7 % slow rank (docs/evidence/shifts.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_l3_worker.triples import Floats, Ints, PairTriples

# Modes of two ranks are the same mode if they overlap by this share of their union in probability.
_SAME_MODE_OVERLAP: Final = 0.5
# A mode that is cut in two on one rank and not on another, as happens by chance where peaks lie close,
# overlaps with the larger part and has another median. From this share of it on the smaller part is one.
_PART_OF_MODE: Final = 0.2
_MAD_TO_SIGMA: Final = 1.4826
# Distances from the median of n values are too short by 1 + 1.5 / n, as it follows the values: 1.38 at n = 4,
# 1.20 at 8, 1.09 at 16 for normal values; within 1 %, at n = 5 within 6 % (docs/evidence/shifts.md).
_MEDIAN_FOLLOWS: Final = 1.5
# Standard error of a sample quantile of a normal, in sigmas / sqrt(n): sqrt(p (1 - p)) / phi(z_p).
_MEDIAN_ERROR: Final = 1.2533
_P99_ERROR: Final = 3.733
# A mode that became slower as a whole moves its p99 along; where only the median jumps, the mode is two that
# the sample was too small to part. Half would do for a pure scaling; the rest is room for the noise of p99.
_P99_FOLLOWS: Final = 0.4


@dataclass(frozen=True)
class ModeShifts:
    """Shifts of one pair's modes; all shapes (ranks, reference modes), NaN where a rank lacks the mode.

    Attributes:
        p50, p99: log shift against the role's median; positive is slower.
        whole: shift of the mode as a whole: that of p50 as far as p99 confirms it, 0 if that moved the other
            way.
        p50_error, p99_error: standard error of that shift, from the rank's own sample size and spread.
        count: events of the rank in the mode; 0 where it is not matched.
        event_share, time_share: of the mode in the pair, on the median rank; shape (reference modes,).
    """

    p50: Floats
    p99: Floats
    whole: Floats
    p50_error: Floats
    p99_error: Floats
    count: Floats
    event_share: Floats
    time_share: Floats


def match_modes(count: Floats) -> tuple[Ints, int]:
    """Tell which reference mode each mode of each rank is.

    Modes are matched by their place in the rank's own distribution: a mode that holds the slowest 10 % of
    events on one rank is the one that holds the slowest 10 % on another, however slow either rank is.
    Reference is the most common number of modes (the fewer on a tie) with its median boundaries. Where a rank
    has one mode for two of these, or two for one, they are not matched: the medians would be of other things.

    Args:
        count: events by mode, ascending by duration, shape (ranks, modes), 0 for modes a rank lacks.

    Returns:
        (mode of each reference mode, shape (ranks, reference modes), -1 where unmatched; reference modes)
    """
    weight = count / count.sum(axis=1, keepdims=True)
    upper = np.cumsum(weight, axis=1)
    lower = upper - weight
    sizes = (count > 0.0).sum(axis=1)
    reference = int(np.bincount(sizes)[1:].argmax()) + 1
    typical = np.median(upper[sizes == reference, :reference], axis=0)
    typical[-1] = 1.0
    reference_lower = np.concatenate(([0.0], typical[:-1]))
    shared = np.minimum(upper[:, None, :], typical[None, :, None]) - np.maximum(
        lower[:, None, :], reference_lower[None, :, None]
    )
    union = np.maximum(upper[:, None, :], typical[None, :, None]) - np.minimum(
        lower[:, None, :], reference_lower[None, :, None]
    )
    overlap = np.where(count[:, None, :] > 0.0, shared / union, -1.0)
    best = overlap.argmax(axis=2)
    good = np.take_along_axis(overlap, best[:, :, None], axis=2)[:, :, 0] > _SAME_MODE_OVERLAP
    width, own = typical[None, :, None] - reference_lower[None, :, None], weight[:, None, :]
    # Reference modes that lie mostly in one mode of the rank, and modes that lie mostly in one of those.
    merged = ((shared > 0.5 * width) & (shared > _PART_OF_MODE * own)).sum(axis=1) > 1
    cut = ((shared > 0.5 * own) & (shared > _PART_OF_MODE * width)).sum(axis=2) > 1
    good &= ~cut & ~np.take_along_axis(merged, best, axis=1)
    return np.where(good, best, -1), reference


def mode_shifts(pair: PairTriples, min_events: int) -> ModeShifts:
    """Shifts of every matched mode with `min_events` events or more; see `match_modes`."""
    match, modes = match_modes(pair.count)
    present = match >= 0
    index = np.where(present, match, 0)
    count = np.where(present, np.take_along_axis(pair.count, index, axis=1), 0.0)
    _, mu, sigma = pair.components()
    mu, sigma = np.take_along_axis(mu, index, axis=1), np.take_along_axis(sigma, index, axis=1)
    log_p99 = np.log(np.take_along_axis(pair.p99, index, axis=1))
    enough = count >= min_events
    root = np.sqrt(np.maximum(count, 1.0))
    shift = _against_median(np.where(enough, mu, np.nan))
    shift_p99 = _against_median(np.where(enough, log_p99, np.nan))
    events, seconds = np.zeros(modes), np.zeros(modes)
    for mode in range(modes):
        of_mode = present[:, mode]
        if of_mode.any():
            events[mode] = np.median((count / pair.events[:, None])[of_mode, mode])
            seconds[mode] = np.median((count * np.exp(mu))[of_mode, mode])
    confirmed = np.minimum(np.abs(shift), np.abs(shift_p99) / _P99_FOLLOWS) * np.sign(shift)
    whole = np.where(shift * shift_p99 < 0.0, 0.0, confirmed)
    whole[np.isnan(shift)] = np.nan
    return ModeShifts(
        p50=shift,
        p99=shift_p99,
        whole=whole,
        p50_error=np.where(enough, _MEDIAN_ERROR * sigma / root, np.nan),
        p99_error=np.where(enough, _P99_ERROR * sigma / root, np.nan),
        count=count,
        event_share=events,
        time_share=seconds / max(float(seconds.sum()), 1e-300),
    )


def pair_shift(shifts: ModeShifts) -> tuple[Floats, Floats]:
    """(shift, its standard error) of the whole pair: its matched modes weighted by the mode's time.

    Both of shape (ranks,); NaN where modes that match and have enough events hold under half of the time.
    """
    known = ~np.isnan(shifts.whole)
    weight = np.where(known, shifts.time_share, 0.0)
    total = weight.sum(axis=1)
    weight /= np.maximum(total, 1e-300)[:, None]
    shift = (weight * np.where(known, shifts.whole, 0.0)).sum(axis=1)
    error = np.sqrt(((weight * np.where(known, shifts.p50_error, 0.0)) ** 2).sum(axis=1))
    enough = total >= 0.5
    return np.where(enough, shift, np.nan), np.where(enough, error, np.nan)


def robust_deviation(values: Floats) -> float:
    """1.4826 x median absolute deviation, NaN left out; a normal's standard deviation. 0 for no values.

    Blind to up to half of the ranks being bad, where a standard deviation is blind to one.
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return 0.0
    return float(_MAD_TO_SIGMA * np.median(np.abs(known - np.median(known))))


class Deviations:
    """Robust deviations of statistics over the ranks of each role, and over those of all roles of a job.

    Healthy chips differ for life. Among 4 to 16 values the median absolute deviation is often tiny by chance,
    and then the farthest healthy chip is many of it away, in every window. Distances from each role's own
    median, over all roles, tell how much chips differ: a role that is slow as a whole adds nothing to them,
    and a few roles whose ranks differ by far move their median little.
    """

    def __init__(self) -> None:
        self._centred: defaultdict[Hashable, list[Floats]] = defaultdict(list)
        self._pooled: dict[Hashable, float] = {}

    def of(self, statistic: Hashable, values: Floats) -> float:
        """That of one role's values, NaN left out; not less than that of all roles, once they are pooled."""
        known = values[~np.isnan(values)]
        self._centred[statistic].append((known - np.median(known)) * (1.0 + _MEDIAN_FOLLOWS / known.size))
        return max(robust_deviation(values), self._pooled.get(statistic, 0.0))

    def pool(self) -> None:
        """All roles were looked at. What one role alone has tells no more than its own deviation."""
        self._pooled = {
            statistic: robust_deviation(np.concatenate(roles))
            for statistic, roles in self._centred.items()
            if len(roles) > 1
        }


def _against_median(values: Floats) -> Floats:
    """Values minus their column's median over the ranks that have one."""
    result = np.full_like(values, np.nan)
    for mode in range(values.shape[1]):
        known = ~np.isnan(values[:, mode])
        if known.any():
            result[known, mode] = values[known, mode] - np.median(values[known, mode])
    return result
