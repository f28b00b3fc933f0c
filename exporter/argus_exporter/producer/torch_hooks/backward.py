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
        self._wait_whole = self._wait = observer.stopwatch.task("dp-allreduce", wire.Kind.COMM)
        self._wait_sharded = observer.stopwatch.task("dp-reduce-scatter", wire.Kind.COMM)
        self._queue_callback: Callable[[Callable[[], None]], None]
        # The state of the one backward that runs.
        self._running = False
        self._nested = 0  # checkpointing runs a backward within the backward
        self._splits = False  # it ends with a wait for peers, whose begin is to be found
        self._waits = False  # gradients are computed, their reduction is waited for
        self._on_parameters = False
        self._begin: Mark | None = None

    def attach(self, torch: Any) -> None:
        autograd = torch.autograd
        original = autograd.backward
        self._queue_callback = autograd.Variable._execution_engine.queue_callback
        observer, tensor_type = self.observer, torch.Tensor
        observer.on_reducer.append(self._new_reducer)

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if not self.alive:
                return original(*args, **kwargs)
            if self._running:
                self._nested += 1
                try:
                    return original(*args, **kwargs)
                finally:
                    self._nested -= 1
            self._running = True
            handle = None
            try:
                self._waits = False
                reducers = observer.reducers
                if len(reducers) == 1:  # as nearly always; in the instance's own dict, see reduces_gradients
                    self._splits = reducers[0].__dict__.get("require_backward_grad_sync", True)
                else:
                    self._splits = observer.reduces_gradients()
                self._wait = self._wait_sharded if observer.gradients_sharded else self._wait_whole
                if self._splits and not self._on_parameters:
                    tensor = args[0] if args else kwargs.get("tensors")
                    if isinstance(tensor, tensor_type) and tensor.requires_grad:
                        handle = tensor.register_hook(self._gradients_begin)
                self._begin = self._stopwatch.begin(self._compute)
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
                    begin, self._begin = self._begin, None
                    over = self._stopwatch.span if completed else self._stopwatch.discard
                    over(self._wait if self._waits else self._compute, begin)
                except Exception as error:
                    self.failed(error)

        self.replace(autograd, "backward", backward)

    def _new_reducer(self, module: Any) -> None:
        """Under DDP one parameter's hook is enough, and cheaper than one on every loss (4 us against 9).

        The last parameter that has a gradient: used by every step, first in the backward. DDP's own callback
        is queued after the last gradient. Hooks of parameters are neither pickled nor copied with them.
        """
        if self.observer.gradients_sharded:
            return  # what the engine sees there are not the module's parameters
        with_gradient = [p for p in module.parameters() if p.requires_grad and p.grad is not None]
        if with_gradient:
            self.remove_at_detach(with_gradient[-1].register_hook(self._gradients_begin))
            self._on_parameters = True

    def _gradients_begin(self, _gradient: Any) -> None:
        """The engine is at work: queue a final callback before DDP or FSDP do."""
        try:
            # A callback that is queued in a nested backward would run at its end.
            if self._splits and self._running and not self._nested:
                self._splits = False
                self._queue_callback(self._gradients_computed)
        except Exception as error:
            self.failed(error)

    def _gradients_computed(self) -> None:
        """All gradients are computed; the engine goes on to wait for their reduction."""
        try:
            if self._running and not self._waits:
                self._waits = True
                self._stopwatch.span(self._compute, self._begin)
                self.recorder.entered("dp")
                self._begin = self._stopwatch.begin(self._wait)
        except Exception as error:
            self.failed(error)
