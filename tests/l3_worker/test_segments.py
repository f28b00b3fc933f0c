"""Statistics of many small groups at once, against numpy's of one group at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from argus_l3_worker.judge.segments import Segments, robust_deviation
from argus_l3_worker.triples import Floats

SIZES = [3, 1, 4, 4, 7, 1, 2]
PARTS = Segments(SIZES)
BORDERS = np.cumsum([0, *SIZES])


def rows(columns: int, seed: int = 0) -> Floats:
    """Some of it is unknown, one segment wholly."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((sum(SIZES), columns))
    values[random.random(values.shape) < 0.2] = np.nan
    values[BORDERS[2] : BORDERS[3]] = np.nan
    return values


def each(values: Floats, of: Callable[[Floats], float]) -> list[float]:
    """The twin: one segment after the other."""
    return [of(part) for part in np.split(values, BORDERS[1:-1])]


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("level", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_quantiles_are_those_of_each_segment(level: float) -> None:
    """Of unequal sizes, by column, NaN left out; NaN of nothing."""
    values = rows(3)
    for column, found in zip(values.T, PARTS.quantiles(values, level).T, strict=True):
        assert found == pytest.approx(each(column, lambda part: np.nanquantile(part, level)), nan_ok=True)
        assert PARTS.quantiles(column, level) == pytest.approx(found, nan_ok=True)


def test_deviations_and_sums_are_those_of_each_segment() -> None:
    """Nothing known: no deviation."""
    values = rows(1)[:, 0]
    assert PARTS.deviations(values) == pytest.approx(each(values, robust_deviation))
    assert PARTS.sums(~np.isnan(values)).tolist() == each(values, lambda part: float((~np.isnan(part)).sum()))


def test_slices_are_the_rows_of_each_segment_in_order() -> None:
    """One after the other, as long as it is."""
    assert [list(range(sum(SIZES)))[rows] for rows in PARTS.slices] == [
        list(range(begin, begin + size)) for begin, size in zip(BORDERS, SIZES, strict=False)
    ]
