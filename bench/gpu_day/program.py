"""A small training on a device, observed from outside; prints what torch.profiler saw of the same steps.

    python -m bench.gpu_day.program [PART ...]

Each part is a stretch whose begin and end are noted, with the device synchronised at both. `before`,
`window` and `after` are STEPS identical steps each: free, inside a window of torch.profiler, free again;
`graph` replays a CUDA graph STEPS times; the others are for one step of the day each. The last line is
JSON.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from argus_training.cupti_fallback import CuptiFallback
from argus_training.kernels_control import KernelsControl
from argus_training.profiler_windows import around_profiler_windows
from bench.gpu_day.device import Device, device
from bench.gpu_day.stand_ins import VARIABLE

STEPS = 20
REST_S = 0.1 if VARIABLE in os.environ else 0.5
"""Between parts, and between looks at the injector's counts: more than clocks differ and a flush takes."""
LAYERS = 8
DEFAULT = ("before", "window", "after", "graph")
STREAMS = 3
COPIES, SETS, MEBIBYTES = 10, 5, 1
VOIDS, VOID_S = 5, 0.05
SPIN_MS = 20.0
MARKS, MARKS_APART_S = 200, 0.05
COMPETING = "GPU_DAY_COMPETING"
"""Set: another stream competes for the GPU while the part `load` lasts."""


def settle(control: KernelsControl, limit_s: float = 30.0) -> None:
    """Until all that CUPTI had is sent: two flushes in a row bring nothing more."""
    limit, before = time.monotonic() + limit_s, -1
    while time.monotonic() < limit and control.loaded():
        control.flush()
        time.sleep(REST_S)
        now = control.statistics()
        if not now or now["records"] == before == int(now["sent"]) + int(now["dropped_socket"]):
            return
        before = int(now["records"])


def _fallbacks() -> list[CuptiFallback]:
    return [thing for thing in gc.get_objects() if type(thing) is CuptiFallback]


class Program:
    """The training, and the parts."""

    def __init__(self, on: Device) -> None:
        self.on = on
        self.told: dict[str, Any] = {}
        self.stretches: dict[str, tuple[int, int]] = {}
        """Begin and end of each part in Unix nanoseconds."""
        self._replay: Callable[[], object] = lambda: None
        torch.manual_seed(0)
        self.width = 1024 if on.torch_device == "cuda" else 32
        layers = (torch.nn.Linear(self.width, self.width) for _ in range(LAYERS))
        self.model = torch.nn.Sequential(*layers).to(on.torch_device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=False)
        self.batch = torch.randn(256, self.width, device=on.torch_device)

    def steps(self, count: int = STEPS) -> None:
        for _ in range(count):
            self.optimizer.zero_grad(set_to_none=False)
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()

    def before(self) -> None:
        self.steps()

    def after(self) -> None:
        self.steps()

    def window(self) -> None:
        with self.on.profiled() as seen:
            self.steps()
            self.on.synchronize()
        self.told["profiler"] = seen

    def windows(self) -> None:
        """Five in a row, with steps between them."""
        for _ in range(5):
            with self.on.profiled():
                self.steps(2)
                self.on.synchronize()
            self.steps(2)

    def graph(self) -> None:
        """The stretch is that of the replays alone."""
        with torch.no_grad():
            self._replay = self.on.graph(lambda: self.model(self.batch))
        self.on.synchronize()
        time.sleep(REST_S)
        begin = time.time_ns()
        for _ in range(STEPS):
            self._replay()
        self.on.synchronize()
        self.stretches["graph"] = begin, time.time_ns()

    def graph_window(self) -> None:
        """One more replay, as torch.profiler sees it."""
        with self.on.profiled() as seen:
            self._replay()
            self.on.synchronize()
        self.told["replay"] = seen

    def streams(self) -> None:
        """As much on each stream as on every other."""
        with torch.no_grad():
            for _ in range(STREAMS):
                with self.on.stream():
                    for _ in range(STEPS):
                        torch.mm(self.batch, self.batch.t())

    def copies(self) -> None:
        for _ in range(COPIES):
            self.on.copy_in(MEBIBYTES)
        for _ in range(SETS):
            self.on.fill(MEBIBYTES << 18)

    def voids(self) -> None:
        """Kernels with a known nothing between them."""
        for _ in range(VOIDS + 1):
            self.on.spin(1.0)
            self.on.synchronize()
            time.sleep(VOID_S)

    def latency(self) -> None:
        """A kernel that is launched while the one before it has SPIN_MS to go."""
        self.on.synchronize()
        for _ in range(STEPS):
            self.on.spin(SPIN_MS)
            self.on.spin(0.1)
            self.on.synchronize()

    def clock(self) -> None:
        """Marks of two kinds at the same points of one stream: an event, and a memory set of 4 bytes."""
        events = []
        for _ in range(MARKS if self.on.torch_device == "cuda" else MARKS // 10):
            # Behind a kernel, event and marker are passed back to back: no launch of the host lies between.
            self.on.spin(1.0)
            events.append(self.on.event())
            self.on.fill(1)
            self.on.synchronize()
            time.sleep(MARKS_APART_S)
        first = events[0]
        self.told["event_ms"] = [first.elapsed_time(event) for event in events]
        # As a base of its own for each iteration has it: float32 ms from one mark to the next.
        self.told["next_event_ms"] = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]

    def until_armed(self) -> None:
        """Train until the channel by cupti-python records, which begins when it has seen a training."""
        limit = time.monotonic() + 30.0
        while not any(channel._armed for channel in _fallbacks()):
            if time.monotonic() > limit:
                raise RuntimeError("the channel by cupti-python does not begin")
            self.steps(1)
            self.on.synchronize()

    def load(self) -> None:
        """A window of kernels for L3: as many steps as eight ranks are resampled from."""
        self.told["load_steps"] = count = 100 if self.on.torch_device == "cuda" else 10
        if COMPETING in os.environ:
            self._compete()
        begin = time.time_ns()
        self.steps(count)
        self.on.synchronize()
        self.stretches["load"] = begin, time.time_ns()

    def _compete(self) -> None:
        """Products of matrices on another stream, for a second and a half."""
        large = torch.randn(8192, 8192, device=self.on.torch_device, dtype=torch.bfloat16)
        torch.mm(large, large)
        self.on.synchronize()
        with self.on.stream():
            for _ in range(1000):
                torch.mm(large, large)


def main() -> None:
    parts = tuple(sys.argv[1:]) or DEFAULT
    control = KernelsControl()
    if "argus_training.attach" not in sys.modules:  # it does that itself
        around_profiler_windows(torch, control.pause, control.rearm)
    on = device()
    with on.on():
        program = Program(on)
        program.steps()
        on.synchronize()
        time.sleep(REST_S)
        for part in parts:
            begin = time.time_ns()
            getattr(program, part)()
            on.synchronize()
            program.stretches.setdefault(part, (begin, time.time_ns()))
            time.sleep(REST_S)
    settle(control)
    told = {
        "stretches": program.stretches,
        "statistics": control.statistics(),
        "steps": STEPS,
        "layers": LAYERS,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on.torch_device == "cuda" else "stand-in",
        "pid": os.getpid(),
    }
    print(json.dumps(told | program.told))


if __name__ == "__main__":
    main()
