"""Exclusive times: what lies in other spans is left out, and phases add up to the time that has passed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_training.exclusive_time import ExclusiveTime


def exclusive(*spans: tuple[int, int]) -> list[int]:
    clock = ExclusiveTime()
    return [end - begin - clock.nested(begin, end, end - begin) for begin, end in spans]


def test_what_lies_within_is_left_out_once() -> None:
    """A collective within a forward within an optimizer's closure; the backward beside the forward."""
    assert exclusive((20, 50), (10, 60), (60, 90), (0, 100)) == [30, 20, 30, 20]


def test_a_span_that_opens_later_owes_nothing_to_earlier_ones() -> None:
    """Neighbours that touch are no part of one another."""
    assert exclusive((0, 10), (10, 20), (30, 40)) == [10, 10, 10]


def test_a_backward_that_is_told_after_what_its_wait_contains() -> None:
    """The wait begins where the backward ended; a collection within it is told first of the three."""
    assert exclusive((70, 80), (0, 60), (60, 90)) == [10, 60, 20]


def test_the_time_of_another_clock_is_subtracted_as_measured() -> None:
    """On a GPU spans nest as the host asked for them, within 3 us, and last as long as the events say."""
    clock = ExclusiveTime()
    assert clock.nested(2_000, 3_000, 40_000_000) == 0
    assert clock.nested(1_000, 4_000, 100_000_000) == 40_000_000
    assert clock.nested(500, 5_000, 150_000_000) == 100_000_000


def test_spans_around_thousands_of_others_are_exact_and_memory_is_bounded() -> None:
    """A user's span around an epoch: 10,000 steps of three phases, the half of each step in none."""
    clock = ExclusiveTime()
    for step, phase in itertools.product(range(10_000), range(3)):
        begin = step * 60 + phase * 10
        assert clock.nested(begin, begin + 10, 10) == 0
    assert len(clock._segments) <= 512
    assert clock.nested(0, 600_000, 600_000) == 300_000


@st.composite
def nested_spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Of one thread, in the order of their ends."""
    spans: list[tuple[int, int]] = []

    def fill(begin: int, end: int, depth: int) -> None:
        cuts = sorted(draw(st.lists(st.integers(begin, end), max_size=6 if depth < 3 else 0)))
        for left, right in zip(cuts[::2], cuts[1::2], strict=False):  # an odd one out begins nothing
            fill(left, right, depth + 1)
            spans.append((left, right))

    fill(0, 1000, 0)
    return spans


@given(nested_spans())
def test_a_span_loses_what_its_outermost_children_cover(spans: list[tuple[int, int]]) -> None:
    """Against the definition of the sheet: duration less the sum of the outermost spans within it."""
    for position, (own, (begin, end)) in enumerate(zip(exclusive(*spans), spans, strict=True)):
        before = [span for span in spans[:position] if begin <= span[0] and span[1] <= end]
        covered = {moment for span in before for moment in range(*span)}
        assert own == end - begin - len(covered)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: tuple(sorted(pair)))))
def test_the_sum_is_the_time_that_any_span_covers(spans: list[tuple[int, int]]) -> None:
    """In whatever order they come, and overlapping as they like."""
    own = exclusive(*spans)
    assert all(each >= 0 for each in own)
    assert sum(own) == len({moment for span in spans for moment in range(*span)})


@pytest.mark.parametrize("moment", [0, 5, 10])
def test_an_empty_span_covers_nothing(moment: int) -> None:
    """Two readings of the clock may be the same."""
    assert exclusive((0, 10), (moment, moment), (0, 10)) == [10, 0, 0]


def test_what_lies_within_a_stretch_is_asked_without_telling() -> None:
    """Whole spans, and of one that it cuts its share; the next that is told nests as before."""
    time = ExclusiveTime()
    assert time.within(0, 100) == 0
    for begin, end, measured in ((10, 20, 10), (30, 50, 40), (60, 60, 0), (80, 90, 10)):
        time.nested(begin, end, measured)
    assert time.within(0, 100) == 60
    assert time.within(40, 85) == 20 + 5
    assert time.within(20, 30) == time.within(91, 99) == 0
    assert time.nested(0, 100, 100) == 60
