"""Counted of a phase is what lies in no other span within it, so that phases add up to the iteration."""

from __future__ import annotations

import json
from statistics import median

import pytest

from .jobs import run_rank
from .reader import Reader

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = 12


CLOSURE = f"""
import gc, json, time, torch
import argus_training
gc.disable()
clock = time.perf_counter
own = {{"forward": [], "backward": [], "optimizer": [], "train_step": [], "gc": []}}
def timed(phase, work, *args):
    begin = clock()
    result = work(*args)
    own[phase].append(clock() - begin)
    return result
class Model(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.02)  # stands for work, here and below: what is measured, nothing is awaited
        return super().forward(x)
class Slow(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        time.sleep(0.01)
        return loss
model = Model(4, 1)
optimizer = Slow(model.parameters(), lr=0.1)
step = []
# Where ours stand: what torch does around its hooks is no part of the phase.
optimizer.register_step_pre_hook(lambda *_: step.append(clock()))
optimizer.register_step_post_hook(lambda *_: step.append(clock()))
def closure():
    optimizer.zero_grad()
    loss = timed("forward", model, torch.ones(4)).sum()
    timed("backward", loss.backward)
    return loss
optimizer.step(closure)  # the model is found in it
own = {{phase: [] for phase in own}}
for _ in range({STEPS}):
    with argus_training.span("train_step"):
        begin = clock()
        time.sleep(0.01)
        optimizer.step(closure)
        timed("gc", gc.collect)
        whole = clock() - begin
    own["optimizer"].append(step[-1] - step[-2] - own["forward"][-1] - own["backward"][-1])
    own["train_step"].append(whole - (step[-1] - step[-2]) - own["gc"][-1])
print(json.dumps(own))
"""


def test_a_closure_makes_no_phase_count_twice(reader: Reader) -> None:
    """Lightning and LBFGS train within the optimizer's step; here a user's span is around all of it.

    Each phase is what the program's own timers say: exclusive too, with nothing left between them.
    """
    result = run_rank(CLOSURE, reader.path)
    assert (result.returncode, result.stderr) == (0, "")
    said = reader.ended()
    own = json.loads(result.stdout)
    found = {phase: said.seconds(phase)[-STEPS:] for phase in own}
    for phase in ("forward", "optimizer", "train_step"):
        # Medians: in a few steps others have the processor between a timer of ours and one of the program's.
        assert median(found[phase]) == pytest.approx(median(own[phase]), rel=0.03, abs=0.001), phase
    assert sum(found["gc"]) <= sum(own["gc"])
    whole = [span for phase, _, span in said.spans if phase == "train_step"]
    inclusive = sum(span.duration_ns for span in whole) / 1e9
    assert sum(map(sum, found.values())) == pytest.approx(inclusive, rel=1e-3), "nothing twice, nothing lost"


def test_phases_of_a_compiled_model_do_not_count_its_compilation(reader: Reader) -> None:
    """A new shape is compiled for within a forward: that is a pause of its own."""
    program = """
import gc, torch, time
gc.disable()
def backend(graph, _inputs):
    time.sleep(0.3)
    return graph.forward
class Model(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1
model = torch.compile(Model(4, 1), backend=backend, dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in (1, 2, 2, 2):
    model(torch.ones(rows, 4)).sum().backward()
    optimizer.step()
"""
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    (_, latest) = said.compilations[-1]
    first = next(span for phase, _, span in said.spans if phase == "forward")
    assert first.duration_ns > latest.duration_ns > 300_000_000
    end = first.start_ns + first.duration_ns
    collected = [  # dynamo collects garbage by itself, once it has compiled
        span.duration_ns
        for phase, _, span in said.spans
        if phase == "gc" and first.start_ns <= span.start_ns < end
    ]
    assert first.nested_seconds == pytest.approx((latest.duration_ns + sum(collected)) / 1e9, rel=1e-6)
