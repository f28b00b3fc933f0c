"""A small training on a GPU, observed by libargus_cupti; prints what torch.profiler saw of the same steps.

Three stretches of STEPS identical steps: free, inside a torch.profiler window, free again; then a CUDA graph,
replayed STEPS times. Between them the device is synchronised and the times are noted. The last line is JSON.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

import torch

from argus_training.kernels_control import KernelsControl
from argus_training.profiler_windows import around_profiler_windows

STEPS = 20


def settle(control: KernelsControl, limit_s: float = 30.0) -> None:
    """Until all that CUPTI had is sent: two flushes in a row bring nothing more."""
    limit, before = time.monotonic() + limit_s, -1
    while time.monotonic() < limit:
        control.flush()
        time.sleep(0.5)
        now = control.statistics()
        if now["records"] == before == int(now["sent"]) + int(now["dropped_socket"]):
            return
        before = int(now["records"])


def main() -> None:
    control = KernelsControl()
    around_profiler_windows(torch, control.pause, control.rearm)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    batch = torch.randn(256, 1024, device="cuda")

    def steps() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=False)
            model(batch).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()

    stretches: dict[str, tuple[int, int]] = {}

    def stretch(name: str, work: Any) -> None:
        begin = time.time_ns()
        work()
        stretches[name] = (begin, time.time_ns())
        time.sleep(0.5)

    steps()
    stretch("before", steps)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        stretch("window", steps)
    stretch("after", steps)
    static = torch.randn(256, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        for _ in range(3):
            model(static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(static)

    def replays() -> None:
        for _ in range(STEPS):
            graph.replay()
        torch.cuda.synchronize()

    stretch("graph", replays)
    settle(control)
    seen: dict[str, list[float]] = defaultdict(list)
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            seen[event.name].append(event.time_range.elapsed_us())
    print(
        json.dumps(
            {
                "stretches": stretches,
                "profiler": seen,
                "statistics": control.statistics(),
                "steps": STEPS,
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
