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
from argus_exporter.producer.hook import Hook
from argus_exporter.producer.stopwatch import Mark


class BackwardHook(Hook):
    name = "backward"

    def attach(self, torch: Any) -> None:
        from torch.autograd import Variable

        autograd = torch.autograd
        original = autograd.backward
        engine = Variable._execution_engine
        queue_callback = engine.queue_callback
        tensor_type = torch.Tensor
        inside = False  # checkpointing runs a backward within the backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or not self.alive:
                return original(*args, **kwargs)
            inside = True
            run = self._begins(args, kwargs, tensor_type, queue_callback)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                inside = False
                self._ends(run, completed=False)
                raise
            inside = False
            self._ends(run, completed=True)
            return result

        self.replace(autograd, "backward", backward)

    def _begins(self, args: Any, kwargs: Any, tensor_type: Any, queue_callback: Any) -> _Run | None:
        try:
            run = _Run(self, queue_callback)
            tensor = args[0] if args else kwargs.get("tensors")
            if (
                self.observer.synchronises_gradients()
                and isinstance(tensor, tensor_type)
                and tensor.requires_grad
            ):
                run.handle = tensor.register_hook(run.engine_started)
            run.begin = self.observer.stopwatch.mark()
            return run
        except Exception as error:
            self.failed(error)
            return None

    def _ends(self, run: _Run | None, *, completed: bool) -> None:
        if run is None:
            return
        try:
            if run.handle is not None:
                run.handle.remove()
            stopwatch = self.observer.stopwatch
            if not completed:
                stopwatch.discard(run.begin)
                stopwatch.discard(run.wait)
            elif run.computed:
                stopwatch.span(self.observer.gradient_phase, wire.Kind.COMM, run.wait)
            else:
                stopwatch.span("backward", wire.Kind.COMPUTE, run.begin)
        except Exception as error:
            self.failed(error)


class _Run:
    """One backward pass."""

    __slots__ = ("_hook", "_queue_callback", "begin", "computed", "handle", "wait")

    def __init__(self, hook: BackwardHook, queue_callback: Any) -> None:
        self._hook = hook
        self._queue_callback = queue_callback
        self.begin: Mark | None = None
        self.wait: Mark | None = None
        self.handle: Any = None
        self.computed = False

    def engine_started(self, _gradient: Any) -> None:
        """The engine begins with the loss: be the first to queue a final callback."""
        try:
            self._queue_callback(self.gradients_computed)
        except Exception as error:
            self._hook.failed(error)

    def gradients_computed(self) -> None:
        """All gradients are computed; the engine goes on to wait for their reduction."""
        try:
            if not self.computed:
                self.computed = True
                stopwatch = self._hook.observer.stopwatch
                stopwatch.span("backward", wire.Kind.COMPUTE, self.begin)
                self.wait = stopwatch.mark()
        except Exception as error:
            self._hook.failed(error)
