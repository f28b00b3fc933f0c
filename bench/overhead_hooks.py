"""What the hooks of a step cost, put in and taken out in turns inside one process.

    python -m bench.overhead_hooks [--processes N] [--turns N] [--steps N]

The training of `bench.overhead` on the CPU with ARGUS attached. In each turn the same process trains without
the hooks of a step, twice with them, and without them again; the difference is the training thread's own CPU
time. Two processes of one program differ by a few per cent in speed for the placement of their memory alone,
which is more than ARGUS costs; here that is the same on both sides. What is not seen is what ARGUS costs by
being there (its memory, its thread): `bench.overhead` sees it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.overhead import Interval, environments, reading
from bench.overhead_worker import cpu_training

WARM_UP = 1000
"""Steps before the first turn: the sequence of an iteration is known, the sender runs."""


class StepHooks:
    """The hooks that run in every step of `cpu_training`, as they were found attached.

    Raises:
        RuntimeError: ARGUS is not attached.
    """

    def __init__(self) -> None:
        import torch
        import torch.optim.optimizer as optimizers
        from torch.utils.data.dataloader import _BaseDataLoaderIter as Loading

        ddp = torch.nn.parallel.DistributedDataParallel
        (model,) = (thing for thing in gc.get_objects() if type(thing) is ddp)
        (self._parameter,) = (p for p in model.parameters() if p._backward_hooks)
        (self._gradient_hook,) = self._parameter._backward_hooks.values()
        self._wrapped = [(Loading, "__next__"), (torch.autograd, "backward"), (ddp, "__call__")]
        self._wrappers = [vars(owner)[name] for owner, name in self._wrapped]
        self._tables = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
        self._entries = [dict(table) for table in self._tables]
        if not all(self._entries) or not all(hasattr(one, "__wrapped__") for one in self._wrappers):
            raise RuntimeError("ARGUS is not attached to this process")
        self._parameter._backward_hooks.clear()
        self._remove = self._parameter.register_hook(self._gradient_hook).remove

    def out(self) -> None:
        for (owner, name), wrapper in zip(self._wrapped, self._wrappers, strict=True):
            setattr(owner, name, wrapper.__wrapped__)
        for table in self._tables:
            table.clear()
        self._remove()

    def put_in(self) -> None:
        for (owner, name), wrapper in zip(self._wrapped, self._wrappers, strict=True):
            setattr(owner, name, wrapper)
        for table, entries in zip(self._tables, self._entries, strict=True):
            table.update(entries)
        self._remove = self._parameter.register_hook(self._gradient_hook).remove


def cpu_us(step: Callable[[], None], steps: int) -> float:
    """Microseconds of this thread's CPU time a step, after some that find their way."""
    for _ in range(5):
        step()
    began = time.thread_time_ns()
    for _ in range(steps):
        step()
    return (time.thread_time_ns() - began) / steps / 1e3


def inside(turns: int, steps: int) -> dict[str, float]:
    """In an attached process: medians over the turns, microseconds a step."""
    step, _ = cpu_training()
    for _ in range(WARM_UP):
        step()
    hooks = StepHooks()
    hooks.out()
    base: list[float] = []
    added: list[float] = []
    for _ in range(turns):
        before = cpu_us(step, steps)
        hooks.put_in()
        with_hooks = (cpu_us(step, steps) + cpu_us(step, steps)) / 2
        hooks.out()
        without = (before + cpu_us(step, steps)) / 2
        base.append(without)
        added.append(with_hooks - without)
    hooks.put_in()
    return {"step_us": median(base), "hooks_us_per_step": median(added)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=5, help="fresh processes (default: 5)")
    parser.add_argument("--turns", type=int, default=60, help="turns in each (default: 60)")
    parser.add_argument("--steps", type=int, default=150, help="steps a stretch of a turn (default: 150)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(inside(args.turns, args.steps)))
        return
    answers: list[dict[str, float]] = []
    command = [sys.executable, "-m", "bench.overhead_hooks", "--inside"]
    command += ["--turns", str(args.turns), "--steps", str(args.steps)]
    with reading() as path:
        for _ in range(args.processes):
            done = subprocess.run(
                command, env=environments(path)["phases"], stdout=subprocess.PIPE, check=True
            )
            answers.append(json.loads(done.stdout.splitlines()[-1]))
            print(answers[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
    interval = Interval.of([answer["hooks_us_per_step"] for answer in answers])
    result: dict[str, Any] = {
        "bench": "overhead_hooks",
        "hooks_us_per_step": round(interval.mean, 2),
        "hooks_us_per_step_95": interval.rounded(2),
        "step_us": round(median(answer["step_us"] for answer in answers), 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
