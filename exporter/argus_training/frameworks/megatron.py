"""Megatron-LM: its schedules, its timers' names, its training step, its process groups.

Counted: tokens that the router has sent to this rank's experts, as the unit `routed_tokens`.

Patched: `train_step` of the training loop (one call is one iteration), `forward_step` and `custom_backward`
of the pipeline schedules, and what `Timers.__call__` hands out, for the names below. Megatron's timers
themselves stay as they are configured: switched on, they synchronise the GPU. `initialize_model_parallel`
tells the layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from argus_core import wire
from argus_training.frameworks.timing import timed
from argus_training.hook import Hook
from argus_training.spans import Task, now
from argus_training.stopwatch import Mark

_POINT_TO_POINT: Final = (
    "forward-recv",
    "forward-send",
    "backward-recv",
    "backward-send",
    "forward-send-backward-recv",
    "backward-send-forward-recv",
    "forward-send-forward-recv",
    "backward-send-backward-recv",
    "forward-backward-send-forward-backward-recv",
)
EXPERTS: Final = ("GroupedMLP", "TEGroupedMLP", "SequentialMLP", "InferenceGroupedMLP")
"""Classes of the experts of a rank: each version has some."""
TIMERS: Final = {
    "batch-generator": ("data", wire.Kind.HOST),
    "all-grads-sync": ("dp-grads-sync", wire.Kind.COMM),
    "params-all-gather": ("dp-params-all-gather", wire.Kind.COMM),
    "embedding-grads-all-reduce": ("pp-embedding-grads-allreduce", wire.Kind.COMM),
    "non-tensor-parallel-grads-all-reduce": ("tp-grads-allreduce", wire.Kind.COMM),
    "layernorm-grads-all-reduce": ("tp-grads-allreduce", wire.Kind.COMM),  # the same until 0.12
    "conditional-embedder-grads-all-reduce": ("pp-embedder-grads-allreduce", wire.Kind.COMM),
    **{name: (f"pp-{name}", wire.Kind.COMM) for name in _POINT_TO_POINT},
}


class MegatronHook(Hook):
    name = "megatron"

    def attach(self, torch: Any) -> None:
        self._tasks: dict[str, Task] = {}
        self._open: dict[str, Mark | None] = {}
        self._communicating = self.observer.progress.communicating
        self._graph_task: Callable[[], int] = torch._C._current_graph_task_id
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self.when_imported("megatron.core.parallel_state", self._attach_groups)
        self.when_imported("megatron.core.transformer.moe.experts", self._attach_experts)
        self.when_imported("megatron.core.pipeline_parallel.schedules", self._attach_schedules)
        self.when_imported("megatron.core.timers", self._attach_timers)
        self.when_imported("megatron.training.training", self._attach_training)

    def _attach_groups(self, state: Any) -> None:
        original = state.initialize_model_parallel

        @functools.wraps(original)
        def initialize_model_parallel(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            try:
                if self.alive:
                    self.observer.topology_changed()
            except Exception as error:
                self.failed(error)
            return result

        self.replace(state, "initialize_model_parallel", initialize_model_parallel)

    def _attach_experts(self, experts: Any) -> None:
        for name in EXPERTS:
            class_ = getattr(experts, name, None)
            if class_ is not None and "forward" in vars(class_):
                self.replace(class_, "forward", self._counted(class_.forward))

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The tokens of each first pass: they lie side by side in the first argument."""

        is_compiling = self._is_compiling

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            try:
                recomputes = self._graph_task() >= 0
                if self.alive and self.observer.progress.counts_work and args[0].training and not recomputes:
                    hidden = args[1] if len(args) > 1 else next(iter(kwargs.values()))
                    self.recorder.work("routed_tokens", hidden.shape[0])
            except Exception as error:
                self.failed(error)
            return original(*args, **kwargs)

        return forward

    def _attach_schedules(self, schedules: Any) -> None:
        forward = timed(self, schedules.forward_step, "forward", wire.Kind.COMPUTE, trains=True)
        self.replace(schedules, "forward_step", forward)
        backward = timed(self, schedules.custom_backward, "backward", wire.Kind.COMPUTE)
        self.replace(schedules, "custom_backward", backward)

    def _attach_training(self, training: Any) -> None:
        original = training.train_step
        iterations = self.observer.iterations

        @functools.wraps(original)
        def train_step(*args: Any, **kwargs: Any) -> Any:
            if not self.alive:
                return original(*args, **kwargs)
            begin_ns = now()
            iterations.manual = True
            result = original(*args, **kwargs)
            try:
                iterations.mark(begin_ns, now())
            except Exception as error:
                self.failed(error)
            return result

        self.replace(training, "train_step", train_step)

    def _attach_timers(self, timers: Any) -> None:
        original = timers.Timers.__call__

        @functools.wraps(original)
        def call(self_: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            timer = original(self_, name, *args, **kwargs)
            return _Timer(timer, name, self) if self.alive and name in TIMERS else timer

        self.replace(timers.Timers, "__call__", call)

    def begin(self, name: str) -> None:
        """A timer of that name starts."""
        try:
            task = self._tasks.get(name)
            if task is None:
                task = self._tasks[name] = self.observer.stopwatch.task(*TIMERS[name])
            runs = name in self._open
            self._open[name] = self.observer.stopwatch.begin(task)
            self._communicating[get_ident()] += TIMERS[name][1] == wire.Kind.COMM and not runs
        except Exception as error:
            self.failed(error)

    def end(self, name: str) -> None:
        """A timer of that name stops."""
        try:
            if name not in self._open:
                return
            begin = self._open.pop(name)
            self._communicating[get_ident()] -= TIMERS[name][1] == wire.Kind.COMM
            if begin is not None and self.alive:
                self.observer.stopwatch.span(self._tasks[name], begin)
        except Exception as error:
            self.failed(error)


class _Timer:
    """A timer of Megatron's that tells us when it starts and stops; all else is its own."""

    __slots__ = ("_hook", "_name", "_timer")

    def __init__(self, timer: Any, name: str, hook: MegatronHook) -> None:
        self._timer = timer
        self._name = name
        self._hook = hook

    def start(self, *args: Any, **kwargs: Any) -> Any:
        self._hook.begin(self._name)
        return self._timer.start(*args, **kwargs)

    def stop(self, *args: Any, **kwargs: Any) -> Any:
        result = self._timer.stop(*args, **kwargs)
        self._hook.end(self._name)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timer, name)
