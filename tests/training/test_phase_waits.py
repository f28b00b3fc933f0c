"""Whom a phase may wait for in its own time: what a rank says of each of its phases."""

from __future__ import annotations

import pytest

from argus_core import wire
from argus_training.waits import CONDITIONS, TABLE, waits_of

from .jobs import environment, run_rank, run_ranks
from .reader import Reader

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MEGATRON = {"tp": 2, "pp": 2, "dp": 4, "ep": 2, "cp": 1}


def said(
    phase: str, kind: wire.Kind, *holding: str, group: str = "", sizes: dict[str, int] = MEGATRON
) -> str:
    return wire.waits_text(waits_of(phase, kind, group, holding, sizes, 16))


@pytest.mark.parametrize(
    ("holding", "forward", "backward", "optimizer"),
    [
        ((), "none", "none", "none"),
        (("fsdp1",), "dp", "dp", "none"),
        (("fsdp2",), "none", "dp", "none"),
        (("megatron_fsdp",), "none", "dp", "none"),
        (("deepspeed",), "none", "dp", "dp"),
        (("deepspeed", "zero3"), "dp", "dp", "dp"),
        (("dtensor",), "none", "tp", "none"),
        (("dtensor", "fsdp2"), "none", "dp,tp", "none"),
        (("transformer_engine", "deep_ep"), "ep,tp", "ep,tp", "none"),
        (("compiled", "compiled_dp"), "dp,ep,tp", "dp,ep,tp", "none"),
    ],
)
def test_the_table_tells_by_framework(
    holding: tuple[str, ...], forward: str, backward: str, optimizer: str
) -> None:
    """Of the dimensions that the job has: nobody waits along cp here."""
    found = [said(phase, wire.Kind.COMPUTE, *holding) for phase in ("forward", "backward", "optimizer")]
    assert found == [forward, backward, optimizer]


def test_a_collective_waits_for_its_group() -> None:
    """One of the whole job for everybody; one of ranks without a name for nobody knows whom."""
    assert said("all_reduce", wire.Kind.COMM, group="tp") == "tp"
    assert said("pp-forward-recv", wire.Kind.COMM) == "pp"
    assert said("barrier", wire.Kind.COMM, group="world") == "dp,ep,pp,tp"
    assert said("barrier", wire.Kind.COMM, group="world", sizes={}) == "dp"
    assert said("all_reduce", wire.Kind.COMM, group="ranks:0-6.4") == "unknown"
    assert said("work-wait", wire.Kind.COMM) == "unknown"


def test_a_phase_that_nobody_knows_is_unknown() -> None:
    """A function of the user's choice may call anything."""
    assert said("dataset.tokenise", wire.Kind.HOST) == "unknown"


def test_every_condition_of_the_table_is_asked_for() -> None:
    """A row whose condition never holds would say that there is no wait."""
    assert {row.when for row in TABLE} == set(CONDITIONS)


PROGRAM = """
import sys, torch, torch.distributed.fsdp
import argus_training
torch.distributed.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
if sys.argv[1] == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
else:
    torch.distributed.fsdp.fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    with argus_training.span("attention", kind="compute"), argus_training.span("tokenise"):
        loss = model(torch.ones(2, 8)).sum()
    loss.backward()
    optimizer.step()
torch.distributed.all_reduce(torch.ones(1))
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(("framework", "backward"), [("ddp", "none"), ("fsdp2", "dp")])
def test_a_rank_says_whom_its_phases_may_wait_for(framework: str, backward: str, reader: Reader) -> None:
    """A user's compute is their own work by their word; of their other spans nobody knows."""
    assert run_ranks(PROGRAM, 2, environment(reader.path), framework) == ["", ""]
    waits = reader.ended().waits
    assert waits["forward", "compute"] == waits["optimizer", "compute"] == "none"
    assert waits["backward", "compute"] == backward
    assert waits["attention", "compute"] == "none"
    assert waits["tokenise", "host"] == "unknown"
    assert waits["all_reduce", "comm"] == "dp"


COMPILED = """
import sys, torch
import torch.distributed._functional_collectives as functional
torch.distributed.init_process_group("gloo")
class Reduces(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x - functional.all_reduce(x.mean(0), "sum", torch.distributed.group.WORLD))
class Gathers(torch.nn.Module):
    def __init__(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        super().__init__()
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        self.sharded = torch.nn.Parameter(distribute_tensor(torch.ones(8, 2), mesh, [Shard(0)]))
    def forward(self, x):
        return x @ self.sharded.full_tensor()
model = Gathers() if sys.argv[1] == "DTensor" else Reduces(8, 1)
model = torch.compile(model, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("collective", ["functional", "DTensor"])
def test_a_collective_in_a_compiled_graph_is_a_wait_of_the_model(collective: str, reader: Reader) -> None:
    """No hook sees it: who comes early waits in its forward, and would be named for it."""
    assert run_ranks(COMPILED, 2, environment(reader.path), collective) == ["", ""]
    said = reader.ended()
    phases = ("forward", "backward", "optimizer")
    assert [said.waits[phase, "compute"] for phase in phases] == ["dp", "dp", "none"]
    assert not [reason for _, reason in said.channels if "hook" in reason]


def test_a_rank_alone_waits_for_nobody(reader: Reader) -> None:
    """Without a job around it."""
    program = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
"""
    assert run_rank(program, reader.path).returncode == 0
    assert set(reader.ended().waits.values()) == {"none"}


def test_a_framework_that_cannot_be_asked_costs_no_records(reader: Reader) -> None:
    """It destroys its groups at this very moment, say: counted, and all else is sent."""
    program = """
import torch
import argus_training
def fails(): raise RuntimeError("destroyed")
argus_training._observer.layout = fails
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
"""
    result = run_rank(program, reader.path)
    assert (result.returncode, result.stderr) == (0, "")
    said = reader.ended()
    assert said.count()["forward"] == 2
    assert not said.waits
    state, _ = said.channels[-1]
    assert (state.up, state.dropped > 0) == (1, True)
