"""What hooks, kernels and stacks add, put in and taken out in turns inside one process.

Memory placement, clocks and the allocator are then the same on both sides; what ARGUS costs by being
loaded at all is not seen: the step `overhead-50` sees it. Hooks as in `bench.overhead_hooks`; kernels by
the injector's own pause; stacks by stopping the py-spy that samples the process, which never holds it
(`--nonblocking`). NCCL's plugin is not among them: one process has no collectives.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.gpu_day.observe import attached, trained
from bench.gpu_day.overhead import needs_py_spy, summary
from bench.gpu_day.step import Day
from bench.overhead import serving

_BLOCKS, _STEPS = 110, 8
_WARM_UP = 20
_SAMPLER_S = 30.0
"""Until the exporter has begun to sample a new rank, at the latest."""


def run(day: Day) -> dict[str, Any]:
    needs_py_spy()
    blocks, steps = (3, 2) if day.dry else (_BLOCKS, _STEPS)
    sizes = {"OVERHEAD_STEP_MS": str(day.step.options["step_ms"]), "OVERHEAD_MODE": "eager"}
    if day.dry:
        sizes["OVERHEAD_MICRO_BATCHES"] = "2"
    with serving("true") as socket:
        environment = attached(day, socket, 0, ARGUS_STACKS="", **sizes)
        out = trained(environment, "-m", "bench.gpu_day.toggle", str(blocks), str(steps))
    told = json.loads(out.strip().splitlines()[-1])
    day.reach(f"{blocks} blocks of {steps} steps, in turns inside one process")
    return summary(told["blocks"]) | {"records": told["records"], "sampled_ratio": told["sampled_ratio"]}


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


def _sample(on: bool) -> bool:
    """Let the samplers go on, or stop them, and whether there is one: each window has its own."""
    found = samplers()
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)
    return bool(found)


def _until_sampled(step: Callable[[], None]) -> None:
    limit = time.monotonic() + _SAMPLER_S
    while not samplers():
        if time.monotonic() > limit:
            raise RuntimeError(f"no py-spy samples this process after {_SAMPLER_S:.0f} s")
        step()


def inside(blocks: int, steps: int) -> dict[str, Any]:
    """In an attached process."""
    from argus_training.kernels_control import KernelsControl
    from bench.gpu_day.transformer import training
    from bench.overhead_hooks import StepHooks

    step, wait = training()
    control = KernelsControl()
    for _ in range(_WARM_UP):
        step()
    _until_sampled(step)
    wait()
    hooks = StepHooks()
    hooks.out()
    control.pause()
    _sample(on=False)

    def block() -> dict[str, list[float]]:
        taken = []
        for index in range(steps + 1):
            began = time.perf_counter()
            step()
            wait()
            if index:  # the first finds its way
                taken.append(time.perf_counter() - began)
        return {"steps_s": taken}

    answers: dict[str, list[dict[str, list[float]]]] = {"off": [], "phases": [], "kernels": [], "stacks": []}
    sampled = 0
    try:
        for number in range(blocks):
            order = list(answers)[:: -1 if number % 2 else 1]
            for name in order:
                if _sample(on=name == "stacks") and name == "stacks":
                    sampled += 1
                if name != "off":
                    hooks.put_in()
                if name in ("kernels", "stacks"):
                    control.rearm()
                answers[name].append(block())
                if name in ("kernels", "stacks"):
                    control.pause()
                if name != "off":
                    hooks.out()
    finally:
        _sample(on=True)
    records = int(control.statistics().get("records", 0))
    hooks.put_in()
    control.rearm()
    return {"blocks": answers, "records": records, "sampled_ratio": sampled / blocks}


if __name__ == "__main__":
    import sys

    print(json.dumps(inside(int(sys.argv[1]), int(sys.argv[2]))))
