"""Python garbage collections: totals by generation, and a phase `gc` (kind host) for those from 1 ms on.

Source: `gc.callbacks`. Runs in whichever thread allocates, also inside our own flush.
No span before another hook has seen training: any process that imports torch collects garbage.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from argus_core import wire
from argus_training.hook import Hook
from argus_training.spans import now
from argus_training.step_log import TRAINING_CLOCK

_SHORTEST_NS: Final = 1_000_000  # young generations take microseconds, thousands of times a minute


class GarbageHook(Hook):
    name = "gc"

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (no part of torch is needed)
        self._phase = self.recorder.phase("gc", wire.Kind.HOST)
        begin_ns = 0

        def callback(phase: str, info: dict[str, int]) -> None:
            nonlocal begin_ns
            if phase == "start":
                begin_ns = now()
                return
            end_ns = now()
            if not begin_ns or not self.alive:
                return
            try:
                self._collected(info["generation"], begin_ns, end_ns)
            except Exception as error:
                self.failed(error)

        gc.callbacks.append(callback)
        self._undo.append(lambda: gc.callbacks.remove(callback))
        self.hide_from_dynamo((callback,), "_collected")

    def _collected(self, generation: int, begin_ns: int, end_ns: int) -> None:
        recorder, duration_ns = self.recorder, end_ns - begin_ns
        recorder.host.collection(generation, begin_ns, duration_ns)
        if duration_ns >= _SHORTEST_NS and recorder.training:
            # Of whichever thread: it holds the GIL, so the one that trains stands still too.
            recorder.measured(self._phase, begin_ns, end_ns, duration_ns, recorder.step, TRAINING_CLOCK)
