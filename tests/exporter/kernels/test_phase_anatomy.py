"""Steps of a rank divided once all of them has come: late kernels, lost ones, marks, limits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from bench.anatomy import BEGAN_NS, HOME, World, anatomy, feed, kernel_rows, mark_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernels.phase_anatomy import PhaseAnatomy
from argus_exporter.kernels.step_records import SpanOnGpu

MS = 1_000_000
SECOND = 1000 * MS
COMPUTE, COMM = wire.Kind.COMPUTE, wire.Kind.COMM
WORLD = World(
    marks=[0, 100 * MS],
    kernels=[(10 * MS, 40 * MS, 10, HOME), (50 * MS, 70 * MS, 11, 20)],
    spans=[("forward", 1, 0, 80 * MS)],
)
DIVIDED = [30 * MS, 20 * MS, 0, 30 * MS]


def iteration(step: int, end_ns: int, duration_ns: int) -> wire.Iteration:
    return wire.Iteration(step, BEGAN_NS + end_ns, duration_ns, step, 0.0, 0.0)


def step(made: PhaseAnatomy, number: int, now: float, *, kernels: bool = True) -> None:
    """One second of work: a span over 80 ms of it, a kernel of 30 ms."""
    at = (number - 1) * SECOND
    made.records.iteration(iteration(number, at + SECOND, SECOND))
    made.records.span(number, SpanOnGpu("forward", True, 0, 80 * MS), now)
    if kernels:
        made.records.kernels(kernel_rows([(at + 10 * MS, at + 40 * MS, 10, HOME)]), now)
        made.records.kernels(mark_rows([(number, at + SECOND)]), now)


def test_a_step_is_divided():
    """Parts of the span and of the step; exposed by group; one span."""
    made = anatomy()
    feed(made, WORLD)
    forward = made.phases["forward"]
    assert (forward.spans, forward.parts, forward.exposed) == (1, DIVIDED, {"20": 20 * MS})
    assert made.iterations == [30 * MS, 20 * MS, 0, 50 * MS]


def test_kernels_that_come_seconds_after_the_spans_count():
    """Nothing is divided before kernels of two seconds later have come, and a span of a later step."""
    made = anatomy()
    made.records.kernels(mark_rows([(0, 0)]), 0.0)
    for number in range(1, 7):
        step(made, number, float(number), kernels=number < 4)
    made.advance(6.0)
    assert made.phases["forward"].spans == 1  # kernels of the third second have come: the first is settled
    for number in range(4, 7):
        at = (number - 1) * SECOND
        made.records.kernels(kernel_rows([(at + 10 * MS, at + 40 * MS, 10, HOME)]), 11.5)
        made.records.kernels(mark_rows([(number, at + SECOND)]), 11.5)
    made.advance(11.5)
    assert made.phases["forward"].spans == 4
    made.advance(30.0)  # silence: no more will come
    assert made.phases["forward"].spans == 6
    assert made.phases["forward"].parts == [6 * 30 * MS, 0, 0, 6 * 50 * MS]


def test_spans_of_a_step_with_a_loss_are_left_out():
    """Neither parts nor count; the next step is whole again."""
    made = anatomy()
    made.records.kernels(mark_rows([(0, 0)]), 0.0)
    step(made, 1, 1.0)
    made.records.lost()
    step(made, 2, 2.0)  # with its first packet came the news
    step(made, 3, 3.0)
    step(made, 4, 4.0)
    made.advance(60.0)
    assert made.phases["forward"].spans == 2
    assert made.phases["forward"].parts == [2 * 30 * MS, 0, 0, 2 * 50 * MS]


def test_a_lost_mark_costs_its_two_steps_alone():
    """Spans that are measured from a mark which never came have no place."""
    made = anatomy()
    made.records.kernels(mark_rows([(0, 0)]), 0.0)
    for number in range(1, 5):
        step(made, number, float(number), kernels=False)
        if number != 2:
            made.records.kernels(mark_rows([(number, number * SECOND)]), float(number))
    made.records.kernels(kernel_rows([(0, 1, 10, HOME)]), 4.0)
    made.advance(60.0)
    assert made.phases["forward"].spans == 2


def test_a_step_after_a_pause_is_no_iteration():
    """An evaluation lies between the mark and the step: its spans count, the time between does not."""
    made = anatomy()
    feed(made, WORLD)
    before = made.iterations
    made.records.iteration(iteration(2, 400 * MS, 100 * MS))
    made.records.span(2, SpanOnGpu("forward", True, 210 * MS, 10 * MS), 100.0)
    made.records.kernels(mark_rows([(2, 400 * MS)]), 100.0)
    made.advance(200.0)
    assert made.phases["forward"].spans == 2
    assert made.iterations == before


def test_a_span_around_several_steps_is_left_out():
    """Its kernels are not kept that long."""
    made = anatomy()
    feed(made, dataclasses.replace(WORLD, spans=[*WORLD.spans, ("epoch", 1, 0, 300 * MS)]))
    assert set(made.phases) == {"forward"}
    assert made.phases["forward"].parts == DIVIDED


def test_communication_within_a_phase_that_has_a_span_is_not_its_time():
    """The wait inside is a phase of kind comm: out of forward, and itself without an anatomy."""
    made = anatomy()
    feed(made, dataclasses.replace(WORLD, spans=[("tp-wait", 1, 50 * MS, 70 * MS), *WORLD.spans]))
    assert set(made.phases) == {"forward"}
    assert made.phases["forward"].parts == [30 * MS, 0, 0, 30 * MS]


def test_kernels_of_another_device_do_not_count():
    """A process may drive several: the marks say which one the rank's is."""
    made = anatomy()
    other = kernel_rows([(0, 100 * MS, 10, HOME)])
    other["device"] = 1
    made.records.kernels(mark_rows([(0, 0)]), 0.0)
    made.records.kernels(other, 0.0)
    feed(made, WORLD)
    assert made.phases["forward"].parts == DIVIDED


def test_patterns_of_the_user_communicate():
    """What is not known to ARGUS computes until it is told otherwise."""
    world = dataclasses.replace(WORLD, kernels=[(10 * MS, 40 * MS, 13, HOME)])
    made, told = anatomy(()), anatomy(("my_*_to_all*",))
    feed(made, world)
    feed(told, world)
    assert made.phases["forward"].parts == [30 * MS, 0, 0, 50 * MS]
    assert told.phases["forward"].parts == [0, 30 * MS, 0, 50 * MS]


def test_exposed_time_waits_for_the_names_of_streams():
    """Before the first window nobody knows whose communicator a stream is."""
    made = PhaseAnatomy({11: "ncclDevKernel_AllReduce"}, (), 2.0, lambda dimension: dimension or "unknown")
    feed(made, WORLD)
    assert made.phases["forward"].exposed == {}
    made.label({20: "tp"})
    assert made.phases["forward"].exposed == {"tp": 20 * MS}
    made.label({})
    feed(made, dataclasses.replace(WORLD), now=100.0)
    assert made.phases["forward"].exposed == {"tp": 20 * MS, "unknown": 20 * MS}


def test_marks_are_told_apart_and_no_kernels():
    """What comes back are the job's own records; without marks nothing is kept."""
    made = anatomy()
    ours = kernel_rows([(0, 5, 10, HOME)])
    assert len(made.records.kernels(ours, 0.0)) == 1
    assert made.records._waiting == 0
    assert len(made.records.kernels(mark_rows([(1, 5)]), 0.0)) == 0
    made.records.kernels(ours, 0.0)
    assert made.records._waiting == 1


def test_kernels_wait_within_bounds(monkeypatch: pytest.MonkeyPatch):
    """A program that stops marking its steps: what waits is let go, and the next mark begins anew."""
    monkeypatch.setattr("argus_exporter.kernels.step_records._RECORDS_LIMIT", 10)
    made = anatomy()
    made.records.kernels(mark_rows([(0, 0)]), 0.0)
    for place in range(30):
        made.records.kernels(kernel_rows([(place, place + 1, 10, HOME)]), 0.0)
        assert made.records._waiting <= 10
    feed(made, WORLD)
    assert made.phases["forward"].spans == 1


def test_at_most_thirty_series():
    """The first phases and groups; a phase that came too late has none."""
    made = anatomy()
    names = [f"phase{place}" for place in range(8)]
    spans = [(name, 1, place * MS, (place + 1) * MS) for place, name in enumerate(names)]
    kernels = [(0, 8 * MS, 11, 20)]
    feed(made, World([0, 100 * MS], kernels, spans, tuple(names)))
    for stream in range(30, 50):
        made._unnamed["phase0", stream] = 1
    made._name_streams()
    assert 4 + sum(5 + len(totals.exposed) for totals in made.phases.values()) == 30
    assert list(made.phases) == names[:4]


def test_step_marks_go_round():
    """16 bits, never 0; the nearest step with that mark."""
    for number in (0, 1, 32767, 32768, 100_000):
        mark = wire.step_mark(number)
        assert 0 < mark < 1 << 16
        assert wire.marked_step(mark, number + 1000) == number
    assert wire.marked_step(wire.step_mark(-1), 0) == -1


U64 = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**62, 2**63 - 1, 2**63, 2**64 - 1]))
NEAR = st.integers(0, 1000)
ROWS = st.lists(
    st.tuples(
        st.one_of(U64, NEAR),
        st.one_of(U64, NEAR),
        st.sampled_from((10, 11, 12)),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2),
        st.sampled_from((0, 0, 0x8000, 0x8001, 0x8002, 0xFFFF)),
    ),
    min_size=1,
    max_size=8,
)
FAR = st.integers(-(2**50), 2**50)
SPAN = st.tuples(st.one_of(U64, st.integers(0, 3)), FAR, st.integers(0, 2**50), st.booleans())


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.one_of(ROWS, SPAN, st.just("lost")), st.floats(0, 20)), max_size=10), U64)
def test_nothing_that_a_producer_says_is_raised(events, duration_ns):
    """Times at the ends of 64 bits, marks of no step, spans of any: ticks go on, totals never fall."""
    made, now = anatomy(), 0.0
    for place, (event, wait) in enumerate(events):
        made.records.iteration(wire.Iteration(place, 2**63, duration_ns, place, 0.0, 0.0))
        if event == "lost":
            made.records.lost()
        elif isinstance(event, tuple):
            made.records.span(event[0], SpanOnGpu("forward", event[3], event[1], event[2]), now)
        else:
            records = np.zeros(len(event), KERNEL_DTYPE)
            for row, (start, length, name, stream, device, mark) in enumerate(event):
                records[row] = (start, length, -1, name, stream, 0, 2 if mark else 0, device, mark)
            made.records.kernels(records, now)
        now += wait
        before = [ns for totals in made.phases.values() for ns in totals.parts] + (made.iterations or [])
        made.advance(now)
        after = [ns for totals in made.phases.values() for ns in totals.parts] + (made.iterations or [])
        assert all(ns >= 0 for ns in after)
        assert sum(after) >= sum(before)
