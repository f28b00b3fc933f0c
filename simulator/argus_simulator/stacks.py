"""Call stacks of a simulated main thread, sampled at a fixed rate, as the producer's sampler sends them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from argus_core import wire
from argus_core.link import Link
from argus_simulator.engine.job import JobStep
from argus_simulator.engine.plan import Floats

_ROOT: Final = "<module> (train.py:1);main (train.py:40);train_step (training.py:210)"
_DATA: Final = "next (dataloader.py:630);get (queue.py:171)"
_PAUSES: Final = {"gc": "collect (gc)", "compile": "compile (triton/compiler.py:226)"}
_SYNC: Final = "synchronize (torch/cuda/__init__.py:792)"
_LAUNCHING: Final = {
    "attention": "forward (attention.py:88)", "mlp": "forward (mlp.py:61)", "router": "route (moe.py:120)",
    "optimizer": "step (optimizer.py:301)", "copy": "to (batch.py:22)",
}  # fmt: skip
_COLLECTIVE: Final = "all_reduce (torch/distributed/distributed_c10d.py:2450)"
_BACKWARD: Final = "run_backward (torch/autograd/graph.py:769)"
_THREAD: Final = "MainThread"
_GOLDEN: Final = 0.6180339887498949
SEND_S: Final = 5.0
"""How long samples wait to be sent: as long as those of the sampler inside a training process."""


class MainThread:
    """Samples of one rank, sent together now and then. Stack nodes are told once a connection."""

    def __init__(self, hertz: float) -> None:
        self._period = 1.0 / hertz
        self._taken = 0
        self._pending: Counter[str] = Counter()
        """By stack: what was not sent yet."""
        self._sent_s = 0.0
        """When samples were sent last, seconds of the job."""
        self._nodes: dict[str, int] = {}
        self._connects = -1

    def sample(self, done: JobStep, rank: int, end_s: float) -> None:
        """Count the samples that fall into a step, up to its end or where it has come: seconds of the job."""
        start_s = float(done.start_ns[rank]) / 1e9
        first = max(self._taken, math.ceil(start_s / self._period - 1))
        numbers = np.arange(first, math.ceil(end_s / self._period))
        # A sampler's clock jitters: at exact multiples it would always meet the same moments of a step.
        moments = (numbers + numbers * _GOLDEN % 1.0) * self._period
        inside = (moments >= start_s) & (moments < end_s)
        if not inside.any():
            return
        self._taken = int(numbers[inside][-1]) + 1
        self._pending.update(self._stacks(done, rank, moments[inside]))

    def take(self, link: Link, now_s: float, unix_ns: int) -> Iterator[wire.Record]:
        """Records of what was counted, where it is time to send them.

        Args:
            now_s: seconds of the job.
            unix_ns: the same by the host's clock.
        """
        if not self._pending or now_s - self._sent_s < SEND_S:
            return
        self._sent_s = now_s
        if link.connects != self._connects:
            self._connects = link.connects
            self._nodes.clear()
        thread = link.name_id(_THREAD)
        for stack, count in self._pending.items():
            node = self._nodes.get(f";{_ROOT};{stack}", 0)
            path = ""
            for frame in f"{_ROOT};{stack}".split(";") if not node else ():
                path = f"{path};{frame}"
                known = self._nodes.get(path)
                if known is None:
                    known = self._nodes[path] = len(self._nodes) + 1
                    yield wire.StackNode(known, node, link.name_id(frame))
                node = known
            yield wire.StackSample(unix_ns, thread, node, count)
        self._pending.clear()

    def _stacks(self, done: JobStep, rank: int, moments: Floats) -> Counter[str]:
        """How often each stack is met."""
        plan, times, frames = done.plan, done.times, done.frames
        nodes = plan.nodes_of[rank]
        nodes = nodes[nodes >= plan.topology.ranks]
        begins, until = times.host[nodes], times.host_end[nodes]
        data_end_s, read_s = float(done.data_end_ns[rank]) / 1e9, until[-1]
        stopped = frames.get((rank, "hang"), "")
        pauses = [pause for pause in done.pauses if pause.rank == rank]

        def stack(at: float, place: int) -> str:
            for pause in pauses:
                if 0 <= at * 1e9 - pause.start_ns < pause.duration_ns:
                    return pause.frames or _PAUSES.get(pause.kind, "sleep (time)")
            if at < data_end_s:
                return frames.get((rank, "data"), stopped or _DATA)
            if at >= read_s:  # the loss
                return _SYNC
            # Between two launches the queue is full, and the next one blocks.
            if place < 0 or (at >= until[place] and place + 1 < len(nodes)):
                place += 1
            row = plan.row_of_node[nodes[place]]
            if row >= 0 and at > begins[place] + times.offset[row, -1]:
                return frames.get((rank, "sync"), _SYNC)
            return frames.get((rank, "launch"), stopped or frames_of(plan.phases[plan.phase[nodes[place]]]))

        places = np.searchsorted(begins, moments, side="right") - 1
        return Counter(map(stack, moments.tolist(), places.tolist()))


def frames_of(phase: str) -> str:
    """Where the main thread is while it launches a phase."""
    part, _, direction = phase.partition("-")
    if direction == "backward":
        return _BACKWARD
    return _LAUNCHING.get(part, _COLLECTIVE)
