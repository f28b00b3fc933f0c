"""Which layers and micro-batches a step samples: alike on all ranks, all of them in turn, few at a time."""

from __future__ import annotations

import gc
import itertools
from collections import Counter

import pytest

from argus_training.layer_plan import LAYERS_A_STEP, LayerPlan, Model, layers_of, microbatch_of


class Module:
    """Stands for one of torch's: what is needed of it is its id and its life."""


@pytest.mark.parametrize("every", [1, 2, 8, 64])
@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5, 7, 32, 80, 126])
def test_every_layer_is_sampled_in_every_micro_batch(layers: int, every: int) -> None:
    """About as often as any other, whichever steps are sampled, and never more than four in a step."""
    steps = range(0, 300 * layers * every, every)
    seen: Counter[tuple[int, int]] = Counter()
    for step in steps:
        chosen = layers_of(step, layers)
        assert len(set(chosen)) == len(chosen) == min(layers, LAYERS_A_STEP)
        seen.update((layer, microbatch_of(step, 8)) for layer in chosen)
    assert seen.keys() == {(layer, microbatch) for layer in range(layers) for microbatch in (0, 4, 7)}
    share = len(steps) * min(layers, LAYERS_A_STEP) / layers / 3
    assert all(0.7 * share < count < 1.3 * share for count in seen.values())


def test_of_few_micro_batches_each_is_sampled() -> None:
    """First, middle and last of one, two and three."""
    turns = [{microbatch_of(step, count) for step in range(20)} for count in (1, 2, 3, 4)]
    assert turns == [{0}, {0, 1}, {0, 1, 2}, {0, 2, 3}]


def test_no_layers_are_no_samples() -> None:
    assert layers_of(5, 0) == []


def blocks(count: int) -> tuple[list[Module], Model]:
    modules = [Module() for _ in range(count)]
    return modules, Model([("block", module) for module in modules])


def test_the_number_of_micro_batches_is_that_of_the_step_before() -> None:
    """Counted by the calls of the model; a step in which it was not called tells nothing."""
    _modules, model = blocks(8)
    plan = LayerPlan()
    known, calls = 1, (6, 2, 0, 2, 2, 5, 5, 5, 5)
    for step, called in enumerate(calls, start=1):
        plan.begin(step, step * 10**9, warm=True)
        armed = []
        for number in range(called):
            plan.microbatch(model)
            armed += [number] if plan.armed else []
            assert {one.microbatch for one in plan.armed.values()} <= {number}
        expected = microbatch_of(step, known)
        assert armed == ([expected] if expected < called else [])
        known = called or known
    assert plan.cost_ns == sum(calls) * 8 * 300


def test_the_next_micro_batch_of_any_model_ends_the_turn_of_layers() -> None:
    """A layer that was not called in its micro-batch is not sampled in a later one."""
    (_six, model), (_two, other) = blocks(6), blocks(2)
    plan = LayerPlan()
    plan.begin(1, 10**9, warm=True)
    plan.microbatch(model)
    assert len(plan.armed) == 4
    plan.microbatch(model)
    assert not plan.armed
    plan.microbatch(other)
    assert len(plan.armed) == 2


def test_a_plan_keeps_no_module_alive() -> None:
    """One that is gone is not sampled any more."""
    modules, model = blocks(4)
    del modules[2:]
    gc.collect()
    plan = LayerPlan()
    plan.begin(0, 1, warm=True)
    plan.microbatch(model)
    assert plan.armed.keys() == {id(module) for module in modules}


@pytest.mark.parametrize(
    ("step_ms", "apart"), [(0.3, (0.2, 0.8)), (24, (0.2, 0.8)), (300, (0.3, 0.3)), (5000, (5, 5))]
)
def test_short_steps_are_sampled_less_often(step_ms: float, apart: tuple[float, float]) -> None:
    """Samples are 0.2 to 0.8 s apart, or in each step."""
    plan = LayerPlan()
    sampled = []
    for step in range(1, 40_000 if step_ms < 1 else 1000):
        now = step * step_ms / 1000
        plan.begin(step, int(now * 1e9), warm=True)
        sampled += [now] if plan.samples else []
    between = [later - before for before, later in itertools.pairwise(sampled)][-10:]
    assert apart[0] <= min(between) + 1e-9 and max(between) <= apart[1] + 1e-9


def test_steps_that_become_long_again_are_each_sampled() -> None:
    """Half as many lie between from one sample to the next."""
    plan = LayerPlan()
    for step in range(1, 200):
        plan.begin(step, step * 10**6, warm=True)
    begin, sampled = plan.step, []
    for step in range(begin + 1, begin + 600):
        plan.begin(step, step * 10**9, warm=True)
        sampled += [step] if plan.samples else []
    assert sampled[-5:] == list(range(begin + 595, begin + 600))
