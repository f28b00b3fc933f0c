"""Sequences of fetches, forwards and optimizer steps, and the iterations they make."""

from __future__ import annotations

import random
import re

from argus_training.iterations import WITHOUT_STEPS, IterationDetector


def iterations(story: str) -> list[tuple[int, int]]:
    """Play a story, an event a tick from 1.

    d: fetch, f: forward, b: end of a backward, v: a forward without gradients, e: one of an evaluation,
    x: no more data, capitals: steps.
    """
    ended: list[tuple[int, int]] = []
    detector = IterationDetector(lambda start, end: ended.append((start, end)))
    for time, event in enumerate(re.sub(r"\s", "", story), 1):
        match event:
            case "d":
                detector.opening(time)
            case "f":
                detector.opening(time, trains=True)
            case "b":
                if detector.awaits_step:
                    detector.backward_ended(time)
            case "v":
                detector.paused()
            case "e":
                detector.abandoned()
                detector.paused()
            case "x":
                detector.opening(time)
                detector.exhausted()
            case optimizer:
                detector.optimizer_begins(ord(optimizer))
                detector.optimizer_ended(ord(optimizer), time)
    detector.finish()
    return ended


def test_plain_loop() -> None:
    """From fetch to optimizer step, then from step to step; the last one ends with the process."""
    assert iterations("dfA dfA dfA") == [(1, 3), (3, 6), (6, 9)]


def test_gradient_accumulation_is_one_iteration() -> None:
    """Many forwards, one step."""
    assert iterations("dfdfdfA dfdfdfA") == [(1, 7), (7, 14)]


def test_several_optimizers_are_one_iteration() -> None:
    """A generator and a discriminator, each with its own forward."""
    assert iterations("dfAfB dfAfB dfAfB") == [(1, 5), (5, 10), (10, 15)]


def test_two_optimizers_in_a_row() -> None:
    """The end is that of the last."""
    assert iterations("dfAB dfAB") == [(1, 4), (4, 8)]


def test_data_without_loader() -> None:
    """The first forward opens."""
    assert iterations("fA fA fA") == [(1, 2), (2, 4), (4, 6)]


def test_prefetched_data() -> None:
    """The next batch is fetched before the step: that changes no border."""
    assert iterations("d fdA fdA fdA") == [(1, 4), (4, 7), (7, 10)]


def test_evaluation_between_iterations_is_left_out() -> None:
    """Nor the fetches for it: after it an iteration begins where one opens."""
    assert iterations("dfA dfA dvdvdv dfA dfA") == [(1, 3), (3, 6), (13, 15), (15, 18)]


def test_the_end_of_an_epoch_is_part_of_the_next_iteration() -> None:
    """The loader says that there is no more, and is begun anew: that takes time, and all wait for it."""
    assert iterations("dfA dfA x dfA") == [(1, 3), (3, 6), (6, 10)]
    known = iterations("dfA" * 12 + "x" + "dfA")
    assert known[-1] == (36, 40)


def test_steps_alone_after_a_pause() -> None:
    """Nothing is seen to begin after it: the best that is known is the last end."""
    known = iterations("A" * 12 + "v" + "AA")
    assert known[-2:] == [(12, 14), (14, 15)]


def test_a_fetch_that_brought_nothing_opens_no_first_iteration() -> None:
    """An empty loader before the one that is trained from, or one of evaluation."""
    assert iterations("x dfA dfA") == [(2, 4), (4, 7)]
    assert iterations("dfA v x dfA") == [(1, 3), (6, 8)]


def test_frozen_forward_within_an_iteration_changes_nothing() -> None:
    """A forward without gradients after one with them (a teacher) is part of the iteration."""
    assert iterations("dfvfA dfvfA") == [(1, 5), (5, 10)]


def test_cycle_that_shrinks_is_learnt_again() -> None:
    """The second optimizer stops stepping: after one late iteration the cycle is the first alone."""
    assert iterations("dfAB dfAB dfA dfA dfA") == [(1, 4), (4, 8), (8, 11), (11, 14), (14, 17)]


def test_steps_alone() -> None:
    """Neither fetch nor forward is seen (a compiled step function): from step to step, after the first."""
    assert iterations("A A A") == [(1, 2), (2, 3)]


def test_own_marks_take_over() -> None:
    """Where the user marks iterations, events are ignored."""
    ended: list[tuple[int, int]] = []
    detector = IterationDetector(lambda start, end: ended.append((start, end)))
    detector.mark(10, 20)
    detector.opening(21)
    detector.optimizer_ended(1, 22)
    detector.opening(23)
    detector.finish()
    assert ended == [(10, 20)]


def test_known_sequence_ends_with_its_step() -> None:
    """After ten repetitions an iteration is reported when it ends, not when the next one opens."""
    ended: list[tuple[int, int]] = []
    detector = IterationDetector(lambda start, end: ended.append((start, end)))
    for index in range(11):
        detector.opening(10 * index + 1)
        detector.opening(10 * index + 2, trains=True)
        detector.optimizer_begins(7)
        detector.optimizer_ended(7, 10 * index + 5)
        if index >= 9:
            assert ended[-1] == (10 * index - 5, 10 * index + 5)
    assert len(ended) == 11


def test_critic_steps_are_one_iteration_with_the_generator() -> None:
    """Five steps of a critic and one of the generator: one iteration once that has repeated ten times."""
    cycle = "dfA dfA dfA dfA dfA dfB"
    found = iterations(cycle * 13)
    assert found[-3:] == [(18 * start, 18 * start + 18) for start in (10, 11, 12)]


def test_a_step_that_was_skipped_is_part_of_the_next_iteration() -> None:
    """The gradient scaler leaves it out, on all ranks alike: nothing tells it from a step of two forwards."""
    found = iterations("dfA" * 12 + "df dfA" + "dfA")
    assert found[-3:] == [(33, 36), (36, 41), (41, 44)]
    assert len(found) == 14


def test_steps_of_the_one_optimizer_are_iterations_however_many_forwards_they_have() -> None:
    """A regulariser each eighth step, or micro-batches by a budget of tokens: those are the slow ones."""
    assert len(iterations(("dfA" * 7 + "dffA") * 20)) == 160
    draw = random.Random(2)
    parts = draw.choices((3, 4, 5), (1, 18, 1), k=400)
    assert len(iterations("".join("df" * part + "A" for part in parts))) == 400


def test_micro_batches_before_an_evaluation_are_left_over() -> None:
    """An epoch ends in the middle of an accumulation: the next iteration begins after the evaluation."""
    for known in (1, 12):
        found = iterations("dfdfA" * known + "df eee dfdfA")
        size = 5 * known
        assert found[-2:] == [(size - 4 if known == 1 else size - 5, size), (size + 6, size + 10)][-2:]


def test_an_iteration_of_more_optimizers_than_any_sequence_is_one() -> None:
    """One for each parameter, stepped within the backward."""
    assert len(iterations(("df" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ") * 40)) == 40


def test_a_new_optimizer_counts_from_its_first_step_on() -> None:
    """Unfreezing, or the next trial in one process; so does one that steps after the known one."""
    assert len(iterations("dfA" * 30 + "dfB" * 30)) == 60
    ended = iterations("dfA" * 30 + "dfAB" * 30)
    assert len(ended) >= 59
    assert all(end - start <= 4 for start, end in ended)


def test_more_micro_batches_for_good_are_learnt_at_their_second_step() -> None:
    """The first may be a step that was skipped. Each is an iteration, before and after."""
    assert len(iterations("dfA" * 30 + "dfdfA" * 30)) == 60
    assert len(iterations("dfA" * 30 + ("dfdfA" + "dfA" * 10) * 5)) == 30 + 5 * 11


def test_changing_accumulation_is_always_seen() -> None:
    """Micro-batches vary from step to step: no sequence, and still every iteration."""
    draw = random.Random(1)
    parts = [draw.randint(1, 5) for _ in range(60)]
    assert len(iterations("".join("df" * part + "A" for part in parts))) == 60


def test_loaders_that_look_ahead_lose_no_iteration_of_any_epoch() -> None:
    """accelerate fetches one batch ahead: the first step of an epoch has two fetches, the last has none."""
    epoch = "ddfA dfA dfA fA"
    found = iterations(epoch * 20)
    assert len(found) == 80


def test_micro_batches_left_at_the_end_of_an_epoch_are_an_iteration() -> None:
    """Shorter, and of less work; also where so short an epoch repeats as a whole."""
    found = iterations("dfdfA dfdfA dfdfA dfA" * 20)
    assert len(found) == 80
    assert found[-1][1] - found[-1][0] == 3
    assert found[-2][1] - found[-2][0] == 5


def test_fewer_micro_batches_for_good_are_learnt_anew() -> None:
    """Accumulation goes from four to two: each is an iteration, before and after that is known."""
    detector = IterationDetector(lambda start, end: ended.append((start, end)))
    ended: list[tuple[int, int]] = []
    time = 0
    for micro_batches in (4,) * 20 + (2,) * 200:
        for _ in range(micro_batches):
            detector.opening(time := time + 1, trains=True)
        detector.optimizer_begins(1)
        detector.optimizer_ended(1, time := time + 1)
    assert len(ended) == 220
    assert detector.progress.usual_forwards == 2


def test_steps_behind_a_loader_whose_forward_nobody_sees() -> None:
    """From step to step, however many fetches there were."""
    found = iterations("ddA" + "dA" * 30)
    assert len(found) == 31
    assert found[-1][1] - found[-1][0] == 2


def test_a_known_sequence_begins_where_data_is_fetched() -> None:
    """Of two optimizers in turn, whichever forward was seen first."""
    for first in ("ddAB", "ddAfB", "ddfAfB"):
        found = iterations(first + "ddfAfB" * 29)
        assert len(found) == 30
        assert {end - start for start, end in found[1:]} == {6}


UNSEEN = "f b " * WITHOUT_STEPS
"""What passes until an optimizer's step is no longer waited for."""


def test_without_an_optimizer_the_next_forward_ends_an_iteration() -> None:
    """The update, which nobody sees, is part of it; so is a second backward, as of a penalty."""
    begin = 2 * WITHOUT_STEPS
    assert iterations(UNSEEN + "d f b  d f b b  d f b") == [
        (begin + 1, begin + 5),
        (begin + 5, begin + 9),
        (begin + 9, begin + 10),
    ]


def test_without_an_optimizer_evaluation_is_left_out() -> None:
    begin = 2 * WITHOUT_STEPS
    assert iterations(UNSEEN + "f b  v v v  f b") == [(begin + 1, begin + 2), (begin + 6, begin + 7)]


def test_an_optimizer_that_steps_late_is_what_counts() -> None:
    """More micro-batches than are waited for, before its first step."""
    found = iterations(UNSEEN + "f b" * 3 + "A" + "f b f b A" * 3)
    assert found[-3:] == [(step, step + 5) for step in (135, 140, 145)]
