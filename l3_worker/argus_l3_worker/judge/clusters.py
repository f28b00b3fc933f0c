"""The second pass: do the ranks fall into two clusters, and which topology coordinate tells them apart?

A fence and a robust deviation are blind once a quarter or half of the ranks is bad: a slow switch, a rack,
one of two GPU models. So the ranks' signed shifts are themselves cut at the valleys of their density, by the
same code that finds the modes of a kernel, and the two clusters are held against what ranks have in common.

Source: docs/evidence/shifts.md; ARGUS case 2 (one expert-data-parallel group, invisible to L1 and L2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from argus_core.modes import ModeConfig, mode_counts
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.triples import Bools, Floats, Ints

_LEAST_RANKS: Final = 4
_LEAST_SHARE: Final = 0.02
# The gap in deviations of the wider cluster. The medians of the two halves of one normal are 2.2 of their
# standard deviations apart.
_LEAST_SEPARATION: Final = 5.0
# Clusters that nothing explains are of eight ranks each, and 1 + 8 / n times as far apart where the smaller
# has n: of few ranks the deviation is tiny at times, and where chips differ they fall apart for life.
# docs/evidence/shifts.md has how often.
_FEW: Final = 8
# Of a normal, in standard deviations.
_DECILES_APART: Final = 2.563
_DENSITY: Final = ModeConfig(
    min_events=_LEAST_RANKS,
    min_share=_LEAST_SHARE,
    min_boundary_ratio=1.0,
    tail_ratio=float("inf"),
)
# Jaccard index of the slow ranks and the ranks at the values that are mostly slow.
_LEAST_AGREEMENT: Final = 0.8
# Fewer values win over a slightly better fit: one rack says more than its sixteen hosts.
_AGREEMENT_TIE: Final = 0.05
# From this share on it is not known which cluster is the sick one.
_EVEN_SHARES: Final = (0.4, 0.6)
VALUES_NAMED: Final = 8
MANY: Final = "many"
"""Value of a coordinate where too many of its values are slow to name each."""
OTHERS: Final = "others"
"""The same for the faster cluster, where both are reported."""
UNEXPLAINED: Final = "none"
"""Coordinate of a split that no coordinate explains."""


@dataclass(frozen=True)
class Split:
    """Two clusters of ranks.

    Attributes:
        slow: which ranks are in the slower cluster, shape (ranks,).
        gap: distance of the clusters' medians, log units, > 0.
        certain: it is too wide to be chance, whatever the ranks of a cluster have in common.
    """

    slow: Bools
    gap: float
    certain: bool

    @property
    def even(self) -> bool:
        """Neither cluster is a clear minority: which one is sick cannot be told from durations."""
        low, high = _EVEN_SHARES
        return low <= float(self.slow.mean()) <= high


@dataclass(frozen=True)
class Explanation:
    """What the slow ranks, and only they, have in common: `values` of `coordinate`."""

    coordinate: str
    values: tuple[str, ...]
    agreement: float


def splits(
    shifts: Floats, scopes: Segments, least_gap: float, errors: Floats, differing: Floats
) -> dict[int, Split]:
    """Cut the ranks of each scope at the widest valley between modes of their shifts, where it has two.

    Args:
        shifts: signed log shifts, shape (ranks,); NaN (unknown) belongs to the faster cluster.
        least_gap: distance of the clusters that is worth a word, log units, > 0.
        errors: standard errors of the shifts, shape (ranks,): no gap can be surer than what it is between.
        differing: by what ranks differ within a cluster, shape (ranks,).

    Returns:
        By the number of the scope.
    """
    found: dict[int, Split] = {}
    table = np.stack([shifts, np.nan_to_num(errors), differing])
    for places, rows in scopes.alike:
        known = ~np.isnan(shifts[rows])
        counts, known_first = known.sum(axis=1), np.argsort(~known, axis=1, kind="stable")
        for count in np.unique(counts[counts >= 2 * _LEAST_RANKS]).tolist():
            alike = np.flatnonzero(counts == count)
            columns = known_first[alike, :count]
            own = np.take_along_axis(rows[alike], columns, axis=1)
            for number, one in _splits(table[:, own], least_gap):
                slow = np.zeros(rows.shape[1], dtype=np.bool_)
                slow[columns[number]] = one.slow
                found[int(places[alike[number]])] = replace(one, slow=slow)
    return found


def _splits(table: Floats, least_gap: float) -> Iterator[tuple[int, Split]]:
    """Of scopes of which equally many ranks are known, by their row.

    Args:
        table: shifts, their errors, and by what ranks differ within a cluster, shape (3, scopes, ranks).
    """
    size = table.shape[2]
    scopes = np.flatnonzero(np.ptp(table[0], axis=1) >= least_gap)
    if not scopes.size:
        return
    ascending = np.sort(table[0, scopes], axis=1)
    counts = mode_counts(np.exp(ascending), _DENSITY)
    several = np.flatnonzero(counts[:, 1])
    if not several.size:
        return
    scopes, ascending, counts = scopes[several], ascending[several], counts[several]
    borders = np.cumsum(counts, axis=1)[:, :-1]  # the last ones are the end, where there are fewer modes
    above = np.take_along_axis(ascending, np.minimum(borders, size - 1), axis=1)
    valleys = np.where(borders < size, above - np.take_along_axis(ascending, borders - 1, axis=1), -np.inf)
    fast = borders[np.arange(scopes.size), np.argmax(valleys, axis=1)]
    order = np.argsort(table[0, scopes], axis=1)
    errors, differing = np.take_along_axis(table[1:, scopes], order[None], axis=2)
    clusters = Segments(np.stack([fast, size - fast], axis=1).ravel())
    middle = clusters.medians(ascending.ravel())
    gaps = middle[1::2] - middle[::2]
    spreads = _spreads(differing.ravel(), clusters)
    noise = np.maximum.reduce([spreads[::2], spreads[1::2], np.median(errors, axis=1)])
    fewer = np.minimum(fast, size - fast)
    clear = (gaps >= least_gap) & (gaps >= _LEAST_SEPARATION * noise)
    clear &= fewer >= max(_LEAST_RANKS, _LEAST_SHARE * size)
    certain = (fewer >= _FEW) & (gaps >= _LEAST_SEPARATION * noise * (1 + _FEW / fewer))
    for number in np.flatnonzero(clear):
        slow = table[0, scopes[number]] >= ascending[number, fast[number]]
        yield int(scopes[number]), Split(slow, float(gaps[number]), bool(certain[number]))


def _spreads(values: Floats, clusters: Segments) -> Floats:
    """Deviation of each cluster, whatever a tenth of it at either end does.

    Of few ranks the median absolute deviation is at times tiny by chance, and of skewed noise always.
    """
    deciles = clusters.quantiles(values, 0.9) - clusters.quantiles(values, 0.1)
    return np.maximum(clusters.deviations(values), deciles / _DECILES_APART)


def explain(slow: Bools, coordinates: Mapping[str, Sequence[str]]) -> Explanation | None:
    """The coordinate whose values tell the slow ranks from the others; None where none does.

    A coordinate with a value for nearly each rank explains everything and says nothing, so a value must be
    shared by two ranks on average.

    Args:
        slow: which ranks are slow, shape (ranks,).
        coordinates: name to each rank's value; empty where a rank has none.
    """
    candidates: list[Explanation] = []
    for name, values in coordinates.items():
        names, codes, counts = np.unique(
            np.asarray(values, dtype=np.str_), return_inverse=True, return_counts=True
        )
        if names.size < 2 or 2 * names.size > slow.size:
            continue
        share: Floats = np.bincount(codes, weights=slow) / counts
        chosen: Ints = np.flatnonzero((share > 0.5) & (names != ""))
        if not chosen.size or chosen.size == names.size:
            continue
        predicted = np.isin(codes, chosen)
        agreement = float((predicted & slow).sum() / (predicted | slow).sum())
        if agreement >= _LEAST_AGREEMENT:
            candidates.append(Explanation(name, tuple(str(names[index]) for index in chosen), agreement))
    if not candidates:
        return None
    best = max(candidate.agreement for candidate in candidates)
    good = [candidate for candidate in candidates if candidate.agreement >= best - _AGREEMENT_TIE]
    return min(good, key=lambda candidate: (len(candidate.values), -candidate.agreement))


def named_values(explanation: Explanation | None) -> tuple[str, tuple[str, ...]]:
    """(coordinate, values) as labels: bounded, whatever the size of the job."""
    if explanation is None:
        return UNEXPLAINED, ("",)
    if len(explanation.values) > VALUES_NAMED:
        return explanation.coordinate, (MANY,)
    return explanation.coordinate, explanation.values
