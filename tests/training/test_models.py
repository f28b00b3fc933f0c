"""Models come and go, and have several heads: each is found, timed and let go of."""

from __future__ import annotations

from pathlib import Path

import pytest

from .jobs import run_rank
from .reader import Reader, Said

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEADS = """
import gc, tempfile, time, torch, warnings, weakref
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.first, self.second = (torch.nn.Linear(8, 8) for _ in range(3))
    def forward(self, x, head):
        return (self.first if head else self.second)(self.trunk(x))
def fold(number=10):
    model = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(number):
        model(torch.ones(4, 8), step % 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model
"""


def said_of(program: str, path: Path) -> Said:
    with Reader(path) as reader:
        result = run_rank(program, reader.path)
        assert (result.returncode, result.stderr) == (0, "")
        return reader.ended()


def test_the_wait_for_gradients_is_split_off_whichever_head_is_trained(tmp_path: Path) -> None:
    """The parameter that told the end of the first backward gets no gradient in each second one."""
    said = said_of(HEADS + "fold(30)\n", tmp_path / "s")
    assert said.count()["backward"] == 30
    assert said.count()["dp-allreduce"] >= 28


def test_a_model_that_the_program_lets_go_of_is_gone(tmp_path: Path) -> None:
    """Nothing of ours keeps it, and what goes to another process goes without us and without a warning."""
    program = HEADS + (
        "from multiprocessing.reduction import ForkingPickler\n"
        "import torch.multiprocessing\n"
        "model = fold()\n"
        "warnings.simplefilter('error')\n"
        "ForkingPickler.dumps(model.module)\n"
        "gone = [weakref.ref(model), weakref.ref(model.module), weakref.ref(fold())]\n"
        "del model\n"
        "gc.collect()\n"
        "assert not any(one() for one in gone), gone\n"
    )
    assert said_of(program, tmp_path / "s").count()["forward"] == 18


def test_model_after_model_is_found(tmp_path: Path) -> None:
    """Cross-validation, a search: the first few at once, later ones after a while."""
    program = HEADS + (
        "from argus_training.torch_hooks import forward\n"
        "forward._SCANS_AT_ONCE, forward._SCAN_NS = 2, 1_500_000_000\n"
        "for _ in range(2): fold()\n"
        "limit = time.monotonic() + 30\n"
        "import argus_training\n"
        "hook = next(one for one in argus_training._observer.hooks if one.name == 'forward')\n"
        "model = fold(0)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "while id(model) not in hook._roots and time.monotonic() < limit:\n"
        "    model(torch.ones(4, 8), 0).sum().backward()\n"
        "    optimizer.step()\n"
        "model(torch.ones(4, 8), 0).sum().backward()\n"
    )
    assert said_of(program, tmp_path / "s").count()["forward"] == 19


def test_a_thread_that_waits_in_a_collective_hides_no_other_s(tmp_path: Path) -> None:
    """An asynchronous checkpoint gathers what it has written, while training goes on."""
    program = HEADS + (
        "import threading\n"
        "class Late:\n"
        "    def __reduce__(self):\n"
        "        waits.set()\n"
        "        assert trained.wait(60)\n"
        "        return str, ()\n"
        "waits, trained = threading.Event(), threading.Event()\n"
        "fold()\n"
        "thread = threading.Thread(target=torch.distributed.broadcast_object_list, args=([Late()],))\n"
        "thread.start()\n"
        "assert waits.wait(60)\n"
        "for _ in range(5): torch.distributed.all_reduce(torch.ones(1))\n"
        "trained.set()\n"
        "thread.join()\n"
    )
    assert said_of(program, tmp_path / "s").count()["all_reduce"] == 5


def test_optimizers_that_step_within_the_backward_are_part_of_it(tmp_path: Path) -> None:
    """One for each parameter, before the model is called again: the backward ends with the step."""
    program = (
        "import torch\n"
        "torch.set_num_threads(1)\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(40)))\n"
        "optimizers = {one: torch.optim.SGD([one], lr=0.1) for one in model.parameters()}\n"
        "for one in optimizers:\n"
        "    one.register_post_accumulate_grad_hook(lambda one: optimizers[one].step())\n"
        "for _ in range(12): model(torch.ones(8, 4)).sum().backward()\n"
    )
    said = said_of(program, tmp_path / "s")
    assert said.work == {"samples": 11 * 8}
    assert said.count()["forward"] == len(said.iterations) - 1 == 11
    assert said.count()["backward"] == 12
    assert "optimizer" not in said.count()


def test_a_model_that_is_checkpointed_whole_trains(tmp_path: Path) -> None:
    """Reentrant: it is called without gradients, and again within the backward. A pass takes 10 ms."""
    program = (
        "import time\n"
        "import torch\n"
        "from torch.utils.checkpoint import checkpoint\n"
        "torch.set_num_threads(1)\n"
        "class Model(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        time.sleep(0.01)\n"
        "        return super().forward(x)\n"
        "model = Model(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "x = torch.ones(8, 4, requires_grad=True)\n"
        "for _ in range(12):\n"
        "    checkpoint(lambda x: model(x), x, use_reentrant=True).sum().backward()\n"
        "    optimizer.step()\n"
    )
    said = said_of(program, tmp_path / "s")
    assert said.work == {"samples": 11 * 8}
    assert said.count()["forward"] == 11
    assert all(one.duration_ns >= 20e6 for one in said.iterations[1:]), "both passes are in its iteration"


def test_a_frozen_heap_is_told(tmp_path: Path) -> None:
    """`gc.freeze` takes the model out of what a program can be asked for."""
    program = HEADS + "model = fold(0)\ngc.freeze()\nfold(3)\n"
    program = program.replace("    optimizer = ", "    gc.freeze()\n    optimizer = ")
    result = run_rank(program, tmp_path / "nobody")
    assert result.returncode == 0
    assert result.stderr.count("gc.freeze() before the first optimizer step") == 1
