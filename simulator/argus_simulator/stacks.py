"""Call stacks of a simulated main thread, sampled at a fixed rate, as the producer's sampler sends them."""

from __future__ import annotations

import math
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
        counts: dict[str, int] = {}
        for stack in self._stacks(done, rank, moments):
            counts[stack] = counts.get(stack, 0) + 1
        for stack, count in counts.items():
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

    def _stacks(self, done: JobStep, rank: int, moments: np.ndarray) -> Iterator[str]:
        plan, times = done.plan, done.times
        nodes = plan.nodes_of[rank]
        nodes = nodes[nodes >= plan.topology.ranks]
        begins, until = times.host[nodes], times.host_end[nodes]
        places = np.searchsorted(begins, moments, side="right") - 1
        data_end = float(done.data_end_ns[rank]) / 1e9
        stopped = done.frames.get((rank, "hang"), "")
        own = [pause for pause in done.pauses if pause.rank == rank]
        for moment, place in zip(moments.tolist(), places.tolist(), strict=True):
            paused = [one for one in own if 0 <= moment * 1e9 - one.start_ns < one.duration_ns]
            if paused:
                yield paused[0].frames or {"gc": _GC, "compile": _COMPILE}.get(paused[0].kind, "sleep (time)")
            elif moment < data_end:
                yield done.frames.get((rank, "data"), stopped or _DATA)
            elif moment >= until[-1]:
                yield _SYNC  # the loss is read
            else:
                # Between two launches the queue is full, and the next one blocks.
                place = max(place, 0) if place < 0 or moment < until[place] else place + 1
                row = plan.row_of_node[nodes[place]]
                launched = begins[place] + (times.offset[row, -1] if row >= 0 else np.inf)
                if moment > launched:
                    yield done.frames.get((rank, "sync"), _SYNC)
                else:
                    phase = plan.phases[plan.phase[nodes[place]]]
                    yield done.frames.get((rank, "launch"), stopped or frames_of(phase))


def frames_of(phase: str) -> str:
    """Where the main thread is while it launches a phase."""
    part, _, direction = phase.partition("-")
    if direction == "backward":
        return _BACKWARD
    return _LAUNCHING.get(part, _COLLECTIVE)
