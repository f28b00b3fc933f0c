"""What the page of a real rank says of the collective that it hangs in, by torch's flight recorder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core.shared_page import CollectiveSequence
from argus_simulator.stack.ports import free_port

from .jobs import environment, run_rank
from .reader import Reader, until

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

JOB = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
alone = dist.new_group([ranks - 1])  # that rank numbers its groups differently
team = dist.new_group(list(range(ranks)), group_desc="team")
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def hangs():
    time.sleep(600)
def transfer():
    if rank == 0: dist.send(torch.ones(1), 1)
    if rank == 1: dist.recv(torch.ones(1), 0)
def step():
    dist.all_reduce(torch.ones(1), group=team)
    transfer()
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
for _ in range(8):
    step()
"""
"""Two groups of all ranks, in which Python calls and C++ does; transfers between two ranks."""
HANGS = {
    "before a collective": "if rank == 1: hangs()\nstep()",
    "before a collective of C++ code": "dist.barrier()\nloss = net(torch.ones(2, 8)).sum()\n"
    "if rank == 1: hangs()\nloss.backward()",
    "in a collective": "while rank == 0 and not os.path.exists(sys.argv[1]): time.sleep(0.05)\nstep()",
    "after a collective": "dist.barrier()\nif rank == 1: hangs()\nstep()",
    "in another collective": "if rank == 1: dist.broadcast(torch.ones(1), 0)\nstep()",
}
"""What happens after some steps: rank 1 holds the others up; in a collective, once it has been stopped."""


class Ranks:
    """A job on gloo that hangs in some way, and the pages of its ranks."""

    def __init__(self, reader: Reader, hang: str, ranks: int) -> None:
        self.reader = reader
        self.go = reader.path.with_name("go")
        """Rank 0 goes on once this file is there, where the others are in a collective."""
        port = str(free_port())
        job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", JOB + hang, str(self.go)],
                env=environment(reader.path, RANK=str(rank), ARGUS_FLUSH_MILLISECONDS="10", **job),
            )
            for rank in range(ranks)
        ]

    def last(self, rank: int) -> CollectiveSequence | None:
        """What the page says of the group of all ranks."""
        page = self.reader.ranks[rank].page
        found = page.read().collectives if page is not None else ()
        return next((one for one in found if one.group == "world"), None)

    def close(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()


@pytest.fixture
def hung(request: pytest.FixtureRequest, reader: Reader) -> Iterator[Ranks]:
    """So many ranks that hang as `HANGS` has it."""
    ranks, hang = request.param
    job = Ranks(reader, HANGS[hang], ranks)
    try:
        yield job
    finally:
        job.close()


def last(job: Ranks, rank: int) -> CollectiveSequence:
    """Of the group of all ranks, once the page says what it is."""
    until(lambda: (found := job.last(rank)) is not None and found.operation != "", f"rank {rank} named")
    found = job.last(rank)
    assert found is not None
    assert found.started is None, "with gloo nothing starts"
    return found


@pytest.mark.parametrize("hung", [(2, "before a collective")], indirect=True)
def test_who_has_not_called_has_entered_fewer_and_completed_all(hung: Ranks) -> None:
    """Its own last collective is over. The page tells it of a stopped process too."""
    waits, behind = last(hung, 0), last(hung, 1)
    assert (waits.number, waits.completed) == (behind.number + 1, behind.number)
    assert behind.completed == behind.number
    os.kill(hung.processes[1].pid, signal.SIGSTOP)
    assert last(hung, 1) == behind


@pytest.mark.parametrize("hung", [(2, "before a collective of C++ code")], indirect=True)
def test_collectives_of_cpp_code_have_a_name(hung: Ranks) -> None:
    """DDP's all-reduce, which no hook of ours sees; the rank that has not called is at the barrier before."""
    waits, behind = last(hung, 0), last(hung, 1)
    assert (waits.operation, behind.operation) == ("all_reduce", "barrier")
    assert (waits.number, waits.completed) == (behind.number + 1, behind.number)


@pytest.mark.parametrize("hung", [(2, "in a collective")], indirect=True)
def test_in_a_collective_that_does_not_end_all_say_the_same(hung: Ranks) -> None:
    """Rank 1 is stopped in it: nobody is behind, so it takes another channel to say who."""
    stopped = last(hung, 1)
    os.kill(hung.processes[1].pid, signal.SIGSTOP)
    hung.go.touch()
    until(lambda: (found := hung.last(0)) is not None and found.number == stopped.number, "rank 0 goes on")
    found = [last(hung, rank) for rank in range(2)]
    assert [one.operation for one in found] == ["all_reduce"] * 2
    assert [one.number - 1 for one in found] == [one.completed for one in found]


@pytest.mark.parametrize("hung", [(2, "after a collective")], indirect=True)
def test_who_stops_after_a_collective_has_completed_it(hung: Ranks) -> None:
    """As before the next one: the others have entered that."""
    waits, behind = last(hung, 0), last(hung, 1)
    assert (waits.operation, behind.operation) == ("all_reduce", "barrier")
    assert (waits.number, waits.completed, behind.completed) == (behind.number + 1,) + 2 * (behind.number,)


@pytest.mark.parametrize("hung", [(3, "in another collective")], indirect=True)
def test_who_called_something_else_has_the_number_of_the_others_and_another_operation(hung: Ranks) -> None:
    """Nobody is behind: without the operation this looks like a broken network."""
    found = [last(hung, rank) for rank in range(3)]
    assert [one.operation for one in found] == ["all_reduce", "broadcast", "all_reduce"]
    assert len({one.number for one in found}) == 1
    assert all(one.completed == one.number - 1 for one in found)


ALONE = """
import time, torch, torch.distributed as dist
from torch._C import _distributed_c10d
def broken(**_): raise RuntimeError("no such recorder")
%s
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    dist.all_reduce(torch.ones(1))
    net(torch.ones(2, 8)).sum().backward()
    if step == 10: time.sleep(6)
    optimizer.step()
"""


def test_a_recorder_that_fails_is_told_once_and_the_training_goes_on(reader: Reader) -> None:
    """The channel stays up, with the reason."""
    result = run_rank(ALONE % "_distributed_c10d._dump_fr_trace_json = broken", reader.path)
    assert (result.returncode, result.stderr.count("flight recorder")) == (0, 1)
    said = reader.ended()
    assert len(said.iterations) == 12
    state, reason = said.channels[-1]
    assert (state.up, reason) == (1, "flight_recorder")


def test_a_late_iteration_that_goes_on_is_trained_as_ever(reader: Reader) -> None:
    """Its entries were listed meanwhile; then the page says nothing of them, and the process ends well."""
    result = run_rank(ALONE % "", reader.path, ARGUS_FLUSH_MILLISECONDS="10")
    assert (result.returncode, result.stderr) == (0, "")
    said = reader.ended()
    assert (len(said.iterations), said.channels[-1][1]) == (12, "")
    assert said.page is not None
    (world,) = (one for one in said.page.read().collectives if one.number)
    assert (world.number, world.operation, world.completed) == (12, "", None)
    assert said.page.dump(0) is None, "no hang was certain"


def test_a_recorder_that_is_off_is_told_once_a_hang_is_certain(reader: Reader) -> None:
    """Which is no fault: the channel is up, and says nothing of it."""
    at_once = "from argus_core import overdue; overdue._STALLED_S = overdue._FLOOR_S = 0.0\n"
    result = run_rank(at_once + ALONE % "", reader.path, TORCH_FR_BUFFER_SIZE="0")
    assert (result.returncode, result.stderr.count("flight recorder has nothing")) == (0, 1)
    said = reader.ended()
    assert (len(said.iterations), said.channels[-1][1]) == (12, "")
    assert said.page is not None and said.page.dump(0) is None


@pytest.mark.parametrize("hung", [(2, "before a collective")], indirect=True)
def test_ranks_that_hang_come_to_an_exporter_that_has_started_anew(hung: Ranks, tmp_path: Path) -> None:
    """Though nothing ends of which they could tell."""
    for rank in range(2):
        last(hung, rank)
    hung.reader.close()
    with Reader(tmp_path / "s") as anew:
        until(lambda: all(anew.ranks[rank].page is not None for rank in range(2)), "both ranks")


def test_a_torch_without_a_recorder_is_no_fault(reader: Reader) -> None:
    """Those of before 2.5, and CPU builds of before 2.13."""
    result = run_rank(ALONE % "del _distributed_c10d._dump_fr_trace_json", reader.path)
    assert (result.returncode, result.stderr) == (0, "")
    said = reader.ended()
    assert (len(said.iterations), said.channels[-1][1]) == (12, "")
