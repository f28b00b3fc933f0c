"""The shared page of a real rank: what is open now, also while the rank's threads are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.shared_page import Page
from argus_simulator.stack.ports import free_port

from .jobs import LOOP, environment, run_rank
from .reader import Reader, until

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STUCK = (
    LOOP
    + """
import time
from argus_training import span
train(); train()
class Stuck(torch.utils.data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, index): time.sleep(600)
with span("outer", kind="compute"):
    next(iter(torch.utils.data.DataLoader(Stuck())))
"""
)


def test_stopped_process_still_shows_where_it_hangs(reader: Reader) -> None:
    """A data fetch that never ends, within a span of the user's: both are open, with step and start."""
    env = environment(reader.path, RANK="0", WORLD_SIZE="1")
    job = subprocess.Popen([sys.executable, "-c", STUCK], env=env)
    try:
        said = reader.ranks[0]

        def page() -> Page:
            assert said.page is not None
            return said.page.read()

        until(lambda: said.page is not None and len(page().open_spans) == 2, "open spans")
        os.kill(job.pid, signal.SIGSTOP)
        (data, outer) = sorted(page().open_spans, key=lambda one: one.phase)
        assert (data.phase, data.kind) == ("data", wire.Kind.HOST)
        assert (outer.phase, outer.kind) == ("outer", wire.Kind.COMPUTE)
        assert outer.start_monotonic_ns <= data.start_monotonic_ns
        assert page().step == 21
    finally:
        job.kill()
        job.wait()


COUNTS = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1], group_desc="pair")
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    if (rank, step) == (1, 11):
        open(sys.argv[1], "w").close()
        time.sleep(600)
    dist.all_reduce(torch.ones(1), group=pair)
    if rank == 0: dist.send(torch.ones(1), 1)
    else: dist.recv(torch.ones(1), 0)
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""


def test_collectives_from_cpp_are_counted_also_of_a_rank_that_hangs_in_one(
    reader: Reader, tmp_path: Path
) -> None:
    """DDP's own: rank 1 has called one fewer. Transfers between two ranks count nowhere."""
    port = str(free_port())
    hangs = tmp_path / "hangs"
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", COUNTS, str(hangs)],
            env=environment(reader.path, RANK=str(rank), ARGUS_FLUSH_MILLISECONDS="10", **job),
        )
        for rank in range(2)
    ]

    def counts(rank: int) -> dict[str, int]:
        page = reader.ranks[rank].page
        return {one.group: one.number for one in page.read().collectives} if page is not None else {}

    def world(rank: int) -> int:
        return counts(rank).get("world", 0)

    try:
        until(hangs.exists, "the hang")
        until(lambda: world(0) == world(1) + 1, "counts")
        assert world(1) >= 2 * 11, "a pair's and DDP's in each step, and what DDP asks at first"
    finally:
        for one in ranks:
            one.kill()
            one.wait()


def test_nothing_is_open_after_a_loop(reader: Reader) -> None:
    """Every span that begins is closed in the page, also where the user's code raises."""
    program = LOOP + (
        "train()\n"
        "for call in (lambda: model(torch.ones(1, 3)), lambda: torch.ones(1).backward()):\n"
        "    try: call()\n"
        "    except RuntimeError: pass\n"
        "train()\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert said.page is not None
    assert said.page.read().open_spans == ()


def test_forked_child_does_not_touch_the_page(reader: Reader) -> None:
    """A child of fork goes through hooked code: the parent's page shows the parent."""
    program = LOOP + (
        "import os\n"
        "train()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    from argus_training import span\n"
        "    span('childs').__enter__()\n"
        "    train()\n"
        "    os.kill(os.getpid(), 9)\n"
        "os.waitpid(child, 0)\n"
        "train()\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert said.page is not None
    page = said.page.read()
    assert (page.step, page.open_spans) == (21, ())
    assert len(said.hellos) == 1


def test_without_memfd_the_channel_goes_on(reader: Reader) -> None:
    """An old or restricted kernel: no page, all else as ever."""
    program = (
        "import os\ndef refuse(*_): raise OSError(38, 'Function not implemented')\nos.memfd_create = refuse\n"
        + LOOP
        + "train()\n"
    )
    assert run_rank(program, reader.path).returncode == 0
    said = reader.ended()
    assert said.page is None
    assert (said.hellos[0].shares_page, len(said.iterations)) == (0, 10)


@pytest.mark.parametrize(
    ("ending", "status"),
    [("import os; os._exit(3)", 3), ("raise SystemExit(4)", 4), ("import sys; sys.exit(5)", 5)],
)
def test_bye_carries_the_status_of_every_way_out(reader: Reader, ending: str, status: int) -> None:
    """os._exit and a bare SystemExit too."""
    result = run_rank(LOOP + "train()\n" + ending, reader.path)
    assert result.returncode == status
    said = reader.ended()
    assert said.exit_status == status
    assert len(said.iterations) == 10


def test_killed_rank_says_no_bye(reader: Reader) -> None:
    """It is lost, which is the truth."""
    program = LOOP + "train()\nwhile True: train()\n"
    job = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(reader.path, RANK="0", WORLD_SIZE="1", ARGUS_FLUSH_MILLISECONDS="10"),
    )
    try:
        said = reader.ranks[0]
        until(lambda: len(said.iterations) >= 20, "iterations")
    finally:
        job.kill()
        job.wait()
    until(lambda: said.ended, "the end of the connection")
    assert said.exit_status is None
