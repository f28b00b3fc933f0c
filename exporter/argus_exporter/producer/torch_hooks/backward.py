"""The backward pass: phase `backward` (compute), and the wait for gradients after it: `dp-allreduce` (comm).

Patched: `torch.autograd.backward`, which `Tensor.backward` calls. Under DDP and FSDP the gradients are
reduced while the backward still runs, and the engine's last act is to wait for that. So the call alone
would charge every rank for the slowest one. A final callback of the engine that is queued before theirs
sees the moment when the gradients are computed; what comes after is exposed communication. On a GPU the
engine has joined the compute streams by then, so events on the current stream see the same. (FSDP itself is
built on `queue_callback`.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from argus_core import wire
from argus_exporter.producer.hook import Hook, Observer
from argus_exporter.producer.stopwatch import Mark


class BackwardHook(Hook):
    name = "backward"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._stopwatch = observer.stopwatch
        self._compute = observer.stopwatch.task("backward", wire.Kind.COMPUTE)
        self._wait = observer.stopwatch.task("dp-allreduce", wire.Kind.COMM)
        self._wait_sharded = observer.stopwatch.task("dp-reduce-scatter", wire.Kind.COMM)
        self._queue_callback: Callable[[Callable[[], None]], None]
        # The state of the one backward that runs.
        self._running = False  # checkpointing runs a backward within the backward
        self._waits = False  # gradients are computed, their reduction is waited for
        self._begin: Mark | None = None

    def attach(self, torch: Any) -> None:
        autograd = torch.autograd
        original = autograd.backward
        self._queue_callback = autograd.Variable._execution_engine.queue_callback
        observer, tensor_type = self.observer, torch.Tensor
        engine_starts = self._engine_starts

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._running or not self.alive:
                return original(*args, **kwargs)
            self._running = True
            handle = None
            try:
                if observer.reducers and observer.reduces_gradients():
                    tensor = args[0] if args else kwargs.get("tensors")
                    if isinstance(tensor, tensor_type) and tensor.requires_grad:
                        handle = tensor.register_hook(engine_starts)
                self._waits = False
                self._begin = self._stopwatch.mark()
            except Exception as error:
                self.failed(error)
            completed = False
            try:
                result = original(*args, **kwargs)
                completed = True
                return result
            finally:
                self._running = False
                try:
                    if handle is not None:
                        handle.remove()
                    self._ends(completed)
                except Exception as error:
                    self.failed(error)

        self.replace(autograd, "backward", backward)

    def _ends(self, completed: bool) -> None:
        begin, self._begin = self._begin, None
        if not completed:
            self._stopwatch.discard(begin)
        elif not self._waits:
            self._stopwatch.span(self._compute, begin)
        else:
            self._stopwatch.span(self._wait_sharded if self.observer.gradients_sharded else self._wait, begin)

    def _engine_starts(self, _gradient: Any) -> None:
        """The engine begins with the loss: be the first to queue a final callback."""
        try:
            self._queue_callback(self._gradients_computed)
        except Exception as error:
            self.failed(error)

    def _gradients_computed(self) -> None:
        """All gradients are computed; the engine goes on to wait for their reduction."""
        try:
            if self._running and not self._waits:
                self._waits = True
                self._stopwatch.span(self._compute, self._begin)
                self._begin = self._stopwatch.mark()
        except Exception as error:
            self.failed(error)
