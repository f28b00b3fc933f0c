"""What the hooks attach to, by name, in the packages that are installed: a version may move it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .measured import PACKAGES

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TORCH = """
import torch
import torch.distributed._functional_collectives as functional
from torch.distributed import distributed_c10d, pipelining
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.optim.optimizer import register_optimizer_step_pre_hook, register_optimizer_step_post_hook
from torch.utils.data import dataloader
from argus_training.torch_hooks.collectives import ASYNCHRONOUS, COLLECTIVES
found = [name for name in COLLECTIVES if hasattr(distributed_c10d, name)]
assert len(found) > 20 and hasattr(distributed_c10d, ASYNCHRONOUS), found
distributed_c10d.Work.wait, distributed_c10d.new_group, distributed_c10d.split_group
functional.wait_tensor, _fsdp_param_group.FSDPParamGroup.wait_for_unshard
torch.nn.parallel.DistributedDataParallel._sync_buffers
torch.autograd.backward, torch.autograd.Variable._execution_engine.queue_callback
dataloader._BaseDataLoaderIter.__next__
import torch._dynamo.callback as callback
callback.callback_handler.register_start_callback, callback.callback_handler.clear
"""
DEEPSPEED = """
from deepspeed.runtime.engine import DeepSpeedEngine as engine
from deepspeed.runtime.pipe.engine import PipelineEngine
from argus_training.frameworks.deepspeed import INSTRUCTIONS
engine.step, engine.allreduce_gradients
engine.is_gradient_accumulation_boundary, engine.zero_optimization_stage
found = {one.__name__ for one in PipelineEngine._INSTRUCTION_MAP}
wanted = {*INSTRUCTIONS, "LoadMicroBatch", "ForwardPass", "BackwardPass", "ReduceGrads", "OptimizerStep"}
assert wanted <= found, wanted - found
"""
LIGHTNING = """
from lightning.pytorch.strategies.strategy import Strategy
Strategy.training_step
"""
MEGATRON = """
import re
from pathlib import Path
import megatron.core
from megatron.core import parallel_state, timers
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer.moe import experts
from argus_training.frameworks.megatron import EXPERTS, TIMERS
schedules.forward_step, schedules.custom_backward, timers.Timers.__call__
parallel_state.initialize_model_parallel, parallel_state.model_parallel_is_initialized
for dimension in ("tensor_model", "pipeline_model", "data", "context", "expert_model"):
    for what in ("rank", "world_size"):
        getattr(parallel_state, f"get_{dimension}_parallel_{what}")
assert any("forward" in vars(getattr(experts, name, object)) for name in EXPERTS)
folder = Path(megatron.core.__path__[0])
source = "".join(path.read_text() for path in folder.rglob("*.py"))
named = {name for name in TIMERS if f"'{name}'" in source or f'"{name}"' in source}
# The first is of Megatron-LM's training loop, the second of Megatron-Core before 0.13.
assert set(TIMERS) - named <= {"batch-generator", "layernorm-grads-all-reduce"}, set(TIMERS) - named
"""


@pytest.mark.parametrize(
    "program", [TORCH, DEEPSPEED, LIGHTNING, MEGATRON], ids=["torch", "deepspeed", "lightning", "megatron"]
)
def test_attach_points_are_where_the_hooks_look(program: str) -> None:
    """In a process of its own: some packages change others as they are imported."""
    if not PACKAGES.is_dir():
        pytest.skip("the frameworks are not installed (make frameworks)")
    code = f"import sys; sys.path.append({str(PACKAGES)!r})\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
