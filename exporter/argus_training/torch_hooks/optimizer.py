"""The optimizer step: phase `optimizer`, kind compute, and the clock of iterations.

Source: torch's global optimizer step hooks (`register_optimizer_step_pre_hook`), which every optimizer class
passes. An optimizer that steps another (ZeroRedundancyOptimizer) is one step. Optimizers that step within
the backward (one for each parameter, so that a gradient is freed as soon as it is there) are part of it: a
model has hundreds, and a span of each would cost a percent. Such a backward ends with the step.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

from argus_core import wire
from argus_core.shared_page import STEP_WORD
from argus_training.hook import Hook, Observer
from argus_training.spans import now
from argus_training.step_log import ITERATION
from argus_training.step_progress import THE_BACKWARD
from argus_training.stopwatch import Mark

_LOOK_NS: Final = 50_000_000
"""The observer looks around after the first step that ends so long after its last look."""


class OptimizerHook(Hook):
    name = "optimizer"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._task = observer.stopwatch.task("optimizer", wire.Kind.COMPUTE)
        self._known: dict[int, weakref.ref[Any]] = {}
        self._mark: Mark | None = None  # of a step that is not a usual one
        self._backward = [
            observer.stopwatch.task(*phase).slot
            for phase in (
                ("backward", wire.Kind.COMPUTE),
                ("dp-allreduce", wire.Kind.COMM),
                ("dp-reduce-scatter", wire.Kind.COMM),
            )
        ]
        """Words of the page that tell that a backward runs, or waits for its gradients."""
        self._graph_task: Callable[[], int]
        self._steppers: set[CodeType] = set()
        """What steps: torch's wrapper of every `step`, and a framework's."""

    def attach(self, torch: Any) -> None:
        self._graph_task = torch._C._current_graph_task_id
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        before, after = self._before(), self._after()
        self._before_code = before.__code__
        self.observer.step_begins, self.observer.step_ends = self._begins, after
        # They stay at detach, where they do nothing: torch may be going through its hooks then, for a failure
        # in one of them detaches, and a dict that changes meanwhile raises in the user's step.
        register_optimizer_step_pre_hook(before)
        register_optimizer_step_post_hook(after)
        self.hide_from_dynamo((before, after), "_begins", "_is_within_a_step", "_ended", "_look")

    def _before(self) -> Callable[..., None]:
        progress, words, slot = self.observer.progress, self.recorder.words, self._task.slot
        known, by_backward = self._known, id(THE_BACKWARD)

        def before(stepper: Any, _args: Any = None, _kwargs: Any = None) -> None:
            key = id(stepper)
            if not progress.steady or progress.usual_optimizer != key or progress.stepping:
                if progress.stepping != by_backward or key not in known:
                    self._begins(stepper, stepper)
                return
            try:
                progress.stepping = key
                progress.step_began_ns = words[slot] = now()
            except Exception as error:
                self.failed(error)

        return before

    def _after(self) -> Callable[..., None]:
        recorder, progress = self.recorder, self.observer.progress
        words, put = recorder.words, recorder.put
        slot, code, step_word, began_word = self._task.slot, self._task.code, STEP_WORD, STEP_WORD + 1

        def after(stepper: Any, _args: Any = None, _kwargs: Any = None) -> None:
            if progress.stepping != id(stepper):
                return
            progress.stepping = 0
            try:
                begin = progress.step_began_ns
                if begin and progress.steady and progress.forwards == progress.usual_forwards:
                    end = now()
                    words[slot] = 0
                    put((code, begin, end, ITERATION, progress.opened_ns or progress.ended_ns, end))
                    progress.forwards = 0
                    progress.opened_ns = progress.ended_ns = words[began_word] = end
                    recorder.step = words[step_word] = recorder.step + 1
                elif self.alive:
                    end = self._ended(id(stepper))
                else:
                    return
                if end >= progress.look_at:
                    self._look(end)
            except Exception as error:
                self.failed(error)

        return after

    def _begins(self, stepper: Any, optimizer: Any) -> None:
        """`stepper` begins to step `optimizer`, not as usual; the two are one where it is torch's own."""
        key, progress = id(stepper), self.observer.progress
        if not self.alive:
            return
        try:
            caller: FrameType | None = sys._getframe(1)
            if caller is not None and caller.f_code is self._before_code:
                caller = caller.f_back
            # One whose last step raised is still noted as stepping: it begins anew, and hinders no other.
            if progress.stepping not in (0, key) and self._is_within_a_step(caller):
                return
            if caller is not None:
                self._steppers.add(caller.f_code)
            progress.stepping, progress.step_began_ns, self._mark = key, 0, None
            # The words alone are left behind where the backward's hook has failed.
            if self._graph_task() >= 0 and any(self.recorder.words[slot] for slot in self._backward):
                progress.stepping, progress.steady, self.observer.never_steady = id(THE_BACKWARD), False, True
            if key not in self._known:
                self._known[key] = weakref.ref(stepper, lambda _: self._gone(key))
                self.observer.new_optimizer(optimizer)
            if self.observer.evaluating:
                self.observer.trains()
            self.observer.iterations.optimizer_begins(progress.stepping)
            if progress.stepping == key:
                self._mark = self.observer.stopwatch.begin(self._task)
        except Exception as error:
            self.failed(error)

    def _is_within_a_step(self, frame: FrameType | None) -> bool:
        """Whether what has this frame was called by a step. By code: locals that are looked at are kept."""
        while frame is not None and (frame := frame.f_back) is not None:
            if frame.f_code in self._steppers:
                return True
        return False

    def _ended(self, key: int) -> int:
        """A step that was not as usual ends now."""
        observer = self.observer
        observer.stopwatch.span(self._task, observer.progress.step_began_ns or self._mark)
        end = now()  # after the span, which is part of the iteration
        observer.iterations.optimizer_ended(key, end)
        observer.stepped = key
        for listener in observer.on_optimizer_step.copy():
            listener()
        observer.settle()
        return end

    def _look(self, end: int) -> None:
        self.observer.progress.look_at = end + _LOOK_NS
        self.observer.look(end)

    def _gone(self, key: int) -> None:
        """An optimizer was collected; another may get its id."""
        self._known.pop(key, None)
        self.observer.iterations.forget(key)
        if self.observer.progress.stepping == key:
            self.observer.progress.stepping = 0
