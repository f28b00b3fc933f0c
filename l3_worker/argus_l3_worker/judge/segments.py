"""Statistics of many small groups of rows at once, such as the ranks of each role.

A job of 10,240 ranks may be one role or 2,560: asked one by one, numpy's calls would cost more than the
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from argus_l3_worker.triples import Bools, Floats, Ints

_MAD_TO_SIGMA: Final = 1.4826


class Segments:
    """Consecutive rows of a table that belong together.

    Attributes:
        sizes: rows of each segment, shape (segments,), >= 1.
        of_row: the segment of each row, shape (rows,).
    """

    def __init__(self, sizes: Sequence[int] | Ints) -> None:
        self.sizes: Ints = np.asarray(sizes, dtype=np.intp)
        self.of_row: Ints = np.repeat(np.arange(self.sizes.size), self.sizes)
        begin = np.cumsum(self.sizes) - self.sizes
        self.alike: list[tuple[Ints, Ints]] = []
        """Segments of one size, and their rows, shape (segments, size)."""
        for size in np.unique(self.sizes):
            chosen = np.flatnonzero(self.sizes == size)
            self.alike.append((chosen, begin[chosen, None] + np.arange(size)))

    @property
    def count(self) -> int:
        return int(self.sizes.size)

    def medians(self, values: Floats) -> Floats:
        """Median of each segment; see `quantiles`."""
        return self.quantiles(values, 0.5)

    def quantiles(self, values: Floats, level: float) -> Floats:
        """Quantile of each segment (type 7), NaN left out; NaN where there is nothing else.

        Args:
            values: shape (rows,) or (rows, columns).

        Returns:
            Shape (segments,) or (segments, columns).
        """
        columns = np.ascontiguousarray(values.T)
        result = np.empty((*columns.shape[:-1], self.count))
        for segments, rows in self.alike:
            ordered = np.sort(columns[..., rows], axis=-1)  # NaN comes last
            last = np.maximum(rows.shape[1] - np.isnan(ordered).sum(axis=-1) - 1, 0)
            at = level * last
            low: Ints = at.astype(np.intp)
            below = np.take_along_axis(ordered, low[..., None], axis=-1)[..., 0]
            above = np.take_along_axis(ordered, np.minimum(low + 1, last)[..., None], axis=-1)[..., 0]
            result[..., segments] = below + (above - below) * (at - low)
        return result.T

    def sums(self, values: Floats | Bools) -> Floats:
        """Sum of each segment, shape (segments,), of `values` of shape (rows,)."""
        return np.bincount(self.of_row, values, self.count).astype(np.float64)

    def centred(self, values: Floats) -> Floats:
        """Values minus their segment's median, shape (rows,) or (rows, columns)."""
        difference: Floats = values - self.medians(values)[self.of_row]
        return difference

    def deviations(self, values: Floats) -> Floats:
        """Robust deviation of each segment, see `robust_deviation`; shape (segments,)."""
        spread: Floats = _MAD_TO_SIGMA * np.nan_to_num(self.medians(np.abs(self.centred(values))))
        return spread

    def chosen(self, segments: Bools) -> Bools:
        """The rows of these segments."""
        rows: Bools = segments[self.of_row]
        return rows

    @cached_property
    def slices(self) -> list[slice]:
        """The rows of each segment."""
        return [slice(*border) for border in pairwise(np.cumsum([0, *self.sizes.tolist()]).tolist())]


def robust_deviation(values: Floats) -> float:
    """1.4826 x median absolute deviation, NaN left out; a normal's standard deviation. 0 for no values.

    Blind to up to half of the ranks being bad, where a standard deviation is blind to one.
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return 0.0
    return float(_MAD_TO_SIGMA * np.median(np.abs(known - np.median(known))))
