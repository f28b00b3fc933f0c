"""Python garbage collections that stop the rank: phase `gc`, kind host, from 1 ms.

Source: `gc.callbacks`. Runs in whichever thread allocates, also inside our own flush.
Not before another hook has seen training: any process that imports torch collects garbage.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from argus_exporter.producer.hook import Hook, host_span
from argus_exporter.producer.spans import now

_SHORTEST_NS: Final = 1_000_000  # young generations take microseconds, thousands of times a minute


class GarbageHook(Hook):
    name = "gc"

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (no part of torch is needed)
        begin_ns = 0

        def callback(phase: str, _info: dict[str, int]) -> None:
            nonlocal begin_ns
            if phase == "start":
                begin_ns = now()
            elif begin_ns and now() - begin_ns >= _SHORTEST_NS and self.alive and self.recorder.training:
                try:
                    host_span(self.recorder, "gc", begin_ns)
                except Exception as error:
                    self.failed(error)

        gc.callbacks.append(callback)
        self._undo.append(lambda: gc.callbacks.remove(callback))
