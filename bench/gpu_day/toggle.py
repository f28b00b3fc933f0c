"""What hooks and kernels add, put in and taken out in turns inside one process.

Memory placement, clocks and the allocator are then the same on both sides; what ARGUS costs by being
loaded at all is not seen: the step `overhead-50` sees it. Hooks as in `bench.overhead_hooks`; kernels by
the injector's own pause.
"""

from __future__ import annotations

import json
from typing import Any

from bench.gpu_day.observe import attached, trained
from bench.gpu_day.overhead import summary
from bench.gpu_day.step import Day
from bench.overhead import serving

_BLOCKS, _STEPS = 150, 8
_WARM_UP = 20


def run(day: Day) -> dict[str, Any]:
    blocks, steps = (3, 2) if day.dry else (_BLOCKS, _STEPS)
    sizes = {"OVERHEAD_STEP_MS": str(day.step.options["step_ms"]), "OVERHEAD_MODE": "eager"}
    if day.dry:
        sizes["OVERHEAD_MICRO_BATCHES"] = "2"
    with serving("false") as socket:
        environment = attached(day, socket, 0, **sizes)
        out = trained(environment, "-m", "bench.gpu_day.toggle", str(blocks), str(steps))
    told = json.loads(out.strip().splitlines()[-1])
    day.reach(f"{blocks} blocks of {steps} steps, in turns inside one process")
    return summary(told["blocks"]) | {"records": told["records"]}


def inside(blocks: int, steps: int) -> dict[str, Any]:
    """In an attached process."""
    import time

    from argus_training.kernels_control import KernelsControl
    from bench.gpu_day.transformer import training
    from bench.overhead_hooks import StepHooks

    step, wait = training()
    control = KernelsControl()
    for _ in range(_WARM_UP):
        step()
    wait()
    hooks = StepHooks()
    hooks.out()
    control.pause()

    def block() -> dict[str, list[float]]:
        taken = []
        for index in range(steps + 1):
            began = time.perf_counter()
            step()
            wait()
            if index:  # the first finds its way
                taken.append(time.perf_counter() - began)
        return {"steps_s": taken}

    answers: dict[str, list[dict[str, list[float]]]] = {"off": [], "phases": [], "kernels": []}
    for number in range(blocks):
        order = list(answers)[:: -1 if number % 2 else 1]
        for name in order:
            if name != "off":
                hooks.put_in()
            if name == "kernels":
                control.rearm()
            answers[name].append(block())
            if name == "kernels":
                control.pause()
            if name != "off":
                hooks.out()
    records = int(control.statistics().get("records", 0))
    hooks.put_in()
    control.rearm()
    return {"blocks": answers, "records": records}


if __name__ == "__main__":
    import sys

    print(json.dumps(inside(int(sys.argv[1]), int(sys.argv[2]))))
