"""What hooks, kernels, stacks and NCCL's plugin add, put in and taken out in turns inside one process group.

Memory placement, clocks and the allocator are then the same on both sides; what ARGUS costs by being
loaded at all is not seen: the step `overhead-50` sees it. Hooks as in `bench.overhead_hooks`; kernels by
the injector's own pause; stacks by stopping the py-spy that samples the process, which never holds it
(`--nonblocking`); NCCL's plugin by its own switch, where there are two ranks: one alone has no collectives.
Two ranks take the same turns, as each waits for the other in every step.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from argus_core.injection import PROFILER
from argus_training.injector import library_path
from bench.gpu_day.device import device
from bench.gpu_day.observe import attached, finish, start
from bench.gpu_day.overhead import blocks_within, met, needs_py_spy, of_rank, summary
from bench.gpu_day.step import Day
from bench.overhead import serving
from bench.overhead_worker import collectives

_STEPS = 8
_WARM_UP = 20
Blocks = dict[str, list[dict[str, list[float]]]]
_SAMPLER_S = 30.0
"""Until the exporter has begun to sample a new rank, at the latest."""


def run(day: Day) -> dict[str, Any]:
    needs_py_spy()
    alone = day.step.options["ranks"] == 1
    blocks, steps = 3, 2
    if not day.dry:
        steps_a_block = (4 if alone else 5) * (_STEPS + 1)
        wanted, of_block_s = day.step.options["blocks"], steps_a_block * day.step.options["step_ms"] / 1e3
        blocks, steps = blocks_within(day.turns_s, wanted, of_block_s), _STEPS
    base = [of_rank(day, rank) for rank in range(day.step.options["ranks"])]
    with serving("true") as socket:
        trained = []
        for rank, bare in enumerate(met(base, day.work / "ranks")):
            argus = attached(day, socket, rank, ARGUS_STACKS="", **({} if alone else {"ARGUS_NCCL": "1"}))
            more = {"OVERHEAD_MICRO_BATCHES": "2"} if day.dry else {}
            environment = argus | bare | more | {"PYTHONPATH": argus["PYTHONPATH"]}
            trained.append(start(environment, "-m", "bench.gpu_day.toggle", str(blocks), str(steps)))
        told = []
        for status, out, said in [finish(one) for one in trained]:
            if status != 0:
                raise RuntimeError(f"the training ended with status {status}: {said.strip()[-300:]}")
            told.append(json.loads(out.strip().splitlines()[-1]))
    day.reach(f"{blocks} blocks of {steps} steps, in turns inside one process group")
    measured = summary(_longest([one["blocks"] for one in told]))
    measured |= {name: min(one[name] for one in told) for name in ("records", "sampled_ratio")}
    if not alone:
        measured["collectives"] = min(one["collectives"]["nccl"] for one in told)
        measured["collectives_without"] = sum(sum(one["collectives"].values()) for one in told) - sum(
            one["collectives"]["nccl"] for one in told
        )
    return measured


def _longest(ranks: Sequence[Blocks]) -> Blocks:
    """Each step is as long as the longest of its ranks."""
    return {
        name: [
            {"steps_s": [max(step) for step in zip(*(block["steps_s"] for block in blocks), strict=True)]}
            for blocks in zip(*(rank[name] for rank in ranks), strict=True)
        ]
        for name in ranks[0]
    }


def samplers() -> list[int]:
    """The py-spy processes that sample this one."""
    mine = ["--pid", str(os.getpid())]
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[1:2] == ["record"] and words[2:4] == mine:
                found.append(int(folder.name))
    return found


def _sample(on: bool) -> None:
    """Let the samplers go on, or stop them."""
    for pid in samplers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)


def _until_sampled(step: Callable[[], None]) -> None:
    """Train on until each rank has a sampler: they stop at the same step, as they wait for each other."""
    import torch

    limit, where = time.monotonic() + _SAMPLER_S, device().torch_device
    while True:
        mine = 0 if samplers() else 1 if time.monotonic() < limit else 2
        worst = torch.tensor([mine], device=where)
        torch.distributed.all_reduce(worst, torch.distributed.ReduceOp.MAX)
        if worst.item() == 0:
            return
        if worst.item() == 2:
            raise RuntimeError(f"no py-spy samples this process after {_SAMPLER_S:.0f} s")
        step()


def _watch() -> Callable[[bool], None] | None:
    """The switch of NCCL's plugin; None where NCCL has not loaded it."""
    with contextlib.suppress(OSError, AttributeError):
        switch = ctypes.CDLL(str(library_path(PROFILER)), mode=os.RTLD_NOLOAD | os.RTLD_NOW).argus_nccl_watch
        return lambda on: switch(int(on))
    return None


def inside(blocks: int, steps: int) -> dict[str, Any]:
    """In an attached process.

    Raises:
        RuntimeError: one of several ranks whose NCCL has not loaded the plugin.
    """
    from argus_training.kernels_control import KernelsControl
    from bench.gpu_day.transformer import RANKS, training
    from bench.overhead_hooks import StepHooks

    step, wait = training()
    control = KernelsControl()
    for _ in range(_WARM_UP):
        step()
    _until_sampled(step)
    wait()
    watch = _watch()
    if RANKS > 1 and watch is None:
        raise RuntimeError("NCCL has not loaded libargus_nccl")
    hooks = StepHooks()
    switches: dict[str, Callable[[bool], object]] = {
        "phases": lambda on: hooks.put_in() if on else hooks.out(),
        "kernels": lambda on: control.rearm() if on else control.pause(),
        "stacks": _sample,
        **({"nccl": watch} if watch else {}),
    }
    order = ["off", *switches]
    now = dict.fromkeys(switches, True)

    def switch(last: str) -> None:
        """This channel and those before it on, the others off."""
        for channel, turn in switches.items():
            on = order.index(channel) <= order.index(last)
            # Samplers come and go: each window has its own.
            if on != now[channel] or channel == "stacks":
                turn(on)
            now[channel] = on

    def block() -> dict[str, list[float]]:
        taken = []
        for index in range(steps + 1):
            began = time.perf_counter()
            step()
            wait()
            if index:  # the first finds its way
                taken.append(time.perf_counter() - began)
        return {"steps_s": taken}

    answers: Blocks = {name: [] for name in order}
    counted = dict.fromkeys(order, 0)
    sampled = 0
    try:
        for number in range(blocks):
            for name in order[:: -1 if number % 2 else 1]:
                switch(name)
                sampled += name == "stacks" and bool(samplers())
                before = collectives()
                answers[name].append(block())
                counted[name] += collectives() - before
    finally:
        switch(order[-1])
    return {
        "blocks": answers,
        "records": int(control.statistics().get("records", 0)),
        "sampled_ratio": sampled / blocks,
        "collectives": counted,
    }


if __name__ == "__main__":
    import sys

    print(json.dumps(inside(int(sys.argv[1]), int(sys.argv[2]))))
