"""Several optimizers, new ones, and ones whose step raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from .jobs import run_rank
from .reader import Reader, Said

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODEL = """
import torch
torch.set_num_threads(1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.last(self.first(x))
def steps(number, *optimizers, forwards=1):
    for _ in range(number):
        for _ in range(forwards):
            model(torch.ones(8, 4)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
model = Net()
"""


def said_of(program: str, path: Path) -> tuple[Said, str]:
    """What one rank said to an exporter, and its stderr."""
    with Reader(path) as reader:
        result = run_rank(MODEL + program, reader.path)
        assert result.returncode == 0, result.stderr
        return reader.ended(), result.stderr


def test_a_model_that_optimizers_share_is_the_root(tmp_path: Path) -> None:
    """Muon beside AdamW: the model has run before each step of the one, and between the two it need not."""
    said, _ = said_of(
        "optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.first, model.last)]\n"
        "steps(30, *optimizers)\n",
        tmp_path / "s",
    )
    assert said.work == {"samples": 29 * 8}, "all but the forward before the first step, once each"
    assert said.count()["forward"] == 29


def test_a_step_that_raised_hinders_no_other_optimizer(tmp_path: Path) -> None:
    """It is still referenced, so only the stack tells that it does not step any more."""
    said, stderr = said_of(
        "failed = torch.optim.LBFGS(model.parameters())\n"
        "def fails():\n"
        "    raise ValueError\n"
        "try:\n"
        "    failed.step(fails)\n"
        "except ValueError:\n"
        "    pass\n"
        "class Outer(torch.optim.SGD):\n"
        "    def step(self, closure=None):\n"
        "        inner.step()\n"
        "inner = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "steps(30, Outer(model.parameters(), lr=0.1))\n",
        tmp_path / "s",
    )
    assert stderr == ""
    assert said.count()["optimizer"] == 30, "a step within a step is none of its own"
    assert len(said.iterations) >= 29


def test_a_hook_that_fails_in_a_step_is_out_of_it(tmp_path: Path) -> None:
    """With hooks of the user's beside it, torch goes through them as it detaches."""
    said, stderr = said_of(
        "from torch.optim.optimizer import register_optimizer_step_post_hook\n"
        "import argus_training\n"
        "called = []\n"
        "register_optimizer_step_post_hook(lambda *_: called.append(1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "steps(1, optimizer)\n"
        "def fails(*_):\n"
        "    raise RuntimeError('ours')\n"
        "argus_training._observer.look = argus_training._observer.settle = fails\n"
        "steps(5, optimizer)\n"
        "assert len(called) == 6\n",
        tmp_path / "s",
    )
    assert "hook optimizer detached after 3 failures" in stderr
    assert said.count()["optimizer"] <= 4
