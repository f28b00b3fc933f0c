"""Call stacks of a simulated main thread, sampled at a fixed rate, as the producer's sampler sends them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from argus_core import wire
from argus_core.link import Link
from argus_simulator.engine.job import NEVER, JobStep

_ROOT: Final = "<module> (train.py:1);main (train.py:40);train_step (training.py:210)"
_DATA: Final = "next (dataloader.py:630);get (queue.py:171)"
_GC: Final = "collect (gc)"
_COMPILE: Final = "compile (triton/compiler.py:226)"
_SYNC: Final = "synchronize (torch/cuda/__init__.py:792)"
_LAUNCHING: Final = {
    "attention": "forward (attention.py:88)", "mlp": "forward (mlp.py:61)", "router": "route (moe.py:120)",
    "optimizer": "step (optimizer.py:301)", "copy": "to (batch.py:22)",
}  # fmt: skip
_COLLECTIVE: Final = "all_reduce (torch/distributed/distributed_c10d.py:2450)"
_BACKWARD: Final = "run_backward (torch/autograd/graph.py:769)"
_THREAD: Final = "MainThread"
_GOLDEN: Final = 0.6180339887498949
_WAITS, _ENDS, _LOADS, _PAUSED = -1, -2, -3, -4
"""What the thread is in where it launches no phase, whose numbers begin at 0; pauses go on downwards."""


class MainThread:
    """Samples of one rank. Stack nodes are told once a connection."""

    def __init__(self, hertz: float) -> None:
        self._period = 1.0 / hertz
        self._taken = 0
        self._nodes: dict[str, int] = {}
        self._connects = -1

    def sample(
        self, done: JobStep, rank: int, link: Link, epoch_ns: int, offset_ns: int, until_s: float = 0.0
    ) -> Iterator[wire.Record]:
        """Records of the samples that fall into a step; of one without an end, up to `until_s` of the job."""
        start_s, end_s = float(done.start_ns[rank]) / 1e9, float(done.end_ns[rank]) / 1e9
        if done.end_ns[rank] == NEVER:
            end_s = until_s
        first = max(self._taken, math.ceil(start_s / self._period - 1))
        numbers = np.arange(first, math.ceil(end_s / self._period))
        # A sampler's clock jitters: at exact multiples it would always meet the same moments of a step.
        moments = (numbers + numbers * _GOLDEN % 1.0) * self._period
        inside = (moments >= start_s) & (moments < end_s)
        if not inside.any():
            return
        moments = moments[inside]
        self._taken = int(numbers[inside][-1]) + 1
        if link.connects != self._connects:
            self._connects = link.connects
            self._nodes.clear()
        thread = link.name_id(_THREAD)
        for stack, count in self._stacks(done, rank, moments).items():
            node = self._nodes.get(f";{_ROOT};{stack}", 0)
            path = ""
            for frame in f"{_ROOT};{stack}".split(";") if not node else ():
                path = f"{path};{frame}"
                known = self._nodes.get(path)
                if known is None:
                    known = self._nodes[path] = len(self._nodes) + 1
                    yield wire.StackNode(known, node, link.name_id(frame))
                node = known
            yield wire.StackSample(epoch_ns + round(end_s * 1e9) + offset_ns, thread, node, count)

    def _stacks(self, done: JobStep, rank: int, moments: np.ndarray) -> dict[str, int]:
        """How often each stack is met."""
        plan, times = done.plan, done.times
        nodes = plan.nodes_of[rank]
        nodes = nodes[nodes >= plan.topology.ranks]
        begins, until = times.host[nodes], times.host_end[nodes]
        stopped = done.frames.get((rank, "hang"), "")
        # Between two launches the queue is full, and the next one blocks.
        places = np.maximum(np.searchsorted(begins, moments, side="right") - 1, 0)
        places = np.minimum(
            places + ((moments >= until[places]) & (moments >= begins[places])), len(nodes) - 1
        )
        launching = nodes[places]
        row = plan.row_of_node[launching]
        launched = np.where(row >= 0, begins[places] + times.offset[row, -1], np.inf)
        inside = np.where(moments > launched, _WAITS, plan.phase[launching])
        inside[moments >= until[-1]] = _ENDS  # the loss is read
        inside[moments < float(done.data_end_ns[rank]) / 1e9] = _LOADS
        own = [pause for pause in done.pauses if pause.rank == rank]
        for number, pause in reversed(list(enumerate(own))):
            since = moments * 1e9 - pause.start_ns
            inside[(since >= 0) & (since < pause.duration_ns)] = _PAUSED - number

        def stack_of(code: int) -> str:
            if code >= 0:
                return done.frames.get((rank, "launch"), stopped or frames_of(plan.phases[code]))
            if code == _WAITS:
                return done.frames.get((rank, "sync"), _SYNC)
            if code == _ENDS:
                return _SYNC
            if code == _LOADS:
                return done.frames.get((rank, "data"), stopped or _DATA)
            pause = own[_PAUSED - code]
            return pause.frames or {"gc": _GC, "compile": _COMPILE}.get(pause.kind, "sleep (time)")

        counts: dict[str, int] = {}
        for code, count in Counter(inside.tolist()).items():
            stack = stack_of(code)
            counts[stack] = counts.get(stack, 0) + count
        return counts


def frames_of(phase: str) -> str:
    """Where the main thread is while it launches a phase."""
    part, _, direction = phase.partition("-")
    if direction == "backward":
        return _BACKWARD
    return _LAUNCHING.get(part, _COLLECTIVE)
