"""Waits for peers that lie within a phase are phases of their own, so that nobody pays for a late peer."""

from __future__ import annotations

import pytest

from argus_core import wire
from long_forms import long_only

from .jobs import environment, run_rank, run_ranks
from .reader import Reader, until

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = 25


BUFFERS = f"""
import os, sys, time, torch
late = int(sys.argv[1])
class Batches(torch.utils.data.Dataset):
    def __len__(self): return {STEPS}
    def __getitem__(self, index):
        if torch.distributed.get_rank() == late: time.sleep(0.06)
        return torch.ones(8)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.normed = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)
    def forward(self, x):
        time.sleep(0.02)  # stands for work that no load of this machine stretches
        return self.normed(self.first(x).repeat(2, 1))
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Model())
if len(sys.argv) > 2:
    model = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(Batches(), batch_size=1):
    model(x).square().sum().backward()
    optimizer.step()
torch.distributed.barrier()
del model, optimizer
__import__("gc").collect()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("ranks", "late", "compiled"), [(2, 0, True), (4, 2, False), *long_only([(2, 0, False)])]
)
def test_late_data_makes_no_innocent_forward_slow(
    ranks: int, late: int, compiled: bool, reader: Reader
) -> None:
    """DDP broadcasts BatchNorm's buffers at the begin of the forward: that is where peers wait for the late.

    Without the split the innocent rank 0 or 1 has a forward of 80 ms beside one of 20.
    """
    arguments = [str(late), *(["compiled"] if compiled else [])]
    run_ranks(BUFFERS, ranks, environment(reader.path), *arguments)
    until(lambda: all(reader.ranks[rank].exit_status is not None for rank in range(ranks)), "BYE")

    def quartiles(phase: str) -> list[float]:
        """The lower: load stretches a sleep of this program and never shortens it."""
        values = [sorted(reader.ranks[rank].seconds(phase)[2:]) for rank in range(ranks)]
        return [each[len(each) // 4] for each in values]

    assert max(quartiles("forward")) < 1.15 * min(quartiles("forward"))
    waits = quartiles("dp-buffers-broadcast")
    assert max(waits) > 0.02
    assert waits[late] < max(waits)
    for rank in range(ranks):
        said = reader.ranks[rank]
        assert said.count()["forward"] == STEPS - 1
        assert said.count()["dp-buffers-broadcast"] == STEPS
        kinds = {(wire.Kind(span.kind), group) for phase, group, span in said.spans if "buffers" in phase}
        assert kinds == {(wire.Kind.COMM, "dp")}


OUTSIDER = """
import tempfile, torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
outside = dist.GroupMember.NON_GROUP_MEMBER
for _ in range(4):
    dist.all_reduce(torch.ones(1), group=outside)
    dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM, outside)
    dist.all_gather([torch.ones(1)], torch.ones(1), group=outside)
    dist.barrier(outside)
dist.all_reduce(torch.ones(1))
print(hasattr(dist.all_reduce, "__wrapped__"))
dist.destroy_process_group()
"""


def test_collective_of_a_group_that_the_rank_is_not_in_is_no_failure(reader: Reader) -> None:
    """Legal, and returns at once: no span, no place in the sequence of the job, no failure of the hook."""
    result = run_rank("import warnings; warnings.simplefilter('ignore')\n" + OUTSIDER, reader.path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True\n", "")
    said = reader.ended()
    assert all(state.up for state, _ in said.channels)
    assert said.count() == {"all_reduce": 1}
    assert said.page is not None
    entered = {one.group: one.number for one in said.page.read().collectives if one.number}
    assert entered == {"world": 1}


EVENTS = """
import tempfile, time, torch
import argus_training
class Event:
    def record(self): self.at = time.monotonic_ns()
    def query(self): return True
    def elapsed_time(self, end): return (end.at - self.at) / 1e6
torch.distributed.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel
broadcast = ddp._sync_module_buffers
def slow(*args, **kwargs): time.sleep(0.05); broadcast(*args, **kwargs)
ddp._sync_module_buffers = slow
model = ddp(torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
observer = argus_training._observer
observer.stopwatch.use_events(Event, 64, lambda: False)
observer.iterations.ended = observer._iteration_on_gpu_ended
for _ in range(5):
    model(torch.rand(4, 8)).sum().backward()
    optimizer.step()
observer.stopwatch.poll()
print(sum(pool.made - len(pool.free) for pool in observer.stopwatch._pools.values()))
torch.distributed.destroy_process_group()
"""


def test_buffers_are_split_off_with_events_too(reader: Reader) -> None:
    """As with a model on a GPU, on stand-ins for CUDA's events; none of them is lost."""
    result = run_rank(EVENTS, reader.path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")
    said = reader.ended()
    assert len(said.seconds("forward")) == 4
    assert min(said.seconds("dp-buffers-broadcast")) > 0.05 > max(said.seconds("forward"))


ASYNCHRONOUS = """
import sys, time, torch
import argus_training
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import isend, irecv
dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
peer = 1 - rank
for _ in range(5):
    dist.barrier()
    if rank == 1: time.sleep(0.05)
    if rank < 2:
        dist.all_gather([torch.ones(1)] * 2, torch.ones(1), pair, True).wait()
        operations = [dist.P2POp(irecv if rank else isend, torch.ones(2), peer, pair)]
        for work in dist.batch_isend_irecv(p2p_op_list=operations):
            work.wait()
    dist.all_reduce(torch.ones(4), async_op=True).wait()
    functional.wait_tensor(tensor=functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD))
    if rank < 2:
        (irecv if rank else isend)(torch.ones(1), peer).wait()
        (irecv if rank else isend)(torch.ones(1), peer, pair).wait()
        functional.all_reduce(torch.ones(3), "sum", pair.group_name).view(3, 1) + 1  # a view: the same wait
        work = operations = None
hook, = (one for one in argus_training._observer.hooks if one.name == "collectives")
dist.barrier()
pair = None
dist.destroy_process_group()  # ends gloo's threads, of which one may hold the last collective's storage
assert not hook._awaited._of, "something lives longer for us"
"""


def test_the_wait_for_an_asynchronous_collective_is_a_span(reader: Reader) -> None:
    """By the name of what is waited for, in its group; a peer that is late is waited for there."""
    assert run_ranks(ASYNCHRONOUS, 3, environment(reader.path, ARGUS_PARALLEL="tp=1")) == ["", "", ""]
    until(lambda: all(reader.ranks[rank].exit_status is not None for rank in range(3)), "BYE")
    waits = {(phase, group) for phase, group, _ in reader.ranks[0].spans if phase.endswith("-wait")}
    assert waits == {
        ("all_gather-wait", "ranks:0-1.2"),
        ("batch_isend_irecv-wait", "ranks:0-1.2"),
        ("all_reduce-wait", "world"),
        ("functional-wait", "ranks:0-1.2"),
        ("functional-wait", "world"),
        ("work-wait", "ranks:0-1.2"),
        ("work-wait", "world"),
    }
    assert all(state.up for rank in range(3) for state, _ in reader.ranks[rank].channels)
    assert sorted(reader.ranks[0].seconds("all_gather-wait"))[2] > 0.04
    assert sorted(reader.ranks[2].seconds("all_reduce-wait"))[2] > 0.04
    assert sorted(reader.ranks[1].seconds("all_gather-wait"))[2] < 0.02
    assert not {"all_gather", "all_reduce"} & set(reader.ranks[0].count()), "the call itself takes no time"


def test_a_process_group_of_the_users_calls_its_backend(reader: Reader) -> None:
    """A subclass in Python that leaves what we have patched to C++."""
    program = """
import torch
import torch.distributed as dist
class Group(dist.ProcessGroup):
    pass
group, kind = Group(0, 1), dist.ProcessGroup.BackendType.GLOO
gloo = dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
group._register_backend(torch.device("cpu"), kind, gloo)
assert "argus" in dist.ProcessGroup.allreduce_coalesced.__code__.co_filename
group.allreduce_coalesced([torch.ones(1)], dist.AllreduceCoalescedOptions()).wait()
"""
    result = run_rank(program, reader.path)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_compiled_collective_is_one_graph(reader: Reader) -> None:
    """A compiler that traces the user's function sees nothing of the waits."""
    program = """
import tempfile, torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
@torch.compile(fullgraph=True, backend="eager")
def step(x):
    return functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD)) * 2
for _ in range(3):
    y = step(torch.ones(2))
print(y, hasattr(functional.wait_tensor, "__wrapped__"))
dist.destroy_process_group()
"""
    result = run_rank("import warnings; warnings.simplefilter('ignore')\n" + program, reader.path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "tensor([2., 2.]) True\n", "")
