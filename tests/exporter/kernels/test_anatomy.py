"""GPU time of spans by what ran: known numbers, and any kernels and spans against cells of a nanosecond."""

from __future__ import annotations

import random

import numpy as np
import pytest
from bench.anatomy import difference, random_world
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_exporter.kernels.anatomy import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    Ran,
    Slices,
    Timeline,
    innermost,
    snap,
)

US = 1000


def ran(*rows: tuple[int, int, int, int]) -> Ran:
    """Rows of start, end, part and stream."""
    start, end, part, stream = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    return Ran(start, end, part.astype(np.int8), stream)


def slices(*rows: tuple[int, int, int]) -> Slices:
    begin, end, owner = np.array(rows, np.int64).reshape(-1, 3).T
    return Slices(begin, end, owner.astype(np.intp))


def test_an_instant_is_in_one_part():
    """Compute hides communication, communication hides copies, two streams count once."""
    timeline = Timeline(
        ran(
            (0, 40, COMPUTE, 7),
            (10, 30, COMPUTE, 8),
            (20, 60, COMMUNICATION, 20),
            (50, 80, COPY, 31),
        )
    )
    assert timeline.parts(slices((0, 100, 0)), 1).tolist() == [[40, 20, 20, 20]]


def test_exposed_time_is_of_the_kernel_that_started_first():
    """Two communicators at once: 20 waits until 50, 21 for the rest; what compute hides is nobody's."""
    timeline = Timeline(ran((10, 50, COMMUNICATION, 20), (20, 70, COMMUNICATION, 21), (60, 65, COMPUTE, 7)))
    assert timeline.exposed(slices((0, 45, 0), (45, 100, 1))) == {(0, 20): 35, (1, 20): 5, (1, 21): 15}


def test_the_innermost_span_owns_the_time():
    """One within another takes its time out; of two that overlap, the one that began last."""
    found = innermost(np.array([0, 10, 90]), np.array([100, 30, 120]))
    assert list(zip(found.begin, found.end, found.owner, strict=True)) == [
        (0, 10, 0),
        (10, 30, 1),
        (30, 90, 0),
        (90, 120, 2),
    ]


@pytest.mark.parametrize(
    ("at", "moved_to"),
    [(100, 100), (129, 100), (130, 130), (471, 500), (470, 470), (500, 500), (90, 90)],
)
def test_a_boundary_just_inside_a_kernel_lies_at_its_edge(at: int, moved_to: int):
    """Less than 30 us from an edge of a kernel of 100 to 500 us; deep inside it stays."""
    found = snap(np.array([at * US]), np.array([100 * US]), np.array([500 * US]))
    assert found.tolist() == [moved_to * US]


def test_nothing_ran():
    """All of it is idle."""
    assert Timeline(ran()).parts(slices((5, 9, 0)), 1).tolist() == [[0, 0, 0, 4]]
    assert Timeline(ran()).exposed(slices((5, 9, 0))) == {}


KERNELS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 40),
        st.sampled_from((COMPUTE, COMMUNICATION, COPY)),
        st.integers(1, 3),
    ),
    max_size=12,
)
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), max_size=6)


@settings(deadline=None, max_examples=400)
@given(KERNELS, SPANS)
def test_any_kernels_and_spans_as_in_cells_of_a_nanosecond(kernels, spans):
    """Parts are those of each cell, add up to the time that the spans cover, and exposed time to its part."""
    rows = [(start, start + length, part, stream) for start, length, part, stream in kernels]
    begin = np.array([span[0] for span in spans], np.int64)
    end = np.array([span[1] for span in spans], np.int64)
    owners = innermost(begin, end)
    timeline = Timeline(ran(*rows))
    parts, exposed = timeline.parts(owners, len(spans)), timeline.exposed(owners)

    expected = np.zeros((len(spans), 4), np.int64)
    covered = set()
    for cell in range(120):
        open_ = [(first, -last, place) for place, (first, last) in enumerate(spans) if first <= cell < last]
        running = {part for start, stop, part, _ in rows if start <= cell < stop}
        if open_:
            covered.add(cell)
            owner = max(open_)[2]
            same = [p for first, last, p in open_ if (first, last) == max(open_)[:2]]
            assert owner in same
            expected[owner, min(running, default=3)] += 1
    assert parts.sum() == len(covered)
    assert parts.sum(axis=0).tolist() == expected.sum(axis=0).tolist()
    if len({tuple(span) for span in spans}) == len(spans):
        assert parts.tolist() == expected.tolist()
    of_owner = np.zeros(len(spans), np.int64)
    for (owner, _), nanoseconds in exposed.items():
        of_owner[owner] += nanoseconds
    assert of_owner.tolist() == parts[:, 1].tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(10_000, 10**9))
def test_random_steps_as_in_cells_of_a_nanosecond(seed):
    """Marks, spans, kernels in any order, patterns of the user: `bench.anatomy`'s worlds."""
    assert difference(random_world(random.Random(seed))) == ""
