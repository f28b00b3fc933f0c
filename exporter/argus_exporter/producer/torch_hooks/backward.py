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
from typing import Any

from argus_core import wire
from argus_exporter.producer.hook import Hook, Observer
from argus_exporter.producer.stopwatch import Mark


class BackwardHook(Hook):
    name = "backward"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self.backward = observer.stopwatch.task("backward", wire.Kind.COMPUTE)
        self.wait = observer.stopwatch.task("dp-allreduce", wire.Kind.COMM)
        self.wait_sharded = observer.stopwatch.task("dp-reduce-scatter", wire.Kind.COMM)

    def attach(self, torch: Any) -> None:
        autograd = torch.autograd
        original = autograd.backward
        queue_callback = autograd.Variable._execution_engine.queue_callback
        observer, stopwatch = self.observer, self.observer.stopwatch
        inside = False  # checkpointing runs a backward within the backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or not self.alive:
                return original(*args, **kwargs)
            inside = True
            begin = run = None
            try:
                if observer.reducers and observer.reduces_gradients():
                    run = _Run(self, args[0] if args else kwargs.get("tensors"), queue_callback, torch.Tensor)
                begin = stopwatch.mark()
                if run is not None:
                    run.begin = begin
            except Exception as error:
                self.failed(error)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                inside = False
                self._abandon(run, begin)
                raise
            inside = False
            try:
                if run is None or not run.end():
                    stopwatch.span(self.backward, begin)
            except Exception as error:
                self.failed(error)
            return result

        self.replace(autograd, "backward", backward)

    def _abandon(self, run: _Run | None, begin: Mark | None) -> None:
        """The user's backward raised."""
        try:
            if run is None:
                self.observer.stopwatch.discard(begin)
            else:
                run.abandon()
        except Exception as error:
            self.failed(error)


class _Run:
    """One backward pass that ends with a wait for peers."""

    __slots__ = ("_computed", "_handle", "_hook", "_queue_callback", "_wait", "begin")

    def __init__(self, hook: BackwardHook, tensor: Any, queue_callback: Any, tensor_type: Any) -> None:
        self._hook = hook
        self._queue_callback = queue_callback
        self._computed = False
        self._wait: Mark | None = None
        self._handle: Any = None
        self.begin: Mark | None = None
        if isinstance(tensor, tensor_type) and tensor.requires_grad:
            self._handle = tensor.register_hook(self._engine_started)

    def _engine_started(self, _gradient: Any) -> None:
        """The engine begins with the loss: be the first to queue a final callback."""
        try:
            self._queue_callback(self._gradients_computed)
        except Exception as error:
            self._hook.failed(error)

    def _gradients_computed(self) -> None:
        """All gradients are computed; the engine goes on to wait for their reduction."""
        try:
            if not self._computed:
                self._computed = True
                stopwatch = self._hook.observer.stopwatch
                stopwatch.span(self._hook.backward, self.begin)
                self._wait = stopwatch.mark()
        except Exception as error:
            self._hook.failed(error)

    def end(self) -> bool:
        """The call returned. False when the end of the computation was not seen: all of it is one span."""
        if self._handle is not None:
            self._handle.remove()
        if self._computed:
            hook = self._hook
            sharded = hook.observer.gradients_sharded
            hook.observer.stopwatch.span(hook.wait_sharded if sharded else hook.wait, self._wait)
        return self._computed

    def abandon(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._hook.observer.stopwatch.discard(self._wait if self._computed else self.begin)
