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
        self._stepping = 0  # id of what steps; a reference would keep it alive where its step raised
        self._begin: Mark | None = None

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (imported below, where its type is known)
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.observer.step_begins, self.observer.step_ends = self._begins, self._after
        self.remove_at_detach(register_optimizer_step_pre_hook(self._before))
        self.remove_at_detach(register_optimizer_step_post_hook(self._after))

    def _before(self, optimizer: Any, *_: Any) -> None:
        self._begins(optimizer, optimizer)

    def _begins(self, stepper: Any, optimizer: Any) -> None:
        # An optimizer whose last step raised is still noted as stepping: it begins anew.
        key = id(stepper)
        if not self.alive or (self._stepping and self._stepping != key):
            return
        try:
            self._stepping = key
            if key not in self._known:
                self._known[key] = weakref.ref(stepper, lambda _: self._gone(key))
                self.observer.new_optimizer(optimizer)
            self.observer.trains()
            self.observer.iterations.optimizer_begins(key)
            self._begin = self.observer.stopwatch.begin(self._task)
        except Exception as error:
            self.failed(error)

    def _after(self, optimizer: Any, *_: Any) -> None:
        if not self.alive or self._stepping != id(optimizer):
            return
        try:
            self._stepping = 0
            begin, self._begin = self._begin, None
            observer = self.observer
            observer.stopwatch.span(self._task, begin)
            observer.iterations.optimizer_ended(id(optimizer), now())
            if observer.on_optimizer_step:
                for listener in observer.on_optimizer_step.copy():
                    listener()
        except Exception as error:
            self.failed(error)

    def _gone(self, key: int) -> None:
        """An optimizer was collected; another may get its id."""
        self._known.pop(key, None)
        self.observer.iterations.forget(key)
        if self._stepping == key:
            self._stepping = 0
