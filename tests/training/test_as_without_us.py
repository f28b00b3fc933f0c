"""What a program does with its model beside training it is as without us."""

from __future__ import annotations

from pathlib import Path

import pytest

from .jobs import run_rank

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TRAINED = """
import os, torch
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x).relu()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(4)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
model, head = Net(), torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
def step():
    optimizer.zero_grad()
    head(model(torch.ones(8, 4))).sum().backward()
    optimizer.step()
for _ in range(15):
    step()
observed = ["__call__" in vars(one) for one in (Net, Block, torch.nn.Linear)]
assert observed == [not os.environ.get("ARGUS_DISABLE")] * 3, observed
"""


def outcome(program: str, path: Path, **more: str) -> str:
    """What it prints, on a rank of a job."""
    result = run_rank(program, path / "s", **more)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_class_that_is_pickled_by_value_has_nothing_of_us(tmp_path: Path) -> None:
    """As cloudpickle does with a class of `__main__`: a function with all that it closes over."""
    program = TRAINED + (
        "import pickle, types\n"
        "def cells(function):\n"
        "    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):\n"
        "        one = cell.cell_contents\n"
        "        if isinstance(one, type) and one.__name__ == 'Original':\n"
        "            yield from cells(one.__call__)\n"
        "        elif one not in (Net, Block):\n"
        "            yield name, one\n"
        "for one in (Net, Block):\n"
        "    for name, held in cells(one.__call__):\n"
        "        pickled = pickle.dumps(held.__name__ if isinstance(held, types.ModuleType) else held)\n"
        "        assert b'argus' not in pickled, name\n"
        "        print(name, repr(pickle.loads(pickled)))\n"
    )
    assert "ours False" in outcome(program, tmp_path).splitlines()


def test_fx_sees_the_model_as_without_us(tmp_path: Path) -> None:
    """The class of a model may be torch's own, of modules that others hold: nn.Linear stays a leaf."""
    program = TRAINED + "print(torch.fx.symbolic_trace(torch.nn.Sequential(model.eval(), head)).graph)\n"
    assert outcome(program, tmp_path) == outcome(program, tmp_path, ARGUS_DISABLE="1")


def test_what_torch_records_is_as_without_us(tmp_path: Path) -> None:
    """No work is counted there: torch.jit.trace records what asks for a shape, make_fx has symbols."""
    program = TRAINED + (
        "import sys\n"
        "from torch.fx.experimental.proxy_tensor import make_fx\n"
        "class Outer(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.model, self.head = model, head\n"
        "    def forward(self, x):\n"
        "        return self.head(self.model(x))\n"
        "print(torch.jit.trace(Outer(), torch.ones(2, 4)).inlined_graph)\n"
        "whole = make_fx(Outer(), tracing_mode='symbolic', _allow_non_fake_inputs=True)\n"
        "print(whole(torch.ones(2, 4)).graph)\n"
        "if 'argus_training' in sys.modules:\n"
        "    totals = sys.modules['argus_training']._observer.recorder.host.work_totals\n"
        "    assert {type(total) for total in totals.values()} == {int}, totals\n"
        "    assert sum(totals.values()) == 14 * 16, totals\n"
    )
    assert outcome(program, tmp_path) == outcome(program, tmp_path, ARGUS_DISABLE="1")


def test_what_a_signal_handler_raises_within_us_reaches_the_program(tmp_path: Path) -> None:
    """A time limit or a preemption is no failure of ours; the handler may be a function, or hold one."""
    program = TRAINED + (
        "import argus_training, functools, signal\n"
        "class Preempted(Exception):\n"
        "    pass\n"
        "class Handler:\n"
        "    def __call__(self, *_):\n"
        "        raise Preempted\n"
        "    method = __call__\n"
        "argus_training._observer.on_models.append(lambda _: signal.raise_signal(signal.SIGALRM))\n"
        "handlers = [Handler(), Handler().method, functools.partial(Handler.method, None)]\n"
        "for handler in handlers:\n"
        "    signal.signal(signal.SIGALRM, handler)\n"
        "    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)\n"
        "    try:\n"
        "        step()\n"
        "    except Preempted:\n"
        "        print('arrived')\n"
        "argus_training._observer.on_models.pop()\n"
        "before = argus_training._observer.recorder.step\n"
        "for _ in range(20):\n"
        "    step()\n"
        "assert argus_training._observer.recorder.step >= before + 19\n"
        "assert all(hook.alive and not hook.failures for hook in argus_training._observer.hooks)\n"
    )
    assert outcome(program, tmp_path) == "arrived\n" * 3


def test_what_a_signal_ended_within_us_begins_anew(tmp_path: Path) -> None:
    """Ctrl-C in a notebook, or a time limit, in the hook of each call: the next call is seen."""
    program = TRAINED + (
        "import argus_training, signal, tempfile\n"
        "torch.distributed.init_process_group(\n"
        "    'gloo', init_method='file://' + tempfile.mktemp(), rank=0, world_size=1)\n"
        "observer = argus_training._observer\n"
        "loader = torch.utils.data.DataLoader(torch.ones(8, 4))\n"
        "calls = {\n"
        "    'data': lambda: next(iter(loader)),\n"
        "    'forward': lambda: model(torch.ones(8, 4)),\n"
        "    'backward': lambda: torch.ones(1, requires_grad=True).backward(),\n"
        "    'all_reduce': lambda: torch.distributed.all_reduce(torch.ones(1)),\n"
        "}\n"
        "observer.unsettle()\n"
        "stopwatch, recorder = observer.stopwatch, observer.recorder\n"
        "begins = stopwatch.begin, recorder.begin\n"
        "begun = []\n"
        "class Limit(Exception):\n"
        "    pass\n"
        "def raising(*_):\n"
        "    begun.append(1)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "for error in (KeyboardInterrupt, Limit):\n"
        "    def handler(*_):\n"
        "        raise error\n"
        "    signal.signal(signal.SIGINT, handler)\n"
        "    for name, call in calls.items():\n"
        "        stopwatch.begin = recorder.begin = raising\n"
        "        for _ in range(2):\n"
        "            try:\n"
        "                call()\n"
        "            except error:\n"
        "                print(name)\n"
        "        stopwatch.begin, recorder.begin = begins\n"
        "        call()\n"
        "assert all(hook.alive and not hook.failures for hook in observer.hooks)\n"
    )
    assert (
        outcome(program, tmp_path).split()
        == ["data", "data", "forward", "forward", "backward", "backward", "all_reduce", "all_reduce"] * 2
    )
