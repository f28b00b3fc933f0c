"""By how much a rank's modes moved against its role's, signed, in log units.

A comparison per mode does not care about counts, where W1 lets a window edge that moves a few events between
far modes hide a 7 % slow rank (docs/evidence/shifts.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_l3_worker.judge.segments import Segments, robust_deviation
from argus_l3_worker.triples import Bools, Floats, Ints, PairTriples

# Modes of two ranks are the same mode if they overlap by this share of their union in probability.
_SAME_MODE_OVERLAP: Final = 0.5
# A mode that is cut in two on one rank and not on another, as happens by chance where peaks lie close,
# overlaps with the larger part and has another median. From this share of it on the smaller part is one.
_PART_OF_MODE: Final = 0.2
# Distances from the median of n values are too short by 1 + 1.5 / n, as it follows the values: 1.38 at n = 4,
# 1.20 at 8, 1.09 at 16 for normal values; within 1 %, at n = 5 within 6 % (docs/evidence/shifts.md).
_MEDIAN_FOLLOWS: Final = 1.5
# Standard error of a sample quantile of a normal, in sigmas / sqrt(n): sqrt(p (1 - p)) / phi(z_p).
_MEDIAN_ERROR: Final = 1.2533
_P99_ERROR: Final = 3.733
# A mode that became slower as a whole moves its p99 along; where only the median jumps, the mode is two that
# the sample was too small to part. Half would do for a pure scaling; the rest is room for the noise of p99.
_P99_FOLLOWS: Final = 0.4
# A mode lies where another is known to be if that explains three quarters of its shift; others of the rank
# may miss theirs by three standard errors, too.
_SAME_PLACE: Final = 0.25
_MODE_ERRORS: Final = 3.0
# A mode of fewer of its rank's launches proves nothing of the others: the end of one is cut off at times.
_PROVES: Final = 0.05


@dataclass(frozen=True)
class ModeShifts:
    """Shifts of one pair's modes; all shapes (ranks, reference modes), NaN where a rank lacks the mode.

    Attributes:
        p50, p99: log shift against the role's median; positive is slower.
        whole: shift of the mode as a whole: that of p50 as far as p99 confirms it, 0 if that moved the other
            way.
        p50_error, p99_error: standard error of that shift, from the rank's own sample size and spread.
        count: events of the rank in the mode; 0 where it is not matched.
        event_share, time_share: of the mode in the pair, on the median rank of those that are compared.
        reference: modes of each role; what lies beyond is NaN, shape (roles,).
    """

    p50: Floats
    p99: Floats
    whole: Floats
    p50_error: Floats
    p99_error: Floats
    count: Floats
    event_share: Floats
    time_share: Floats
    reference: Ints


def match_modes(count: Floats, parts: Segments | None = None) -> tuple[Ints, Ints]:
    """Tell which reference mode each mode of each rank is.

    Modes are matched by their place in the rank's own distribution: a mode that holds the slowest 10 % of
    events on one rank is the one that holds the slowest 10 % on another, however slow either rank is.
    Reference is the most common number of modes (the fewer on a tie) with its median boundaries; of two ranks
    the larger number, or nobody would know the mode that the other runs in place of its own. Where a rank
    has one mode for two of these, or two for one, they are not matched: the medians would be of other things.

    Args:
        count: events by mode, ascending by duration, shape (ranks, modes), 0 for modes a rank lacks.
        parts: ranks that are compared with one another; None: all.

    Returns:
        (mode of each reference mode, shape (ranks, most reference modes), -1 where unmatched; reference modes
        of each part)
    """
    parts = parts or Segments([len(count)])
    weight = count / count.sum(axis=1, keepdims=True)
    upper = np.cumsum(weight, axis=1)
    lower = upper - weight
    sizes = (count > 0.0).sum(axis=1)
    votes = np.zeros((parts.count, count.shape[1] + 1))
    np.add.at(votes, (parts.of_row, sizes), 1.0)
    votes[parts.sizes == 2] *= np.arange(1.0, votes.shape[1] + 1.0)
    reference: Ints = votes[:, 1:].argmax(axis=1) + 1
    modes = int(reference.max())
    as_usual = sizes == reference[parts.of_row]
    typical = parts.medians(np.where(as_usual[:, None], upper[:, :modes], np.nan))
    typical[np.arange(modes) >= reference[:, None] - 1] = 1.0
    typical_lower = np.pad(typical[:, :-1], ((0, 0), (1, 0)))
    high, low = typical[parts.of_row, :, None], typical_lower[parts.of_row, :, None]
    shared = np.minimum(upper[:, None, :], high) - np.maximum(lower[:, None, :], low)
    union = np.maximum(upper[:, None, :], high) - np.minimum(lower[:, None, :], low)
    overlap = np.where(count[:, None, :] > 0.0, shared / np.where(union > 0.0, union, 1.0), -1.0)
    best: Ints = overlap.argmax(axis=2)
    good = np.take_along_axis(overlap, best[:, :, None], axis=2)[:, :, 0] > _SAME_MODE_OVERLAP
    width, own = high - low, weight[:, None, :]
    # Reference modes that lie mostly in one mode of the rank, and modes that lie mostly in one of those.
    merged = ((shared > 0.5 * width) & (shared > _PART_OF_MODE * own)).sum(axis=1) > 1
    cut = ((shared > 0.5 * own) & (shared > _PART_OF_MODE * width)).sum(axis=2) > 1
    good &= ~cut & ~np.take_along_axis(merged, best, axis=1)
    return np.where(good, best, -1), reference


def mode_shifts(pair: PairTriples, min_events: float | Floats, parts: Segments | None = None) -> ModeShifts:
    """Shifts of every matched mode with `min_events` events or more; see `match_modes`.

    Args:
        min_events: one number, or one for each rank, shape (ranks, 1).
    """
    parts = parts or Segments([len(pair.ranks)])
    match, reference = match_modes(pair.count, parts)
    present = match >= 0
    index = np.where(present, match, 0)
    count = np.where(present, np.take_along_axis(pair.count, index, axis=1), 0.0)
    _, every_mu, every_sigma = pair.components()
    mu, sigma = np.take_along_axis(every_mu, index, axis=1), np.take_along_axis(every_sigma, index, axis=1)
    log_p99 = np.log(np.take_along_axis(pair.p99, index, axis=1))
    enough = count >= min_events
    root = np.sqrt(np.maximum(count, 1.0))
    usual = _usual(np.where(enough, mu, np.nan), pair, parts)
    shift = np.where(enough, mu, np.nan) - usual[parts.of_row]
    counts = (pair.count >= min_events) & (pair.count >= _PROVES * pair.events[:, None])
    enough &= ~_other_mode(pair.count, counts, every_mu, every_sigma, shift, usual[parts.of_row])
    shift[~enough] = np.nan
    log_p99[~enough] = np.nan
    shift_p99 = log_p99 - _usual(log_p99, pair, parts)[parts.of_row]
    events = parts.medians(np.where(present, count / pair.events[:, None], np.nan))
    seconds = np.nan_to_num(parts.medians(np.where(present, count * np.exp(mu), np.nan)))
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
        event_share=np.nan_to_num(events)[parts.of_row],
        time_share=(seconds / np.maximum(seconds.sum(axis=1, keepdims=True), 1e-300))[parts.of_row],
        reference=reference,
    )


def _usual(values: Floats, pair: PairTriples, parts: Segments) -> Floats:
    """What a rank is compared with: the median of its part, and of two the lower one, shape (parts, columns).

    Between two each would be half as far from the middle as from the other, a slow GPU would look half as
    slow as it is, and its peer fast. Of collectives neither is right: who is late has the shorter one.
    """
    usual = parts.medians(values)
    if pair.kind != "collective":
        two = parts.sizes == 2
        usual[two] = parts.quantiles(values, 0.0)[two]
    return usual


def _other_mode(
    count: Floats, counts: Bools, mu: Floats, sigma: Floats, shift: Floats, usual: Floats
) -> Bools:
    """Where a rank has launches of another mode in the place of these: other work, not slower launches.

    A rank of which nearly all launches are of the slower of two kinds has that in the place of the faster
    one. Its shift is the ratio of two modes that the role knows. Where all its modes lie at modes of the
    role, it has nothing that is slow; a slow GPU shifts its slowest mode, too, to where nobody has one.
    Modes of few launches prove neither: some are the end of another, cut off by chance.

    Args:
        count, counts, mu, sigma: of every mode of a rank, shape (ranks, modes); `counts`: it is of enough.
        shift: of the matched modes; `usual` are those of the role, shape (ranks, reference modes), log units.
    """
    other: Bools = np.zeros(shift.shape, dtype=np.bool_)
    place = usual + shift
    for mode in range(usual.shape[1]):
        there = np.abs(place - usual[:, mode : mode + 1]) < _SAME_PLACE * np.abs(shift)
        there[:, mode] = False
        other |= there
    rows = np.flatnonzero(other.any(axis=1))
    if not rows.size:
        return other
    room = _SAME_PLACE * np.abs(np.where(other, shift, 0.0)[rows]).max(axis=1, keepdims=True)
    noise = _MODE_ERRORS * _MEDIAN_ERROR * sigma[rows] / np.sqrt(np.maximum(count[rows], 1.0))
    apart = np.fmin.reduce(np.abs(mu[rows, :, None] - usual[rows, None, :]), axis=2)
    known = (apart <= np.maximum(noise, room)) | ~counts[rows]
    other[rows] &= known.all(axis=1, keepdims=True)
    return other


def pair_shift(shifts: ModeShifts) -> tuple[Floats, Floats, Floats]:
    """(shift, its standard error, shift of medians) of the whole pair: its modes weighted by the mode's time.

    What p99 does not confirm is no shift, but it is how medians of healthy ranks differ: deviations are
    those of the medians.

    Each of shape (ranks,); NaN where modes that match and have enough events hold under half of the time.
    """
    known = ~np.isnan(shifts.whole)
    weight = np.where(known, shifts.time_share, 0.0)
    total = weight.sum(axis=1)
    weight /= np.maximum(total, 1e-300)[:, None]
    shift, of_medians = ((weight * np.where(known, of, 0.0)).sum(axis=1) for of in (shifts.whole, shifts.p50))
    error = np.sqrt(((weight * np.where(known, shifts.p50_error, 0.0)) ** 2).sum(axis=1))
    enough = total >= 0.5
    nothing = np.full_like(shift, np.nan)
    for of in (shift, error, of_medians):
        np.copyto(of, nothing, where=~enough)
    return shift, error, of_medians


def deviations(values: Floats, parts: Segments, alike: Ints | None = None) -> Floats:
    """How much healthy ranks differ in what each is compared by, shape (parts,).

    The largest of two: the robust deviation of the part itself, and that over all parts of a job. Healthy
    chips differ for life. Among 4 to 16 values the median absolute deviation is often tiny by chance, and
    then the farthest healthy chip is many of it away, in every window. Distances from each part's own
    median, over all parts, tell how much chips differ: a role that is slow as a whole adds nothing to them,
    and a few roles whose ranks differ by far move their median little. What a rank is compared with is a
    median of few values that differ as much, and errs, too.

    Args:
        values: NaN is left out, shape (ranks,).
        alike: parts of the same number are pooled, shape (parts,); None: all.
    """
    known = parts.sums(~np.isnan(values))
    own = parts.deviations(values)
    follows = (1.0 + _MEDIAN_FOLLOWS / np.maximum(known, 1.0))[parts.of_row]
    centred = parts.centred(values) * follows
    pooled = np.zeros(parts.count)
    groups: Ints = np.zeros(parts.count, dtype=np.intp) if alike is None else alike
    for group in np.unique(groups):
        members: Bools = (groups == group) & (known > 1.0)
        if members.sum() > 1:
            pooled[members] = robust_deviation(centred[parts.chosen(members)])
    largest: Floats = np.maximum(own, pooled * np.sqrt(1.0 + _MEDIAN_ERROR**2 / np.maximum(known, 1.0)))
    return largest
