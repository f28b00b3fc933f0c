"""torch.compile around model, optimizer or step: as much is seen, and dynamo sees nothing of us."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .jobs import environment, run
from .reader import Reader, until

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path / "s") as reader:
        yield reader


COMPILED = """
import time, torch
class Slow(torch.autograd.Function):
    '''Backward takes 20 ms on rank 1.'''
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        if torch.distributed.get_rank() == 1: time.sleep(0.02)
        return gradient
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
inner = torch.nn.Linear(8, 8)
model = torch.compile(torch.nn.parallel.DistributedDataParallel(inner), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(15):
    Slow.apply(model(torch.ones(4, 8))).sum().backward()
    optimizer.step()
torch.distributed.barrier()
del model, optimizer
__import__("gc").collect()
torch.distributed.destroy_process_group()
"""


def test_wait_for_gradients_is_split_off_under_torch_compile(reader: Reader, tmp_path: Path) -> None:
    """compile(DDP(model)), the recommended order: rank 0's wait for rank 1 is no backward of its own."""
    script = tmp_path / "compiled.py"
    script.write_text(COMPILED)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    result = run(launcher, environment(reader.path))
    assert result.returncode == 0, result.stderr
    until(lambda: all(reader.ranks[rank].exit_status is not None for rank in (0, 1)), "BYE")
    for rank in (0, 1):
        assert reader.ranks[rank].count()["dp-allreduce"] == 14  # all but that of the first step

    def median(rank: int, phase: str) -> float:
        values = sorted(reader.ranks[rank].seconds(phase)[2:])
        return values[len(values) // 2]

    assert median(1, "backward") > 0.02 > 2 * median(0, "backward")
    assert median(0, "dp-allreduce") > 2 * median(1, "dp-allreduce")
