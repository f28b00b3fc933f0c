"""Interval arithmetic against counting single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from argus_traces.intervals import complement, covered, intersection, length, union

Pairs = list[tuple[int, int]]
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda one: (one[0], one[0] + one[1])), max_size=12
)


def _spans(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


def _points(spans: np.ndarray) -> set[int]:
    return {point for begin, end in spans.tolist() for point in range(begin, end)}


@given(SPANS)
def test_a_union_covers_the_same_points_once(pairs: list[tuple[int, int]]) -> None:
    """Disjoint, ascending, nothing lost."""
    spans = _spans(pairs)
    found = union(spans)
    assert _points(found) == _points(spans)
    assert length(found) == len(_points(spans))
    assert (found[1:, 0] > found[:-1, 1]).all()


@given(SPANS, SPANS)
def test_intersection_and_cover_count_common_points(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    """As sets of points do."""
    one, other = union(_spans(left)), union(_spans(right))
    common = _points(one) & _points(other)
    assert _points(intersection(one, other)) == common
    each = covered(one, _spans(right))
    assert each.tolist() == [len(_points(one) & set(range(*pair))) for pair in right]


@given(SPANS)
def test_the_complement_is_what_is_missing(pairs: list[tuple[int, int]]) -> None:
    """Within given bounds."""
    found = complement(union(_spans(pairs)), 0, 80)
    assert _points(found) == set(range(80)) - _points(_spans(pairs))
