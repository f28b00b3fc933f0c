"""What the stacks channel costs for one rank: py-spy and reading what it writes, as a share of a core.

    python -m bench.stacks [--windows N] [--plain]

A small transformer trains on the CPU in a process of its own (with --plain, or without torch: a Python loop),
with a few threads beside it as a data loader has them. Windows of the default length follow one another at
the default rate, then under the governor, which lowers the rate where the share exceeds its budget. CPU time
is py-spy's by wait4 and ours by the thread clock, so that other load on the machine does not count. The cost
of the sampler inside the process is measured on stacks of this process. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.py_spy.governor import Governor
from argus_exporter.py_spy.sampler import Window, sample
from argus_exporter.py_spy.target import Process, process_of
from argus_exporter.stacks.totals import StackTotals
from argus_training.ptracer import Ptracer
from argus_training.stack_sampler import StackSampler

BUDGET = StacksConfig().cpu_budget

_TRAINING = """
import queue, sys, threading
def loader(out):
    while True:
        out.put([float(i) for i in range(2000)])
for index in range(4):
    threading.Thread(target=loader, args=(queue.Queue(2),), name=f"loader-{index}", daemon=True).start()
if sys.argv[1] == "torch":
    import torch
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    def step():
        loss = model(torch.randn(4, 32, 128)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
else:
    def step():
        return sum(index * index for index in range(20_000))
step()
print("ready", flush=True)
while True:
    step()
"""


@contextlib.contextmanager
def training(kind: str) -> Iterator[Process]:
    """A process that trains until the block ends."""
    child = subprocess.Popen([sys.executable, "-c", _TRAINING, kind], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        if child.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the {kind} training did not start")
        yield process_of(child.pid, child.pid, frozenset({os.getuid()}))
    finally:
        child.kill()
        child.wait()


def core_share(windows: int, kind: str, config: StacksConfig | None = None) -> dict[str, Any]:
    """Shares of a core for one rank, at the configured rate and where the governor settles.

    Raises:
        Refused: py-spy is missing or may not look at our own child.
    """
    config = config or StacksConfig()
    with training(kind) as process:
        fixed = asyncio.run(_windows(process, config, windows, Governor(config.rate, 1.0)))
        governor = Governor(config.rate, config.cpu_budget)
        governed = asyncio.run(_windows(process, config, windows, governor))
    samples = sum(window.samples for window, _ in fixed)
    return {
        "stacks_core_share": round(governed[-1][1], 5),
        "stacks_core_share_at_default_rate": round(median(share for _, share in fixed), 5),
        "default_hertz": config.rate,
        "governed_hertz": governor.level.mean_hertz,
        "samples_a_window": round(samples / windows, 1),
        "unreadable_samples": sum(window.errors for window, _ in fixed),
    }


async def _windows(
    process: Process, config: StacksConfig, count: int, governor: Governor
) -> list[tuple[Window, float]]:
    """Windows one after another, each with its share of a core, pauses counted in but not waited for."""
    totals = StackTotals(config.top_frames)
    found = []
    for _ in range(count):
        level = governor.level
        window = await sample(process, config, level.hertz)
        began = time.thread_time()
        totals.add(window.folded)
        cpu_seconds = window.cpu_seconds + time.thread_time() - began
        wall_seconds = (window.end_ns - window.begin_ns) / 1e9 + level.rest * config.window_seconds
        governor.measured(cpu_seconds, wall_seconds)
        found.append((window, cpu_seconds / wall_seconds))
    return found


def inside_us_per_sample(threads: int = 8, depth: int = 30) -> float:
    """CPU microseconds of one sample by the sampler inside the process, GIL held."""
    leave = threading.Event()

    def descend(level: int) -> None:
        if level:
            descend(level - 1)
        else:
            leave.wait()

    workers = [threading.Thread(target=descend, args=(depth,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    nowhere = Path("/nonexistent")
    sampler = StackSampler(nowhere, _no_hello, mode="inprocess", ptracer=Ptracer("off", nowhere))
    costs = []
    for _ in range(500):
        sampler._seen.clear()  # as if every thread had moved
        began = time.thread_time_ns()
        sampler.sample()
        costs.append((time.thread_time_ns() - began) / 1e3)
    leave.set()
    for worker in workers:
        worker.join()
    return median(costs)


def _no_hello() -> Any:
    raise RuntimeError("nothing is sent in this benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--windows", type=int, default=4, help="windows of 10 s, at each of two settings")
    parser.add_argument("--plain", action="store_true", help="a Python loop in place of a transformer")
    args = parser.parse_args()
    kind = "plain" if args.plain or not _has_torch() else "torch"
    result: dict[str, Any] = {"bench": "stacks", "target": kind, **core_share(args.windows, kind)}
    result["inside_us_per_sample"] = round(inside_us_per_sample(), 1)
    result["budget"] = BUDGET
    for name, value in result.items():
        print(f"{name:>34}  {value}")
    print(json.dumps(result))


def _has_torch() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None


if __name__ == "__main__":
    main()
