"""The short way of the hooks, which they take while all goes as usual: it says what the general way says."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from .jobs import LOOP, run_rank
from .reader import Reader, Said

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

GENERAL = """
import torch
import argus_training
argus_training._observer.never_steady = True
"""

STORY = """
import os, sys, tempfile, torch
import argus_training
torch.set_num_threads(1)
torch.manual_seed(0)
torch.distributed.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
class Nested(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, index):
        return next(iter(torch.utils.data.DataLoader(torch.rand(20, 8))))[0]
loader = torch.utils.data.DataLoader(torch.rand(200, 8), batch_size=10)
steady = []
def train(loader=loader):
    for x in loader:
        loss = model(x).square().mean()
        loss.backward()
        torch.distributed.all_reduce(loss.detach())
        torch.distributed.all_reduce(loss.detach(), async_op=True).wait()
        optimizer.step()
        optimizer.zero_grad()
    steady.append(argus_training._observer.progress.steady)
    return loss.item()
def expect(call):
    try: call()
    except (RuntimeError, ValueError): return
    raise AssertionError(call)
train()
model.eval()
with torch.no_grad():
    for x in loader: model(x)
steady.append(argus_training._observer.progress.steady)
model.train()
train()
train(torch.utils.data.DataLoader(Nested(), batch_size=10))
model(next(iter(loader))).sum().backward()  # a step that is left out
train()
with model.no_sync():
    model(next(iter(loader))).sum().backward()
train()
expect(lambda: model(torch.ones(1, 3)))
train()
expect(lambda: torch.ones(1).backward())
def closure(): raise ValueError
expect(lambda: optimizer.step(closure))
train()
other = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    model(x).sum().backward()
    other.step()
train()
print(train(), steady)
"""


def told(path: Path, program: str) -> tuple[str, Said]:
    """All but the first span is sent at the end: each sending measures anew what Unix time is."""
    with Reader(path) as reader:
        result = run_rank(program, path, ARGUS_FLUSH_MILLISECONDS="60000")
        assert (result.returncode, result.stderr) == (0, "")
        said = reader.ended()
    return result.stdout, said


def outline(said: Said) -> dict[str, Any]:
    """All but the times."""
    assert said.page is not None
    page = said.page.read()
    spans = sorted((span.start_ns, phase, span.step) for phase, _, span in said.spans if phase != "gc")
    return {
        "spans": [(phase, step) for _, phase, step in spans],
        "iterations": [(one.step, one.total_count) for one in said.iterations],
        "activities": said.activities[-1],
        "open": page.open_spans,
        "step": page.step,
        "collectives": [(one.group, one.number) for one in page.collectives],
        "dropped": [state.dropped for state, _ in said.channels][-1],
    }


@pytest.fixture(scope="module")
def on_short_way(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Said]:
    return told(tmp_path_factory.mktemp("short") / "s", STORY)


def test_short_way_and_general_way_say_the_same(on_short_way: tuple[str, Said], tmp_path: Path) -> None:
    """Through evaluations, left out steps, errors, nested loaders and another optimizer."""
    short, with_short = on_short_way
    general, without = told(tmp_path / "s", GENERAL + STORY)
    assert short.split()[0] == general.split()[0]
    assert short.split(maxsplit=1)[1].count("True") >= 6, "the short way was hardly taken"
    assert "True" not in general
    assert outline(with_short) == outline(without)
    assert with_short.count()["dp-allreduce"] > 100
    assert with_short.count()["all_reduce"] == with_short.count()["all_reduce-wait"] > 100


def test_spans_of_the_short_way_lie_within_their_iterations(on_short_way: tuple[str, Said]) -> None:
    """One after the other, from the end of the iteration before to its own."""
    _, said = on_short_way
    begins = {(phase, span.step): span.start_ns for phase, _, span in said.spans}
    ends = {(phase, span.step): span.start_ns + span.duration_ns for phase, _, span in said.spans}
    for iteration in said.iterations[15:20]:
        step = iteration.step
        assert ends["optimizer", step - 1] == iteration.end_ns - iteration.duration_ns <= begins["data", step]
        for phase, next_phase in itertools.pairwise(
            ("data", "forward", "backward", "dp-allreduce", "optimizer")
        ):
            assert begins[phase, step] < ends[phase, step] <= begins[next_phase, step]
        assert begins["forward", step] < begins["dp-buffers-broadcast", step]
        assert ends["dp-buffers-broadcast", step] < ends["forward", step]
        nested = {phase: span.nested_seconds for phase, _, span in said.spans if span.step == step}
        broadcast = ends["dp-buffers-broadcast", step] - begins["dp-buffers-broadcast", step]
        assert nested.pop("forward") == pytest.approx(broadcast / 1e9, rel=1e-6)
        assert not any(nested.values())
        assert ends["optimizer", step] == iteration.end_ns


def test_failures_on_the_short_way_are_contained(reader: Reader, tmp_path: Path) -> None:
    """What the short way writes raises from the twentieth step on: same result, and it is said."""
    broken = """
from argus_training import outbox
class Broken(outbox.StepLog):
    def __init__(self):
        super().__init__()
        intact = self.put
        def put(entries):
            if broken and type(entries[0]) is int and entries[0]: raise RuntimeError("ours")
            intact(entries)
        self.put = put
broken = False
outbox.StepLog = Broken
"""
    program = LOOP + "train(); train(); broken = True\nprint(train(), torch.autograd.backward.__module__)"
    observed = run_rank(broken + program, reader.path)
    said = reader.ended()
    plain = run_rank(program, tmp_path / "s", ARGUS_DISABLE="1")
    assert (observed.returncode, observed.stdout.split()[0]) == (0, plain.stdout.split()[0])
    assert observed.stderr.count("argus: hook data detached after 3 failures") == 1
    state, reason = said.channels[-1]
    assert (state.up, reason) == (0, "hook_data")
    assert said.count()["forward"] > 25, "the other hooks go on, on the general way"
