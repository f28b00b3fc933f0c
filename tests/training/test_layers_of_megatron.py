"""Megatron-LM's parts and chunks: stand-ins with the names of core 0.8 to 0.19, and nothing else."""

from __future__ import annotations

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from argus_core import wire
from argus_core.link import Link
from argus_training import layer_plan
from argus_training.hook import Observer
from argus_training.recorder import Recorder
from argus_training.stopwatch import Stopwatch
from argus_training.torch_hooks.layers import LayersHook

from .jobs import run_rank
from .reader import Reader

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCHEDULES = """
def forward_step(forward_step_func, data_iterator, model, num_microbatches, input_tensor,
                 current_microbatch=None):
    return forward_step_func(data_iterator, model)
def custom_backward(output, gradient): output.backward(gradient)
def forward_backward_no_pipelining(forward_step_func, data_iterator, model, num_microbatches):
    for number in range(num_microbatches):
        output = forward_step(
            forward_step_func, data_iterator, model, num_microbatches, None, current_microbatch=number
        )
        custom_backward(output, None)
"""
PROGRAM = """
import time, torch
import argus_training.layer_plan
argus_training.layer_plan.SPACING_NS = 0
from megatron.core.pipeline_parallel import schedules
torch.set_num_threads(1)
class Part(torch.nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.seconds = seconds
    def forward(self, hidden_states):
        time.sleep(self.seconds)  # stands for work
        return self.linear(hidden_states)
class Attention(Part): pass
class MLP(Part): pass
class TopKRouter(Part): pass
class TEGroupedMLP(Part): pass
class SelfAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.core_attention = Attention(0.001)
    def forward(self, x): return self.core_attention(hidden_states=x)
class MoELayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = TopKRouter(0.0), TEGroupedMLP(0.004)
    def forward(self, x): return self.experts(self.router(x))
class TransformerLayer(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.self_attention = SelfAttention()
        self.mlp = MoELayer() if number % 2 else MLP(0.002)
    def forward(self, x): return self.mlp(self.self_attention(x))
class GPTModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([TransformerLayer(number) for number in range(4)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
model = GPTModel()
copies = [torch.nn.Parameter(p.detach().clone()) for p in model.parameters()]  # in single precision
optimizer = torch.optim.SGD(copies, lr=0.1)
def forward(data_iterator, model): return model(next(data_iterator)).square().mean()
for _ in range(9):
    batches = iter([torch.ones(2, 8)] * 4)
    schedules.forward_backward_no_pipelining(forward, batches, model, 4)
    optimizer.step()
"""


def test_parts_and_chunks_of_megatron_are_sampled(reader: Reader, tmp_path: Path) -> None:
    """Core attention, MLP, experts and router by their names, not the layers that hold them; each as long as
    it is. Its optimizer's parameters are copies, which no module has.
    """
    package = tmp_path / "megatron" / "core" / "pipeline_parallel"
    package.mkdir(parents=True)
    (package / "schedules.py").write_text(SCHEDULES)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    result = run_rank(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})" + PROGRAM,
        reader.path,
        ARGUS_WARMUP_ITERATIONS="0",
    )
    assert (result.returncode, result.stderr) == (0, "")
    said = reader.ended()
    seconds: dict[str, list[float]] = {}
    for kind, sample in said.layers:
        seconds.setdefault(kind, []).append(sample.duration_ns / 1e9 - sample.nested_seconds)
    own = {kind: statistics.median(values) for kind, values in seconds.items()}
    assert set(own) == {"core_attention", "mlp", "experts", "router", "stage_forward"}
    assert own["router"] < 0.001 <= own["core_attention"] < 0.002 <= own["mlp"] < 0.004 <= own["experts"]
    assert own["stage_forward"] > 0.016, "within the phase `forward`, which is no wait of its"
    assert {sample.microbatch for _, sample in said.layers} <= {0, 2, 3}
    of_attention = {sample.index for kind, sample in said.layers if kind == "core_attention"}
    of_experts = {sample.index for kind, sample in said.layers if kind == "experts"}
    assert (of_attention, of_experts) == ({0, 1, 2, 3}, {0, 1})


class FakeEvent:
    """Passes at once; each is 3 ms after the one before."""

    made = 0

    def record(self) -> None:
        FakeEvent.made += 3
        self.at = FakeEvent.made

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Any) -> float:
        return float(end_event.at - self.at)


class CudaTensor(torch.Tensor):
    """Says that it is on a GPU."""

    device = SimpleNamespace(type="cuda")  # type: ignore[assignment]


class Layer(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize("events", [False, True])
def test_on_a_gpu_layers_are_timed_by_events_or_not_at_all(
    events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host only launches them; what runs beside the GPU has no event to pass."""
    monkeypatch.setattr(layer_plan, "SPACING_NS", 0)
    nowhere = cast(Link, SimpleNamespace())
    recorder = Recorder(nowhere)
    recorder.outbox.may_speak = lambda: False
    stopwatch = Stopwatch(recorder)
    if events:
        stopwatch.use_events(FakeEvent, 8, lambda: False)
    observer = Observer(recorder, stopwatch)
    hook = LayersHook(observer)
    hook.attach(torch)
    layer = Layer()
    model = layer_plan.Model([("mlp", layer)])
    hook._put(Layer, "__call__", hook._layer)
    try:
        on_gpu = torch.ones(2).as_subclass(CudaTensor)
        for tensor in (on_gpu, torch.ones(2), on_gpu):
            hook._follow()
            hook._plan.microbatch(model)
            layer(tensor)
            recorder.step += 1
        stopwatch.poll()
    finally:
        hook.detach()
    told = [entry for entry in recorder.outbox.log.take(99) if entry[0].name == "mlp"]
    if events:
        assert [(entry[3], entry[5]) for entry in told] == [(3_000_000, -1)] * 2, "event time, of a stream"
    else:
        assert [entry[5] for entry in told] == [0], "the one on the CPU, by the host's clock"
    assert "__call__" not in vars(Layer)


def test_the_wire_says_which_clock() -> None:
    """A stream's sample is of events."""
    from argus_training.spans import LayerSample, Packer, PhaseTable
    from argus_training.step_log import StepLog

    log = StepLog()
    sent: list[wire.Layer] = []

    class Sink:
        def name_id(self, text: str) -> int:
            return len(text)

        def add_packed(self, _type: int, packed: bytes) -> None:
            sent.extend(wire.Layer.unpack_all(packed))

    of = LayerSample("mlp", 70_000, 2)
    table = PhaseTable(None)
    comm = table.phase("all_reduce", wire.Kind.COMM, wire.Source.EVENT)
    log.put((comm, 20, 30, 5_000_000, 7, -1))
    log.put((of, 10, 40, 9_000_000, 7, -1))
    log.put((of, 10, 40, 30, 7, 0))
    packed, dropped = Packer(cast(Link, Sink()), log, table).take(99, 1000)
    assert (len(packed), dropped) == (1, 0), "the collective alone is a span"
    on_stream, on_host = sent
    assert (on_stream.source, on_stream.start_ns, on_stream.duration_ns) == (0, 1010, 9_000_000)
    assert on_stream.nested_seconds == pytest.approx(0.005)
    assert (on_stream.index, on_stream.microbatch, on_stream.step) == (65_535, 2, 7)
    assert (on_host.source, on_host.nested_seconds) == (1, 0.0)
