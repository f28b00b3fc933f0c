"""What the kernels channel adds to a launch, on the host and on the GPU, and to a kernel of a CUDA graph.

A step whose host is not ahead of the GPU is longer by what the host pays, one that keeps the GPU full by
what the GPU pays: with these figures the cost is known for any number of launches a second. The channel is
paused and taken up again in turns, within one process; without issue latencies and, in another process,
with them.

    python -m bench.gpu_day.launches TURNS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from bench.gpu_day.collector import collecting
from bench.gpu_day.device import Device, device
from bench.gpu_day.observe import attached, trained
from bench.gpu_day.step import Day
from bench.overhead import Interval

_TURNS, _DRY_TURNS = 40, 3
_LAUNCHES: Final = 2000
"""Timed on the host: a kernel of one number is done before the next comes, so the queue is never full."""
_QUEUED: Final = 400
"""Timed on the GPU, behind a kernel that ends when all are queued; its queue has room for 1,024."""
_AHEAD_MS: Final = 20.0
_REPLAYS: Final = 20


def run(day: Day) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    for latency, name in (("0", ""), ("1", "_with_latency")):
        with collecting(day.work) as collector:
            environment = attached(day, collector.path, ARGUS_ISSUE_LATENCY=latency)
            said = trained(
                environment, "-m", "bench.gpu_day.launches", str(_DRY_TURNS if day.dry else _TURNS)
            )
            collector.wait_ended()
        measured["kernels" + name] = sum(len(one.kernels) for one in collector.with_kernels())
        for what, told in json.loads(said.strip().splitlines()[-1]).items():
            measured |= {f"{what}{name}_{key}": value for key, value in told.items()}
        day.reach(f"measured with ARGUS_ISSUE_LATENCY={latency}")
    return measured


class Launches:
    """Seconds a launch, or a kernel, of one kind of work."""

    def __init__(self, on: Device) -> None:
        import torch

        self.on = on
        self.word = torch.zeros(1, device=on.torch_device)
        self._replay = on.graph(lambda: self._add(_QUEUED))
        self.kinds: dict[str, Callable[[], float]] = {
            "host_us": self._on_host,
            "gpu_us": lambda: self._on_gpu(lambda: self._add(_QUEUED), _QUEUED),
            "graph_us": lambda: self._on_gpu(self._replays, _QUEUED * _REPLAYS),
        }

    def _add(self, count: int) -> None:
        for _ in range(count):
            self.word.add_(1)

    def _replays(self) -> None:
        for _ in range(_REPLAYS):
            self._replay()

    def _on_host(self) -> float:
        began = time.perf_counter()
        self._add(_LAUNCHES)
        return (time.perf_counter() - began) / _LAUNCHES

    def _on_gpu(self, work: Callable[[], None], kernels: int) -> float:
        self.on.spin(_AHEAD_MS)
        first = self.on.event()
        work()
        last = self.on.event()
        self.on.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / kernels


def inside(turns: int) -> dict[str, dict[str, float]]:
    """In an attached process: by kind microseconds without, and what is added with its 95 % interval."""
    from argus_training.kernels_control import KernelsControl

    control, on = KernelsControl(), device()
    with on.on():
        work = Launches(on)
        told: dict[str, list[tuple[float, float]]] = {kind: [] for kind in work.kinds}
        for turn in range(turns + 1):
            pair: dict[str, list[float]] = {kind: [] for kind in work.kinds}
            for switch in (control.pause, control.rearm):
                switch()
                for kind, seconds in work.kinds.items():
                    on.synchronize()
                    pair[kind].append(1e6 * seconds())
            if turn:  # the first finds its way
                for kind, (without, with_) in pair.items():
                    told[kind].append((without, with_))
    made = {}
    for kind, pairs in told.items():
        added = Interval.of([with_ - without for without, with_ in pairs])
        made[kind] = {
            "without": median(without for without, _ in pairs),
            **{
                f"added{at}": value
                for at, value in (("", added.mean), ("_low", added.low), ("_high", added.high))
            },
        }
    return made


if __name__ == "__main__":
    print(json.dumps(inside(int(sys.argv[1]))))
