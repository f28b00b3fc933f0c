"""Samples of layers: what is one, its micro-batch, its own work; nothing else changes for the training."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest

from argus_core import wire
from argus_training import layer_plan
from long_forms import LONG

from .jobs import NOTING, environment, run_rank, run_ranks
from .reader import Reader, Said

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODEL = """
import sys, time, torch
import argus_training.layer_plan
argus_training.layer_plan.SPACING_NS = 0  # samples in each step, however short
torch.set_num_threads(1)
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        return x + self.linear(x).relu()
class Model(torch.nn.Module):
    def __init__(self, layers=8):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block() for _ in range(layers)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step(micro_batches=4):
    for number in range(micro_batches):
        loss = model(torch.arange(8.0 * (1 + number)).view(-1, 8) / 32).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
"""
STEPS = 12


def layers_of(program: str, path: Path, **environ: str) -> tuple[Said, str]:
    """What one rank said, no step of which was warm-up, and what the program printed."""
    with Reader(path) as reader:
        result = run_rank(program, reader.path, **{"ARGUS_WARMUP_ITERATIONS": "0", **environ})
        assert (result.returncode, result.stderr) == (0, "")
        said = reader.ended()
    assert all(state.up for state, _ in said.channels)
    return said, result.stdout


def sampled(said: Said) -> dict[tuple[str, int], int]:
    """How many samples, by kind and micro-batch."""
    return dict(Counter((kind, sample.microbatch) for kind, sample in said.layers))


def test_blocks_are_sampled_in_the_first_a_middle_and_the_last_micro_batch(tmp_path: Path) -> None:
    """Four of eight layers in each step, once steps are known by their repetition; no phase hears of it."""
    program = MODEL + f"for _ in range({STEPS}): step()\n"
    said, _ = layers_of(program, tmp_path / "s")
    assert {kind for kind, _ in said.layers} == {"block"}
    assert set(sampled(said)) <= {("block", number) for number in (0, 2, 3)}
    by_step: dict[int, list[wire.Layer]] = {}
    for _, sample in said.layers:
        by_step.setdefault(sample.step, []).append(sample)
    assert set(by_step) >= set(range(3, STEPS))
    for step, samples in by_step.items():
        assert sorted(one.index for one in samples) == sorted(layer_plan.layers_of(step, 8))
        assert len({one.microbatch for one in samples}) == 1
    assert all(sample.source == wire.Source.HOST for _, sample in said.layers)
    forward = [span for phase, _, span in said.spans if phase == "forward"]
    for _, sample in said.layers:  # each lies within a forward of its step, which is as long as it was
        around = [
            one
            for one in forward
            if one.start_ns <= sample.start_ns
            and sample.start_ns + sample.duration_ns <= one.start_ns + one.duration_ns
        ]
        assert [one.step for one in around] == [sample.step]
        assert around[0].nested_seconds == 0.0
    assert set(said.count()) <= {"forward", "backward", "optimizer", "gc"}


def test_layers_can_be_switched_off(tmp_path: Path) -> None:
    said, _ = layers_of(MODEL + "for _ in range(4): step()\n", tmp_path / "s", ARGUS_DISABLE_HOOKS="layers")
    assert said.layers == []
    assert len(said.iterations) == 4


def test_warm_up_has_no_samples(tmp_path: Path) -> None:
    program = MODEL + "for _ in range(8): step()\n"
    said, _ = layers_of(program, tmp_path / "s", ARGUS_WARMUP_ITERATIONS="5")
    assert min(sample.step for _, sample in said.layers) == 6


CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
original = Block.forward
def forward(self, x):
    if torch._C._current_graph_task_id() >= 0: time.sleep(0.02)  # stands for work of the second pass alone
    return original(self, x)
Block.forward = forward
"""
WAYS = {
    "reentrant": "lambda x: checkpoint(layer, x, use_reentrant=True)",
    "not": "lambda x: checkpoint(layer, x, use_reentrant=False)",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_checkpointing_runs_again_is_no_micro_batch(way: str, tmp_path: Path) -> None:
    """The first pass is sampled, with gradients off where checkpointing is reentrant; the second never."""
    program = MODEL + CHECKPOINTED + (
        "def run(self, x):\n"
        "    x.requires_grad_()\n"
        "    for layer in self.layers:\n"
        f"        x = ({WAYS[way]})(x)\n"
        "    return x\n"
        "Model.forward = run\n"
        "model.layers = model.layers[:2]\n"
        "for _ in range(18): step(micro_batches=3)\n"
    )  # fmt: skip
    said, _ = layers_of(program, tmp_path / "s")
    assert set(sampled(said)) == {("block", number) for number in range(3)}
    assert max(sample.duration_ns for _, sample in said.layers) < 20_000_000


def test_a_checkpoint_wrapper_is_looked_through(tmp_path: Path) -> None:
    """As FSDP1 and torchtitan's older versions wrap blocks."""
    program = MODEL + CHECKPOINTED + (
        "from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapping\n"
        "for n, layer in enumerate(model.layers): model.layers[n] = wrapping.checkpoint_wrapper(layer)\n"
        "for _ in range(6): step(micro_batches=1)\n"
    )  # fmt: skip
    said, _ = layers_of(program, tmp_path / "s")
    assert sampled(said).keys() == {("block", 0)}
    assert max(sample.duration_ns for _, sample in said.layers) < 20_000_000


def test_evaluation_is_not_sampled(tmp_path: Path) -> None:
    """Its calls are no micro-batches either; those of a frozen teacher are nothing at all."""
    program = MODEL + (
        "teacher = Model().requires_grad_(False)\n"
        "for _ in range(8):\n"
        "    model.eval()\n"
        "    with torch.no_grad(): model(torch.ones(2, 8))\n"
        "    model.train()\n"
        "    teacher(torch.ones(2, 8))\n"
        "    step(micro_batches=1)\n"
    )
    said, _ = layers_of(program, tmp_path / "s")
    assert sampled(said).keys() == {("block", 0)}
    assert len(said.layers) >= 4 * 5


def test_waits_and_pauses_are_no_work_of_a_layer(tmp_path: Path) -> None:
    """What is recorded within it as communication or host is left out; a compute span of the user is not."""
    program = MODEL + (
        "import argus_training\n"
        "class Waiting(Block):\n"
        "    def forward(self, x):\n"
        "        with argus_training.span('attention', kind='compute'): time.sleep(0.002)  # work\n"
        "        with argus_training.span('all_to_all', kind='comm'): time.sleep(0.02)  # a wait\n"
        "        return super().forward(x)\n"
        "model.layers = torch.nn.ModuleList([Waiting() for _ in range(2)])\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "for _ in range(4): step(micro_batches=1)\n"
    )
    said, _ = layers_of(program, tmp_path / "s")
    assert len(said.layers) >= 4
    # The quickest of each: a sleep lasts longer where others have the processor.
    quickest = min((sample for _, sample in said.layers), key=lambda sample: sample.duration_ns)
    assert quickest.duration_ns > 22_000_000
    assert quickest.nested_seconds == pytest.approx(0.02, rel=0.5)
    assert 0.002 <= quickest.duration_ns / 1e9 - quickest.nested_seconds < 0.02
    within = [span.nested_seconds for phase, _, span in said.spans if phase == "forward"]
    assert min(within) == pytest.approx(0.044, rel=0.5), "phases nest as without layers"


SAME = """
import copy, io, pickle, pickletools
losses = [step() for _ in range(6)]
copied = copy.deepcopy(model)
assert all(vars(a).keys() == vars(b).keys() for a, b in zip(model.modules(), copied.modules()))
text = pickle.dumps(model)
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
# Less what a storage's address is part of, and lengths.
left_out = ("FRAME", "BINBYTES", "SHORT_BINBYTES")
print([value for code, value, _ in pickletools.genops(text) if code.name not in left_out])
print(losses, b"argus" in text, b"argus" in buffer.getvalue())
print(sorted(vars(model.layers[0])), torch.fx.symbolic_trace(model).code)
class Tracer(torch.fx.Tracer):
    def is_leaf_module(self, module, name): return isinstance(module, Block)
print([str(node.target) for node in Tracer().trace(model).nodes])
print(torch.jit.trace(model, torch.ones(1, 8)).code)
print(torch.export.export(copied, (torch.ones(1, 8),)).graph)
print([step() for _ in range(6)])
"""


def test_losses_pickles_and_traces_are_those_without(tmp_path: Path) -> None:
    """Nothing is put on an instance; tracers that replace what torch calls see the same graphs."""
    said, with_layers = layers_of(MODEL + SAME, tmp_path / "s")
    assert said.layers
    plain = run_rank(MODEL + SAME, tmp_path / "nowhere", ARGUS_DISABLE="1")
    assert plain.returncode == 0, plain.stderr
    assert with_layers == plain.stdout


SEEN = """
for number in range(20): step(micro_batches=1 + number // 15)
print(dict(counters["stats"]), dict(counters["graph_break"]), traced)
print(sum(p.double().sum().item() for p in model.parameters()))
"""
COMPILED = {
    # Who compiles what, when, and whether samples are taken from then on.
    "the model": ("model = torch.compile(model, backend='eager', fullgraph=True)\n", False),
    "the model in place": ("model.compile(backend='eager', fullgraph=True)\n", False),
    "each block in place": ("for b in model.layers: b.compile(backend='eager', fullgraph=True)\n", True),
    "each block": (
        "for n, b in enumerate(model.layers): model.layers[n] = torch.compile(b, backend='eager')\n",
        True,
    ),
    "a function, once layers are known": (
        "for _ in range(6): step()\n"
        "compute = torch.compile(lambda x: model(x).square().mean(), backend='eager', fullgraph=True)\n"
        "def step(micro_batches):\n"
        "    for number in range(micro_batches): compute(torch.ones(1 + number, 8)).backward()\n"
        "    optimizer.step(); optimizer.zero_grad()\n",
        True,
    ),
    "a model that breaks within a block": (
        "for _ in range(6): step()\n"
        "original = Block.forward\n"
        "def forward(self, x):\n"
        "    torch._dynamo.graph_break()\n"
        "    return original(self, x)\n"
        "Block.forward = forward\n"
        "model = torch.compile(model, backend='eager')\n",
        True,
    ),
}
SHORT = ("the model", "each block in place", "a model that breaks within a block")


@pytest.mark.parametrize("story", [one for one in COMPILED if LONG or one in SHORT])
def test_dynamo_sees_the_same_frames_breaks_and_graphs(story: str, tmp_path: Path) -> None:
    """What is compiled as a whole has no samples; a block that is compiled alone has."""
    program, samples = MODEL + NOTING + COMPILED[story][0] + SEEN, COMPILED[story][1]
    said, printed = layers_of(program, tmp_path / "s")
    plain = run_rank(program, tmp_path / "nowhere", ARGUS_DISABLE_HOOKS="layers")
    assert plain.returncode == 0, plain.stderr
    assert printed == plain.stdout
    assert bool(said.layers) == samples


SHARDED = """
import os, sys, time, torch
import torch.distributed as dist
import argus_training.layer_plan
argus_training.layer_plan.SPACING_NS = 0
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
    def forward(self, x):
        time.sleep(0.02 if rank == 1 else 0.002)  # stands for work
        return self.linear(x)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block() for _ in range(4)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
model = Model()
if "fsdp1" in sys.argv:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    for n, block in enumerate(model.layers):
        model.layers[n] = FSDP(block, device_id=torch.device("cpu"))
    model = FSDP(model, device_id=torch.device("cpu"))
else:
    for block in model.layers:
        if "compiled" in sys.argv: block.compile(backend="eager")
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["fsdp2", "compiled", "fsdp1"])
def test_a_sharded_block_does_not_wait_for_its_parameters(how: str, reader: Reader) -> None:
    """Rank 0 waits 20 ms a block for rank 1's part of the next: its blocks still take 2 ms."""
    run_ranks(SHARDED, 2, environment(reader.path, ARGUS_WARMUP_ITERATIONS="0"), how)
    said = [reader.ended(rank) for rank in range(2)]
    own = [[one.duration_ns / 1e9 - one.nested_seconds for _, one in rank.layers] for rank in said]
    assert sampled(said[0]) == sampled(said[1])
    assert sampled(said[0]).keys() == {("block", 0)}
    assert statistics.median(own[0]) < 0.012, "its own work, 2 ms, and what a busy machine adds"
    assert statistics.median(own[1]) > 0.02


PIPELINE = """
import time, torch
import torch.distributed as dist
import argus_training.layer_plan
argus_training.layer_plan.SPACING_NS = 0
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if rank == 1: time.sleep(0.01)  # stands for work, here and below
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        if rank == 1: time.sleep(0.02)
        return gradient
class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        return Slow.apply(self.linear(x))
part = Part()
stage = PipelineStage(part, rank, 2, torch.device("cpu"))
schedule = Schedule1F1B(stage, 4, loss_fn=lambda output, target: (output - target).square().mean())
optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
for _ in range(18):
    if rank == 0: schedule.step(torch.ones(8, 8))
    else: schedule.step(target=torch.ones(8, 8))
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
"""


def test_chunks_of_a_pipeline_say_their_micro_batch(reader: Reader) -> None:
    """Real torch pipelining, 1F1B of four micro-batches: no stage waits for the other in its chunks."""
    run_ranks(PIPELINE, 2, environment(reader.path, ARGUS_WARMUP_ITERATIONS="0"))
    said = [reader.ended(rank) for rank in range(2)]
    kinds = "stage_forward", "stage_backward"
    for rank in range(2):
        assert set(sampled(said[rank])) == {(kind, number) for kind in kinds for number in (0, 2, 3)}
        assert {sample.index for _, sample in said[rank].layers} == {rank}
        own = {
            kind: statistics.median(
                one.duration_ns / 1e9 - one.nested_seconds for name, one in said[rank].layers if name == kind
            )
            for kind in kinds
        }
        if rank == 0:
            assert max(own.values()) < 0.009
        else:
            assert own["stage_forward"] > 0.01 and own["stage_backward"] > 0.02


def test_a_failure_of_ours_takes_the_hook_out_and_training_goes_on(reader: Reader, tmp_path: Path) -> None:
    """Three times, said once; losses are those without."""
    broken = MODEL + (
        "plan = argus_training.layer_plan\n"
        "def fails(*_): raise ArithmeticError('ours')\n"
        "plan.LayerSample = fails\n"
        "print([step() for _ in range(8)], '__call__' in vars(Block))\n"
    )
    result = run_rank(broken, reader.path, ARGUS_WARMUP_ITERATIONS="0")
    said = reader.ended()
    assert result.stderr.count("hook layers detached after 3 failures, training goes on") == 1
    assert said.channels[-1][1] == "hook_layers"
    assert len(said.iterations) == 8
    plain = run_rank(broken, tmp_path / "nowhere", ARGUS_DISABLE="1")
    assert result.stdout == plain.stdout


def test_an_exception_of_the_model_is_the_user_s(tmp_path: Path) -> None:
    """It passes, its sample does not exist, and the next is whole."""
    program = MODEL + (
        "for number in range(9):\n"
        "    if number == 4: model.layers[3].linear = None\n"
        "    try: step(micro_batches=1)\n"
        "    except TypeError: model.layers[3].linear = torch.nn.Linear(8, 8)\n"
    )
    said, _ = layers_of(program, tmp_path / "s")
    assert len({sample.step for _, sample in said.layers}) >= 5


def test_a_child_of_fork_says_nothing(tmp_path: Path) -> None:
    program = MODEL + (
        "import os\n"
        "for _ in range(4): step()\n"
        "child = os.fork()\n"
        "for _ in range(4): step()\n"
        "if child == 0: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    said, _ = layers_of(program, tmp_path / "s")
    assert 4 * 5 <= len(said.layers) <= 4 * 7
