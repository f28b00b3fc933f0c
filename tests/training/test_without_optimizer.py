"""Programs in which no optimizer of torch's steps: what is seen of them, and that ARGUS says what is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from argus_core import wire
from argus_training.iterations import WITHOUT_STEPS
from exporter.exporter_process import config, exporter, scrape, value, wait_for

from .jobs import environment, run_rank, run_ranks
from .reader import Reader, until

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = WITHOUT_STEPS + 10
BY_HAND = f"""
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
loader = torch.utils.data.DataLoader(torch.ones({4 * STEPS}, 8), batch_size=4)
def train():
    for x in loader:
        model(x).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        model.zero_grad()
"""
END = """
torch.distributed.barrier()
del model
__import__("gc").collect()
torch.distributed.destroy_process_group()
"""


def test_an_update_by_hand_has_iterations_by_its_forwards(reader: Reader) -> None:
    """Once no step is waited for any more: every one, with its phases and the wait of DDP."""
    for stderr in run_ranks(BY_HAND + "train()" + END, 2, environment(reader.path)):
        assert stderr.count("argus: no optimizer of torch's steps") == 1
    for rank in (0, 1):
        said = reader.ranks[rank]
        until(lambda said=said: said.exit_status is not None, "BYE")  # type: ignore[misc]
        assert len(said.iterations) == STEPS - WITHOUT_STEPS
        first, last = said.iterations[0], said.iterations[-1]
        whole_ns = last.end_ns - first.end_ns + first.duration_ns
        # Ends are of the clock that NTP may slew by 500 ppm, durations of the one that it does not set.
        assert last.total_seconds == pytest.approx(whole_ns / 1e9, rel=5e-4), "from end to end"
        count = said.count()
        assert (count["data"], count["backward"]) == (STEPS, STEPS)
        assert count["forward"] == count["dp-allreduce"] == STEPS - WITHOUT_STEPS
        state, reason = said.channels[-1]
        assert (state.channel, bool(state.up), reason) == (
            wire.Channel.PHASES,
            True,
            "iterations_by_backward",
        )


def test_metrics_say_how_iterations_are_found(tmp_path: Path) -> None:
    """The channel is up, with what limits it; the page says so too."""
    with exporter(config(tmp_path / "s")) as running:
        script = BY_HAND + "train(); print('trained', flush=True); input()"
        env = environment(running.socket, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        process = subprocess.Popen([sys.executable, "-c", script], env=env, stdin=subprocess.PIPE)
        labels = {"rank": "0", "channel": "phases"}
        try:
            limit = labels | {"reason": "iterations_by_backward"}
            wait_for(lambda: value(scrape(running.url), "argus_channel_info", **limit) == 1, "the reason", 60)
            assert value(scrape(running.url), "argus_channel_up", **labels) == 1
        finally:
            process.kill()
            process.wait()


def test_an_optimizer_that_steps_at_last_ends_what_limited_the_iterations(reader: Reader) -> None:
    """More micro-batches than are waited for, before its first step."""
    program = f"""
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({STEPS}):
    model(torch.ones(4, 8)).sum().backward()
optimizer.step()
"""
    result = run_rank(program, reader.path)
    assert (result.returncode, result.stderr.count("argus:")) == (0, 1)
    assert reader.ended().channels[-1][1] == ""


def test_backwards_of_an_optimizer_that_steps_are_not_counted(reader: Reader) -> None:
    """Any number of them, with an optimizer that has stepped once."""
    program = f"""
import torch
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
weight.sum().backward()
optimizer.step()
for _ in range({2 * WITHOUT_STEPS}):
    weight.sum().backward()
"""
    result = run_rank(program, reader.path)
    assert (result.returncode, result.stderr) == (0, "")
    reader.ended()
    assert len(reader.ranks[0].iterations) == 1
