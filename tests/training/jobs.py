"""Small training jobs for producer tests, run in processes of their own with ARGUS attached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from argus_simulator.stack.ports import free_port
from argus_training import boot_directory

LOOP = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.arange(800, dtype=torch.float32).view(100, 8) / 800, batch_size=10)
def train():
    for x in loader:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()
"""
NOTING = """
import collections
import torch._dynamo.convert_frame as convert_frame
from torch._dynamo.utils import counters
traced = collections.Counter()
convert = convert_frame.ConvertFrameAssert.__call__
def noting(self, frame, *args, **kwargs):
    traced["argus" in frame.f_code.co_filename] += 1
    return convert(self, frame, *args, **kwargs)
convert_frame.ConvertFrameAssert.__call__ = noting
"""
"""Counts in `traced` which frames dynamo traces: by whether they are ours."""


def environment(path: Path, **more: str) -> dict[str, str]:
    """As under `argus-exporter run`; nothing of the caller's own ARGUS or launcher."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARGUS_", "RANK"))}
    ours = {"PYTHONPATH": str(boot_directory()), "ARGUS_SOCKET": str(path), "OMP_NUM_THREADS": "1"}
    return kept | ours | more


def run(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


def run_ranks(program: str, ranks: int, env: dict[str, str], *arguments: str) -> list[str]:
    """All ranks of a job, as torchrun starts them, with the program beside the socket; their stderr.

    Without torchrun, which imports torch for itself: that takes as long as a rank.
    """
    script, port = Path(env["ARGUS_SOCKET"]).with_name("program.py"), str(free_port())
    script.write_text(program)
    job = env | {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=job | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(said)
    return said


def run_rank(program: str, path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """One rank of a job of one, without a launcher."""
    env = environment(path, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", **more)
    return run([sys.executable, "-c", program], env)
