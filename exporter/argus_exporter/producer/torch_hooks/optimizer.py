"""The optimizer step: phase `optimizer`, kind compute, and the clock of iterations.

Source: torch's global optimizer step hooks (`register_optimizer_step_pre_hook`), which every optimizer class
passes. An optimizer that steps another (ZeroRedundancyOptimizer) is one step.
"""

from __future__ import annotations

import weakref
from typing import Any

from argus_core import wire
from argus_exporter.producer.hook import Hook, Observer
from argus_exporter.producer.spans import now
from argus_exporter.producer.stopwatch import Mark


class OptimizerHook(Hook):
    name = "optimizer"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._task = observer.stopwatch.task("optimizer", wire.Kind.COMPUTE)
        self._known: dict[int, weakref.ref[Any]] = {}
        self._stepping: Any = None
        self._begin: Mark | None = None

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (imported below, where its type is known)
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.remove_at_detach(register_optimizer_step_pre_hook(self._before))
        self.remove_at_detach(register_optimizer_step_post_hook(self._after))

    def _before(self, optimizer: Any, *_: Any) -> None:
        # An optimizer whose last step raised is still noted as stepping: it begins anew.
        if not self.alive or (self._stepping is not None and self._stepping is not optimizer):
            return
        try:
            self._stepping = optimizer
            key = id(optimizer)
            if key not in self._known:
                self._known[key] = weakref.ref(optimizer, lambda _: self._known.pop(key, None))
                self.observer.new_optimizer(optimizer)
            self.observer.iterations.optimizer_begins(key)
            self._begin = self.observer.stopwatch.mark()
        except Exception as error:
            self.failed(error)

    def _after(self, optimizer: Any, *_: Any) -> None:
        if not self.alive or self._stepping is not optimizer:
            return
        try:
            self._stepping = None
            begin, self._begin = self._begin, None
            observer = self.observer
            observer.stopwatch.span(self._task, begin)
            observer.iterations.optimizer_ended(id(optimizer), now())
            if observer.on_optimizer_step:
                for listener in observer.on_optimizer_step.copy():
                    listener()
        except Exception as error:
            self.failed(error)
