"""Slices that cross each other lie on different lanes, those that need not share one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_exporter.traces.lanes import LANES, nested, side_by_side

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40)


def ordered(intervals):
    rows = sorted((start, -(start + length)) for start, length in intervals)
    return np.array([r[0] for r in rows], np.int64), np.array([-r[1] for r in rows], np.int64)


@given(intervals=INTERVALS)
def test_slices_of_a_lane_never_overlap(intervals) -> None:
    """Each begins at or after the end of the one before; no more lanes than run at a time."""
    starts, ends = ordered(intervals)
    lanes = side_by_side(starts, ends)
    for lane in set(lanes.tolist()):
        mine = lanes == lane
        assert np.all(starts[mine][1:] >= ends[mine][:-1])
    busiest = max((int(((starts <= t) & (ends > t)).sum()) for t in range(81)), default=0)
    assert int(lanes.max(initial=-1)) < max(busiest, 1) + int(np.any(starts == ends))


@given(intervals=INTERVALS)
def test_slices_of_a_nested_lane_are_apart_or_within(intervals) -> None:
    """Two of a lane never cross."""
    starts, ends = ordered(intervals)
    lanes = nested(starts, ends)
    for lane in set(lanes.tolist()):
        mine = [(int(s), int(e)) for s, e in zip(starts[lanes == lane], ends[lanes == lane], strict=True)]
        for index, (s1, e1) in enumerate(mine):
            for s2, e2 in mine[index + 1 :]:
                assert s2 >= e1 or e2 <= e1, (s1, e1, s2, e2)


def test_what_nests_stays_together() -> None:
    """A phase and its parts are one lane; one that ends later than its parent is not."""
    starts, ends = np.array([0, 0, 5, 8]), np.array([10, 5, 10, 12])
    assert nested(starts, ends).tolist() == [0, 0, 0, 1]


def test_kernels_one_after_another_are_one_lane() -> None:
    """The usual stream."""
    starts = np.arange(0, 100, 10)
    assert side_by_side(starts, starts + 10).tolist() == [0] * 10


@pytest.mark.parametrize("lanes_of", [side_by_side, nested])
def test_lanes_are_bounded_and_so_is_their_making(lanes_of) -> None:
    """A hundred thousand slices that all cross: who sends them may not stop the encoder for hours."""
    starts = np.arange(100_000)
    lanes = lanes_of(starts, starts + 10**9)
    assert lanes.max() == LANES - 1
    assert lanes[: 2 * LANES].tolist() == [*range(LANES), *[LANES - 1] * LANES]
