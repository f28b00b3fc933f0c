"""The optimizer step: phase `optimizer`, kind compute, and the clock of iterations.

Source: torch's global optimizer step hooks (`register_optimizer_step_pre_hook`), which every optimizer class
passes. An optimizer that steps another (ZeroRedundancyOptimizer) is one step.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from argus_core import wire
from argus_exporter.producer.hook import Hook, Observer
from argus_exporter.producer.spans import now
from argus_exporter.producer.stopwatch import Mark

_PERIOD_NS: Final = 1_000_000_000


class OptimizerHook(Hook):
    name = "optimizer"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._task = observer.stopwatch.task("optimizer", wire.Kind.COMPUTE)
        self._known: dict[int, weakref.ref[Any]] = {}
        self._stepping = 0  # id of what steps; a reference would keep it alive where its step raised
        self._begin: Mark | None = None
        self._period_ends = 0

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (imported below, where its type is known)
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.observer.step_begins, self.observer.step_ends = self._begins, self._after
        self.remove_at_detach(register_optimizer_step_pre_hook(self._before))
        self.remove_at_detach(register_optimizer_step_post_hook(self._after))

    def _begins(self, stepper: Any, optimizer: Any) -> None:
        """`stepper`, which is no optimizer of torch, begins to step `optimizer`."""
        self._before(stepper, optimizer=optimizer)

    def _before(self, stepper: Any, *_: Any, optimizer: Any = None) -> None:
        # An optimizer whose last step raised is still noted as stepping: it begins anew.
        key = id(stepper)
        if not self.alive or (self._stepping and self._stepping != key):
            return
        try:
            self._stepping = key
            if key not in self._known:
                self._known[key] = weakref.ref(stepper, lambda _: self._gone(key))
                self.observer.new_optimizer(stepper if optimizer is None else optimizer)
            observer = self.observer
            if observer.evaluating:
                observer.trains()
            if observer.iterations.learning:
                observer.iterations.optimizer_begins(key)
            self._begin = observer.stopwatch.begin(self._task)
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
            at = now()
            observer.iterations.optimizer_ended(id(optimizer), at)
            if observer.on_optimizer_step:
                for listener in observer.on_optimizer_step.copy():
                    listener()
            if at >= self._period_ends:
                self._period_ends = at + _PERIOD_NS
                for listener in observer.periodic.copy():
                    listener()
        except Exception as error:
            self.failed(error)

    def _gone(self, key: int) -> None:
        """An optimizer was collected; another may get its id."""
        self._known.pop(key, None)
        self.observer.iterations.forget(key)
        if self._stepping == key:
            self._stepping = 0
