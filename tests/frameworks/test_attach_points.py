"""What the hooks attach to, by name, in the packages that are installed: a version may move it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .measured import PACKAGES

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TORCH = """
import torch
import torch._dynamo
import torch._dynamo.callback as callback
import torch.distributed._functional_collectives as functional
from torch.distributed import device_mesh, distributed_c10d, pipelining
from torch.distributed.checkpoint import state_dict_saver
from torch.optim.optimizer import register_optimizer_step_pre_hook, register_optimizer_step_post_hook
from torch.utils.data import dataloader
from argus_training.torch_hooks.awaited import METHODS, starting
from argus_training.torch_hooks.collectives import ASYNCHRONOUS, COLLECTIVES
from argus_training.torch_hooks.layers import STAGES
new = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)
if new:
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group
else:
    from torch.distributed._composable.fsdp import _fsdp_param_group
found = [name for name in COLLECTIVES if hasattr(distributed_c10d, name)]
assert len(found) > 20 and hasattr(distributed_c10d, ASYNCHRONOUS), found
distributed_c10d.Work.wait, distributed_c10d.new_group
distributed_c10d.init_process_group, device_mesh.init_device_mesh
found = [name for name in METHODS if hasattr(distributed_c10d.ProcessGroup, name)]
assert {"send", "recv", "_end_coalescing"} <= {*found} and len(found) > 5, found
assert {"all_reduce", "broadcast", "all_to_all_single", "permute_tensor"} <= starting(functional).keys()
functional._resolve_group_name, distributed_c10d._resolve_process_group
functional.wait_tensor, _fsdp_param_group.FSDPParamGroup.wait_for_unshard
torch.nn.parallel.DistributedDataParallel._sync_buffers
torch.autograd.backward, torch.autograd.Variable._execution_engine.queue_callback
torch._C._current_graph_task_id, torch.compiler.is_compiling
dataloader._BaseDataLoaderIter.__next__
torch.serialization.save, state_dict_saver.save
torch.autograd.profiler.profile._prepare_trace, torch.autograd._profiler_enabled
torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end, torch.cuda.is_current_stream_capturing
callback.callback_handler.register_start_callback, callback.callback_handler.clear
torch._dynamo.output_graph.OutputGraph.call_user_compiler
torch._dynamo.disable, torch._dynamo.eval_frame.skip_code, torch._dynamo.eval_frame.OptimizedModule
missing = {name for name in STAGES if not hasattr(pipelining.stage._PipelineStageBase, name)}
if not hasattr(distributed_c10d, "split_group"):
    missing.add("split_group")
# What older ones have not is not attached to.
assert not missing if new else missing <= {"backward_weight_one_chunk", "split_group"}, missing
"""
TRANSFORMERS = """
from transformers.generation.utils import GenerationMixin
GenerationMixin.generate
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


OTHERS = {
    "deepspeed": DEEPSPEED,
    "lightning": LIGHTNING,
    "megatron": MEGATRON,
    "transformers": TRANSFORMERS,
}


def run(program: str, *folders: str) -> None:
    """In a process of its own: some packages change others as they are imported."""
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def test_torch_has_what_the_hooks_look_for() -> None:
    """The installed one, or the oldest and the newest that are supported (`--torch`)."""
    run(TORCH, *filter(None, [os.environ.get("OTHER_TORCH")]))


@pytest.mark.parametrize("program", OTHERS.values(), ids=list(OTHERS))
def test_frameworks_have_what_the_hooks_look_for(program: str) -> None:
    if os.environ.get("OTHER_TORCH"):
        pytest.skip("with another torch only what needs nothing else")
    if not PACKAGES.is_dir():
        pytest.skip("the frameworks are not installed (make frameworks)")
    run(f"import sys; sys.path.append({str(PACKAGES)!r})\n{program}")
