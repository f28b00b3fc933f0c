"""Python garbage collections that stop the rank: phase `gc`, kind host, from 1 ms.

Source: `gc.callbacks`. Runs in whichever thread allocates, also inside our own flush.
Not before another hook has seen training: any process that imports torch collects garbage.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from argus_core import wire
from argus_exporter.producer.hook import Hook
from argus_exporter.producer.spans import now

_SHORTEST_NS: Final = 1_000_000  # young generations take microseconds, thousands of times a minute


class GarbageHook(Hook):
    name = "gc"

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (no part of torch is needed)
        phase_of_pause = self.recorder.phase("gc", wire.Kind.HOST)
        begin_ns = 0

        def callback(phase: str, _info: dict[str, int]) -> None:
            nonlocal begin_ns
            if phase == "start":
                begin_ns = now()
            elif now() - begin_ns >= _SHORTEST_NS and self.alive and self.recorder.training:
                try:
                    self.recorder.ended(phase_of_pause, begin_ns)
                except Exception as error:
                    self.failed(error)

        gc.callbacks.append(callback)
        self._undo.append(lambda: gc.callbacks.remove(callback))
