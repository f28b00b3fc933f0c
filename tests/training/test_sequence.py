"""The repeated sequence of optimizer steps: found after ten repetitions, matched exactly, found anew."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from argus_training.sequence import Match, SequenceDetector, Step

SEQUENCES = st.lists(st.builds(Step, st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=8).map(tuple)


def primitive(sequence: tuple[Step, ...]) -> bool:
    """No shorter sequence, repeated, is this one; and steps of one optimizer are a sequence each."""
    size = len(sequence)
    return (size == 1 or len({step.optimizer for step in sequence}) > 1) and not any(
        size % part == 0 and sequence[:part] * (size // part) == sequence for part in range(1, size)
    )


def learn(detector: SequenceDetector, steps: tuple[Step, ...]) -> list[bool]:
    return [detector.learn(step) for step in steps]


@given(SEQUENCES)
def test_sequence_is_known_after_ten_repetitions_and_not_before(sequence: tuple[Step, ...]) -> None:
    """At the last step of the tenth, where a shorter one inside does not repeat ten times by itself."""
    assume(primitive(sequence) and sequence[0].forwards)
    detector = SequenceDetector()
    assert learn(detector, sequence * 10) == [False] * (len(sequence) * 10 - 1) + [True]
    assert detector.sequence == sequence


@given(SEQUENCES, st.integers(1, 30))
def test_each_later_repetition_is_one_iteration(sequence: tuple[Step, ...], repetitions: int) -> None:
    """Exactly one end for each, at its last step."""
    assume(primitive(sequence) and sequence[0].forwards)
    detector = SequenceDetector()
    learn(detector, sequence * 10)
    found = [detector.match(step) for step in sequence * repetitions]
    if len(sequence) == 1:
        expected = [Match.WHOLE]
    else:
        expected = [Match.FIRST, *[Match.WITHIN] * (len(sequence) - 2), Match.LAST]
    assert found == expected * repetitions


@given(SEQUENCES, st.lists(st.builds(Step, st.integers(0, 3), st.integers(3, 5)), max_size=20))
def test_foreign_steps_are_no_iteration_and_the_next_is_found(
    sequence: tuple[Step, ...], noise: list[Step]
) -> None:
    """Steps of optimizers that the sequence does not have end nothing; it goes on right after them."""
    assume(primitive(sequence) and sequence[0].forwards)
    detector = SequenceDetector()
    learn(detector, sequence * 10)
    assert {detector.match(step) for step in noise} <= {Match.NONE}
    assert detector.match(sequence[0]) in (Match.WHOLE, Match.FIRST)


@given(SEQUENCES, SEQUENCES)
def test_another_sequence_is_learnt_after_200_events(
    before: tuple[Step, ...], after: tuple[Step, ...]
) -> None:
    """Training changes its course: the old sequence is forgotten, the new one found."""
    assume(primitive(before) and before[0].forwards and primitive(after) and after[0].forwards)
    after = tuple(step._replace(optimizer=step.optimizer + 3) for step in after)
    detector = SequenceDetector()
    learn(detector, before * 10)
    events = 0
    for step in after * 300:
        if not detector.sequence:
            break
        assert detector.match(step) is Match.NONE
        events += 1 + step.forwards
    assert 200 < events <= 204
    learnt = 0
    for step in after * 20:
        learnt += 1
        if detector.learn(step):
            break
    assert len(detector.sequence) == len(after)
    assert learnt <= 10 * len(after) + len(after)


def test_a_varying_number_of_forwards_is_never_a_sequence() -> None:
    """Batches of a token budget: nothing repeats ten times."""
    detector, draw = SequenceDetector(), random.Random(1)
    assert not any(detector.learn(Step(draw.randint(1, 7), 0)) for _ in range(500))


def test_a_sequence_broken_in_the_middle_may_begin_again_at_once() -> None:
    """AB AB A AB: the single A is dropped, the last AB is whole."""
    a, b = Step(1, 0), Step(0, 1)
    detector = SequenceDetector()
    learn(detector, (a, b) * 10)
    assert [detector.match(step) for step in (a, a, b)] == [Match.FIRST, Match.FIRST, Match.LAST]


def test_steps_without_forwards_are_a_sequence() -> None:
    """A compiled step function hides fetch and forward."""
    detector = SequenceDetector()
    learn(detector, (Step(0, 0),) * 10)
    assert detector.match(Step(0, 0)) is Match.WHOLE


def test_steps_of_one_optimizer_are_a_sequence_each() -> None:
    """Epochs of three whole steps and a rest repeat too: that is no iteration of four steps."""
    detector = SequenceDetector()
    learn(detector, (Step(2, 0), Step(2, 0), Step(2, 0), Step(1, 0)) * 10)
    assert detector.sequence == (Step(2, 0),)
    assert all(map(detector.is_whole, (Step(1, 0), Step(2, 0), Step(3, 0))))
    assert not any(map(detector.is_whole, (Step(0, 0), Step(1, 1))))
