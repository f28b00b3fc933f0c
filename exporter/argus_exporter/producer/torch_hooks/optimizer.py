"""The optimizer step: phase `optimizer`, kind compute, and the clock of iterations.

Source: torch's global optimizer step hooks (`register_optimizer_step_pre_hook`), which every optimizer class
passes. An optimizer that steps another (ZeroRedundancyOptimizer) is one step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
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

    def attach(self, torch: Any) -> None:  # noqa: ARG002  (imported below, where its type is known)
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        after = self._after()
        self.observer.step_begins, self.observer.step_ends = self._begins, after
        self.remove_at_detach(register_optimizer_step_pre_hook(self._before()))
        self.remove_at_detach(register_optimizer_step_post_hook(after))

    def _begins(self, stepper: Any, optimizer: Any) -> None:
        """`stepper`, which is no optimizer of torch, begins to step `optimizer`."""
        try:
            if self.alive and not self._stepping and id(stepper) not in self._known:
                self._meet(stepper, optimizer)
        except Exception as error:
            self.failed(error)
        self._begun(stepper)

    def _before(self) -> Callable[..., None]:
        observer, known, recorder = self.observer, self._known, self.recorder
        iterations, stopwatch, words = observer.iterations, observer.stopwatch, recorder.words
        task = self._task
        slot = task.slot

        def before(stepper: Any, _args: Any = None, _kwargs: Any = None) -> None:
            # An optimizer whose last step raised is still noted as stepping: it begins anew.
            key = id(stepper)
            if not self.alive or (self._stepping and self._stepping != key):
                return
            try:
                self._stepping = key
                if key not in known:
                    self._meet(stepper, stepper)
                if observer.evaluating:
                    observer.trains()
                if iterations.learning:
                    iterations.optimizer_begins(key)
                if stopwatch.on_events:
                    self._begin = stopwatch.begin(task)
                else:
                    self._begin = words[slot] = now()
            except Exception as error:
                self.failed(error)

        self._begun = before
        return before

    def _after(self) -> Callable[..., None]:
        observer, recorder = self.observer, self.recorder
        optimizer_ended, stopwatch = observer.iterations.optimizer_ended, observer.stopwatch
        words, waiting = recorder.words, recorder.waiting
        put = waiting.append
        task = self._task
        phase, slot = task.on_host, task.slot
        period_ends = 0

        def after(stepper: Any, _args: Any = None, _kwargs: Any = None) -> None:
            nonlocal period_ends
            key = id(stepper)
            if not self.alive or self._stepping != key:
                return
            try:
                self._stepping = 0
                begin = self._begin
                end = now()
                if type(begin) is not int:
                    self._begin = None
                    stopwatch.span(task, begin)
                else:
                    words[slot] = 0
                    if len(waiting) < recorder.room:
                        put((phase, begin, end - begin, recorder.step))
                    else:
                        recorder.span(phase, begin, end - begin)
                optimizer_ended(key, end)
                if observer.on_optimizer_step:
                    for listener in observer.on_optimizer_step.copy():
                        listener()
                if end >= period_ends:
                    period_ends = end + _PERIOD_NS
                    for listener in observer.periodic.copy():
                        listener()
            except Exception as error:
                self.failed(error)

        return after

    def _meet(self, stepper: Any, optimizer: Any) -> None:
        """One that steps for the first time."""
        key = id(stepper)
        self._known[key] = weakref.ref(stepper, lambda _: self._gone(key))
        self.observer.new_optimizer(optimizer)

    def _gone(self, key: int) -> None:
        """An optimizer was collected; another may get its id."""
        self._known.pop(key, None)
        self.observer.iterations.forget(key)
        if self._stepping == key:
            self._stepping = 0
