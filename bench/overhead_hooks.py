"""What the hooks of a step cost, put in and taken out in turns inside one process.

    python -m bench.overhead_hooks [--processes N] [--turns N] [--steps N] [--collective]

The training of `bench.overhead` on the CPU with ARGUS attached. A turn has four short stretches of steps:
without the hooks, twice with them, and without them again; its difference is the training thread's own CPU
time. A process counts the median of its turns, and the interval is Student's over the processes. Two
processes of one program differ by a few per cent in speed for the placement of their memory alone, which is
more than ARGUS costs; here that is the same on both sides, and so is what else the machine does, as a turn
takes some 60 ms. What is not seen is what ARGUS costs by being there (its memory, its thread):
`bench.overhead` compares processes with and without it too.

Out is out: no function of ours may run in a step then, which is looked at. What runs with the hooks in is
counted as well, the same in each run on one Python: functions of ours, their calls in C, their bytecodes; a
test holds these numbers. A collective that the program calls in each step is measured by `--collective`. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, Final, NamedTuple

import argus_training
from bench.overhead import Hooks, Interval, environments, reading
from bench.overhead_worker import cpu_training

WARM_UP: Final = 300
"""Steps before the first turn, and more until all goes as usual: the sequence is known, the sender runs."""
WARM_UP_LIMIT: Final = 20_000
COUNTED: Final = 50
"""Steps whose calls are counted: some hooks look around in one of many."""
_OURS: Final = str(Path(argus_training.__file__).parent)


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
        self._wrapped = [
            (Loading, "__next__"),
            (torch.autograd, "backward"),
            (ddp, "__call__"),
            (torch.distributed, "all_reduce"),
            (torch.distributed.distributed_c10d.Work, "wait"),
        ]
        self._wrappers = [vars(owner)[name] for owner, name in self._wrapped]
        self._tables = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
        self._entries = [dict(table) for table in self._tables]
        self._collections = [one for one in gc.callbacks if one.__code__.co_filename.startswith(_OURS)]
        if not all(self._entries) or not all(hasattr(one, "__wrapped__") for one in self._wrappers):
            raise RuntimeError("ARGUS is not attached to this process")
        self._parameter._backward_hooks.clear()
        self._remove = self._parameter.register_hook(self._gradient_hook).remove

    def out(self) -> None:
        for (owner, name), wrapper in zip(self._wrapped, self._wrappers, strict=True):
            setattr(owner, name, wrapper.__wrapped__)
        for table in self._tables:
            table.clear()
        for callback in self._collections:
            gc.callbacks.remove(callback)
        self._remove()

    def put_in(self) -> None:
        for (owner, name), wrapper in zip(self._wrapped, self._wrappers, strict=True):
            setattr(owner, name, wrapper)
        for table, entries in zip(self._tables, self._entries, strict=True):
            table.update(entries)
        gc.callbacks.extend(self._collections)
        self._remove = self._parameter.register_hook(self._gradient_hook).remove


class Ran(NamedTuple):
    """What ran of ours on this thread, by function."""

    functions: Counter[str]
    c_calls: Counter[str]
    bytecodes: Counter[str]

    def a_step(self, steps: int) -> dict[str, float]:
        """Of the functions that run in each: some hooks look around some times a second."""
        usual = [name for name, times in self.functions.items() if times >= steps]
        return {
            what: sum(counted[name] for name in usual) / steps for what, counted in self._asdict().items()
        }


def ran(step: Callable[[], object], steps: int) -> Ran:
    """In so many steps; twice, since a profiler sees what is called in C, and a tracer each bytecode."""
    found = Ran(Counter(), Counter(), Counter())
    counters = {"call": found.functions, "c_call": found.c_calls, "opcode": found.bytecodes}

    def note(frame: FrameType, event: str, _argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            return None
        if event in counters:
            counters[event][f"{Path(code.co_filename).name}:{code.co_name}"] += 1
        return note

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return trace if frame.f_code.co_filename.startswith(_OURS) else None
        return note(frame, event, argument) and trace

    for set_, function in ((sys.setprofile, note), (sys.settrace, trace)):
        set_(function)
        try:
            for _ in range(steps):
                step()
        finally:
            set_(None)
    return found


def cpu_us(step: Callable[[], object], steps: int) -> float:
    """Microseconds of this thread's CPU time a step, after some that find their way."""
    for _ in range(5):
        step()
    began = time.thread_time_ns()
    for _ in range(steps):
        step()
    return (time.thread_time_ns() - began) / steps / 1e3


def settled(step: Callable[[], object]) -> None:
    """Train until all goes as usual.

    Raises:
        RuntimeError: ARGUS is not attached, or it never does.
    """
    for trained in range(WARM_UP_LIMIT):
        step()
        observer = argus_training._observer
        if trained >= WARM_UP and observer is not None and observer.progress.steady:
            return
    raise RuntimeError(f"ARGUS does not find {WARM_UP_LIMIT} steps usual in this process")


def inside(turns: int, steps: int, *, collective: bool) -> dict[str, Any]:
    """In an attached process: medians over the turns, microseconds a step; and what runs of ours, a step.

    Raises:
        RuntimeError: something of ours runs in a step although the hooks are out.
    """
    train, _ = cpu_training()
    step = with_collective(train) if collective else train
    settled(step)
    counts = ran(step, COUNTED).a_step(COUNTED)
    hooks = StepHooks()
    hooks.out()
    if rest := ran(step, COUNTED).functions:
        raise RuntimeError(f"this of ours runs in a step although the hooks are out: {dict(rest)}")
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
    return {"step_us": median(base), "hooks_us_per_step": median(added), "counts": counts}


def with_collective(train: Callable[[], None]) -> Callable[[], None]:
    """A step that ends with a collective of the program's own, as for a loss that is logged."""
    import torch

    loss = torch.zeros(1)

    def step() -> None:
        train()
        torch.distributed.all_reduce(loss)

    return step


def measured(
    processes: int, turns: int, steps: int, *, idle_s: float = 0.0, collective: bool = False
) -> Hooks:
    """From so many fresh processes."""
    command = [sys.executable, "-m", "bench.overhead_hooks", "--inside"]
    command += ["--turns", str(turns), "--steps", str(steps)] + ["--collective"] * collective
    answers: list[dict[str, Any]] = []
    with reading() as path:
        environment = environments(path, idle_s)["phases"]
        for _ in range(processes):
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            answers.append(json.loads(done.stdout.splitlines()[-1]))
    return Hooks(
        Interval.of([answer["hooks_us_per_step"] for answer in answers]),
        median(answer["step_us"] for answer in answers),
        answers[0]["counts"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=5, help="fresh processes (default: 5)")
    parser.add_argument("--turns", type=int, default=80, help="turns in each (default: 80)")
    parser.add_argument("--steps", type=int, default=40, help="steps a stretch of a turn (default: 40)")
    parser.add_argument(
        "--collective", action="store_true", help="one all_reduce of the program's own a step"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(inside(args.turns, args.steps, collective=args.collective)))
        return
    found = measured(args.processes, args.turns, args.steps, collective=args.collective)
    result: dict[str, Any] = {
        "bench": "overhead_hooks",
        "hooks_us_per_step": round(found.added_us.mean, 2),
        **found.rounded(),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
