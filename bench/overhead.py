"""What the phase hooks cost the training thread: ARGUS on and off in turns inside one process.

    python -m bench.overhead [--blocks N] [--steps N]

A small model trains on the CPU with a DataLoader and DDP; blocks of steps with the hooks alive alternate
with blocks where they are not (a flag that every hook looks at first, so off blocks still pay for a call
and a look). Thread CPU time per step, so that waiting for other processes does not count. Records go to a
socket that another process reads. Steps of a second and more pay for a flush each, shorter ones share it:
one of 100 ms pays a tenth. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from argus_core import wire
from argus_exporter.producer.spans import Recorder

BUDGET_US = 20.0  # DESIGN section 7


def drain(path: str, ready: object) -> None:
    """Another process: accept one producer and count what it sends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        ready.set()  # type: ignore[attr-defined]
        peer, _ = listener.accept()
        while peer.recv(wire.MAX_MESSAGE_BYTES):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=100, help="pairs of blocks, on and off")
    parser.add_argument("--steps", type=int, default=20, help="steps a block")
    args = parser.parse_args()

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "s"
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    reader = context.Process(target=drain, args=(str(path), ready), daemon=True)
    reader.start()
    ready.wait()

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "ARGUS_SOCKET": str(path), "ARGUS_JOB": "bench"}
    import torch

    from argus_exporter.producer.attach import attach

    observer = attach(torch)
    assert observer is not None
    recorder = observer.recorder

    torch.set_num_threads(1)
    rendezvous = f"file://{folder.name}/rendezvous"
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 8, (4096,)))
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=Endless())
    batches = iter(loader)
    criterion = torch.nn.CrossEntropyLoss()

    def block(alive: bool) -> tuple[float, float]:
        """CPU and wall microseconds of a step."""
        for hook in observer.hooks:
            hook.alive = alive
        observer.iterations.void()
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        for _ in range(args.steps):
            x, y = next(batches)
            criterion(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return (
            (time.thread_time_ns() - cpu) / args.steps / 1e3,
            (time.perf_counter_ns() - wall) / args.steps / 1e3,
        )

    for warm in range(10):
        block(warm % 2 == 0)
    spans, iterations, cost = recorder.spans, recorder.step, recorder.cost_ns
    on: list[tuple[float, float]] = []
    off: list[tuple[float, float]] = []
    for index in range(args.blocks):  # on-off, off-on: drift cancels
        for alive in (True, False) if index % 2 else (False, True):
            (on if alive else off).append(block(alive))
    recorder.flush()
    added = [a[0] - b[0] for a, b in zip(on, off, strict=True)]
    steps = recorder.step - iterations
    result: dict[str, Any] = {
        "bench": "overhead",
        "step_us": round(median(b[1] for b in off), 1),
        "hooks_us_per_step": round(median(added), 2),
        "spans_per_step": round((recorder.spans - spans) / steps, 2),
        "flush_cpu_us_per_step": round((recorder.cost_ns - cost) / steps / 1e3, 2),
        "own_us_per_span": round(span_cost_us(recorder), 3),
        "flush_us_at_one_step": round(flush_cost_us(recorder), 2),
        "budget_us": BUDGET_US,
    }
    hooks = result["hooks_us_per_step"] - result["flush_cpu_us_per_step"]
    result["us_per_step_of_100ms"] = round(hooks + result["flush_us_at_one_step"] / 10, 2)
    result["us_per_step_of_1s_and_more"] = round(hooks + result["flush_us_at_one_step"], 2)
    for name, value in result.items():
        print(f"{name:>24}  {value}")
    print(json.dumps(result))
    os._exit(0)


def span_cost_us(recorder: Recorder) -> float:
    """Two clock reads and the append, flushes left out."""
    phase = recorder.phase("data", wire.Kind.HOST)
    costs = []
    for _ in range(200):
        recorder.flush()
        begin = time.perf_counter_ns()
        for _ in range(100):
            recorder.ended(phase, time.perf_counter_ns())
        costs.append((time.perf_counter_ns() - begin) / 100)
    return median(costs) / 1e3


def flush_cost_us(recorder: Recorder) -> float:
    """A flush as a step of 50 ms or more has it: five spans, one iteration, alone."""
    names = ("data", "forward", "backward", "dp-allreduce", "optimizer")
    phases = [recorder.phase(name, wire.Kind.COMPUTE) for name in names]
    now = time.perf_counter_ns
    costs = []
    for _ in range(300):
        for phase in phases:
            recorder.ended(phase, now())
        recorder._flushed_at = now() + 10**12
        recorder.iteration(now(), now())
        time.sleep(0.002)
        begin = time.thread_time_ns()
        recorder.flush()
        costs.append(time.thread_time_ns() - begin)
    return median(costs) / 1e3


class Endless:
    """A sampler without end."""

    def __iter__(self) -> Iterator[int]:
        index = 0
        while True:
            yield index % 4096
            index += 1


if __name__ == "__main__":
    main()
