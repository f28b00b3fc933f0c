"""DeepSpeed and Megatron-LM: stand-ins that have their public attach points and nothing else.

Names as in DeepSpeed 0.16 (`runtime/engine.py`, `runtime/pipe/engine.py`) and Megatron-Core 0.12
(`core/timers.py`, `core/pipeline_parallel/schedules.py`, `training/training.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from argus_core import wire
from argus_training import boot_directory

from .reader import Reader

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DEEPSPEED = {
    "deepspeed/__init__.py": "",
    "deepspeed/runtime/__init__.py": "",
    "deepspeed/runtime/engine.py": """
import torch
class ZeroOptimizer:
    '''Not torch's: steps an optimizer of flat copies once for each group.'''
    def __init__(self, model):
        self.flat = [torch.nn.Parameter(p.detach().clone().flatten()) for p in model.parameters()]
        self.inner = torch.optim.SGD(self.flat, lr=0.1)
        self.param_groups = self.inner.param_groups
    def step(self):
        for flat in self.flat:
            flat.grad = torch.ones_like(flat)
            self.inner.step()
class DeepSpeedEngine(torch.nn.Module):
    def __init__(self, model, accumulation):
        super().__init__()
        self.module, self.accumulation, self.micro_steps = model, accumulation, 0
        self.optimizer = ZeroOptimizer(model)
    def zero_optimization_stage(self):
        return 1
    def is_gradient_accumulation_boundary(self):
        return (self.micro_steps + 1) % self.accumulation == 0
    def forward(self, x):
        return self.module(x)
    def allreduce_gradients(self):
        pass
    def backward(self, loss):
        loss.backward()
        if self.is_gradient_accumulation_boundary():
            self.allreduce_gradients()
    def step(self):
        if self.is_gradient_accumulation_boundary():
            self.optimizer.step()
        self.micro_steps += 1
""",
    "deepspeed/runtime/pipe/__init__.py": "",
    "deepspeed/runtime/pipe/engine.py": """
from deepspeed.runtime.engine import DeepSpeedEngine
class LoadMicroBatch: pass
class ForwardPass: pass
class BackwardPass: pass
class SendActivation: pass
class ReduceGrads: pass
class OptimizerStep: pass
class PipelineEngine(DeepSpeedEngine):
    def is_gradient_accumulation_boundary(self):
        return True
    def _exec_load(self): self.x = __import__('torch').ones(2, 4)
    stage_id, device = 1, __import__('torch').device('cpu')
    def _exec_forward(self): self.y = super().forward(self.x)
    def _exec_backward(self): self.y.sum().backward()
    def _exec_send(self): pass
    def _exec_reduce(self): pass
    def _exec_step(self): self.optimizer.step()
    _INSTRUCTION_MAP = {LoadMicroBatch: _exec_load, ForwardPass: _exec_forward,
                        BackwardPass: _exec_backward,
                        SendActivation: _exec_send, ReduceGrads: _exec_reduce, OptimizerStep: _exec_step}
    def train_batch(self, micro_batches=1):
        passes = [LoadMicroBatch, ForwardPass, SendActivation, BackwardPass]
        for one in (*(passes * micro_batches), ReduceGrads, OptimizerStep):
            self._INSTRUCTION_MAP[one](self)
    def eval_batch(self):
        self.module.eval()
        for one in (LoadMicroBatch, ForwardPass):
            self._INSTRUCTION_MAP[one](self)
        self.module.train()
""",
}

MEGATRON = {
    "megatron/__init__.py": "",
    "megatron/core/__init__.py": "",
    "megatron/core/parallel_state.py": """
_made = False
def initialize_model_parallel(*args, **kwargs):
    global _made
    _made = True
def model_parallel_is_initialized(): return _made
def get_tensor_model_parallel_rank(): return 1
def get_tensor_model_parallel_world_size(): return 2
def get_pipeline_model_parallel_rank(): return 0
def get_pipeline_model_parallel_world_size(): return 2
def get_data_parallel_rank(): return 0
def get_data_parallel_world_size(): return 1
def get_context_parallel_rank(): return 0
def get_context_parallel_world_size(): return 1
def get_expert_model_parallel_rank(): return 0
def get_expert_model_parallel_world_size(): return 1
""",
    "megatron/core/timers.py": """
class Timer:
    started = 0
    def start(self, barrier=False): Timer.started += 1
    def stop(self, barrier=False): pass
    def elapsed(self, reset=True): return 42
class Timers:
    def __call__(self, name, log_level=None): return Timer()
""",
    "megatron/core/pipeline_parallel/__init__.py": "",
    "megatron/core/pipeline_parallel/schedules.py": """
def forward_step(model, x): return model(x)
def custom_backward(output, gradient): output.backward(gradient)
def forward_backward(model, x, timers):
    timers('forward-backward').start()
    timers('forward-recv').start()
    timers('forward-recv').stop()
    output = forward_step(model, x)
    custom_backward(output, None)
    timers('all-grads-sync').start()
    timers('all-grads-sync').stop()
    assert timers('all-grads-sync').elapsed(reset=True) == 42
    timers('forward-backward').stop()
""",
    "megatron/training/__init__.py": "",
    "megatron/training/training.py": """
from megatron.core.pipeline_parallel import schedules
def train_step(model, x, optimizer, timers):
    schedules.forward_backward(model, x, timers)
    optimizer.step()
    optimizer.zero_grad()
def train(model, x, optimizer, timers, steps):
    for _ in range(steps):
        train_step(model, x, optimizer, timers)
""",
}

LIGHTNING = {
    "lightning/__init__.py": "",
    "lightning/pytorch/__init__.py": "",
    "lightning/pytorch/strategies/__init__.py": "",
    "lightning/pytorch/strategies/strategy.py": """
class Strategy:
    def __init__(self, module): self.module = module
    def training_step(self, *args): return self.module.training_step(*args)
    def validation_step(self, *args): return self.module.validation_step(*args)
""",
    "lightning/pytorch/trainer/__init__.py": "",
    "lightning/pytorch/trainer/trainer.py": """
import io, torch
class Trainer:
    def save_checkpoint(self, path): torch.save({}, io.BytesIO())
""",
}


def run(tmp_path: Path, files: dict[str, str], program: str, **environ: str) -> None:
    for name, text in files.items():
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARGUS_", "RANK"))}
    path = os.pathsep.join((str(boot_directory()), str(tmp_path / "site")))
    ours = {"PYTHONPATH": path, "ARGUS_SOCKET": str(tmp_path / "s"), "RANK": "0", "WORLD_SIZE": "1"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(
        command, env=kept | ours | environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_deepspeed_engine_step_is_the_iteration(tmp_path: Path, reader: Reader) -> None:
    """Four micro-steps an iteration; flat copies that are stepped one by one are one optimizer step."""
    program = (
        "import torch\nfrom deepspeed.runtime.engine import DeepSpeedEngine\n"
        "engine = DeepSpeedEngine(torch.nn.Linear(4, 1), accumulation=4)\n"
        "for _ in range(4 * 15):\n"
        "    engine.backward(engine(torch.ones(2, 4)).sum())\n"
        "    engine.step()\n"
    )
    run(tmp_path, DEEPSPEED, program)
    said = reader.ended()
    count = said.count()
    assert len(said.iterations) == 15
    assert (count["forward"], count["backward"]) == (60, 60)
    assert (count["optimizer"], count["dp-allreduce"]) == (15, 15)


def test_deepspeed_pipeline_instructions_are_phases(tmp_path: Path, reader: Reader) -> None:
    """Each instruction of the schedule, by what it does."""
    program = (
        "import torch\nfrom deepspeed.runtime.pipe.engine import PipelineEngine\n"
        "engine = PipelineEngine(torch.nn.Linear(4, 1), 1)\n"
        "for _ in range(12): engine.train_batch()\n"
    )
    run(tmp_path, DEEPSPEED, program)
    said = reader.ended()
    assert len(said.iterations) == 12
    phases = ("data", "forward", "pp-send-activation", "backward", "dp-allreduce", "optimizer")
    assert {name: said.count()[name] for name in phases} == dict.fromkeys(phases, 12)


def test_deepspeed_pipeline_chunks_are_layers_with_their_micro_batch(tmp_path: Path, reader: Reader) -> None:
    """Instructions name a buffer: micro-batches are counted, anew in each step, and none of an evaluation."""
    program = (
        "import torch, argus_training.layer_plan\n"
        "argus_training.layer_plan.SPACING_NS = 0\n"
        "from deepspeed.runtime.pipe.engine import PipelineEngine\n"
        "engine = PipelineEngine(torch.nn.Linear(4, 1), 1)\n"
        "for _ in range(24):\n"
        "    engine.train_batch(micro_batches=4)\n"
        "    engine.eval_batch()\n"
    )
    run(tmp_path, DEEPSPEED, program)
    said = reader.ended()
    for kind in ("stage_forward", "stage_backward"):
        samples = [sample for name, sample in said.layers if name == kind]
        assert {sample.index for sample in samples} == {1}, "its stage"
        assert {sample.microbatch for sample in samples} == {0, 2, 3}, "the first, a middle one, the last"


def test_megatron_train_step_is_the_iteration(tmp_path: Path, reader: Reader) -> None:
    """Schedules and timers give phases; timers stay what they are; groups give the coordinates."""
    program = (
        "import torch\n"
        "from megatron.core import parallel_state\n"
        "from megatron.core.timers import Timers\n"
        "from megatron.training.training import train\n"
        "parallel_state.initialize_model_parallel(2, 2)\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "train(model, torch.ones(1, 4), optimizer, Timers(), 7)\n"
    )
    run(tmp_path, MEGATRON, program, RANK="1", WORLD_SIZE="4")
    said = reader.ended(1)
    assert len(said.iterations) == 7
    phases = ("forward", "backward", "pp-forward-recv", "dp-grads-sync", "optimizer")
    assert said.count()["forward"] == 7  # the model's own call within is part of it
    assert set(phases) <= set(said.count())
    assert {said.count()[name] for name in phases if name != "backward"} == {7}
    hello = said.hellos[0]
    assert (hello.tp, hello.pp, hello.dp, hello.tp_size, hello.pp_size) == (1, 0, 0, 2, 2)
    assert wire.decode_text(hello.training_job)


def test_lightning_s_training_step_is_the_forward(tmp_path: Path, reader: Reader) -> None:
    """What it does outside of modules too, and within the optimizer's closure; accumulation, and the rest."""
    program = (
        "import time, torch\n"
        "from lightning.pytorch.strategies.strategy import Strategy\n"
        "class Module(torch.nn.Module):\n"
        "    def __init__(self): super().__init__(); self.net = torch.nn.Linear(4, 1)\n"
        "    def training_step(self, batch, index): time.sleep(0.01); return self.net(batch[0]).sum()\n"
        "module = Module()\n"
        "strategy = Strategy(module)\n"
        "optimizer = torch.optim.SGD(module.parameters(), lr=0.1)\n"
        "def closure(): strategy.training_step((torch.ones(2, 4), None), 0).backward()\n"
        "for epoch in range(12):\n"
        "    for batch in range(5):\n"
        "        optimizer.step(closure) if batch in (1, 3, 4) else closure()\n"
        "from lightning.pytorch.trainer.trainer import Trainer\n"
        "Trainer().save_checkpoint('of no matter: it is pickled into memory')\n"
    )
    run(tmp_path, LIGHTNING, program)
    said = reader.ended()
    assert len(said.iterations) == said.count()["optimizer"] == 36
    assert said.count()["forward"] == 60
    assert said.work == {"samples": 120}
    assert sorted(said.seconds("forward"))[30] > 0.01
    assert sorted(said.seconds("optimizer"))[18] < 0.005
    assert wire.Activity.CHECKPOINT in said.activities


def test_layout_that_comes_late_is_told_again(tmp_path: Path, reader: Reader) -> None:
    """Groups made after the first steps: a second HELLO with the coordinates."""
    program = (
        "import torch\n"
        "from megatron.core import parallel_state\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def step():\n"
        "    model(torch.ones(1, 4)).sum().backward(); optimizer.step()\n"
        "step(); step()\n"
        "parallel_state.initialize_model_parallel(2, 2)\n"
        "step(); step()\n"
    )
    run(tmp_path, MEGATRON, program, RANK="1", WORLD_SIZE="4")
    said = reader.ended(1)
    assert [hello.tp for hello in said.hellos] == [-1, 1]
