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
from argus_exporter.producer.spans import now
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
        self._splits = False  # if it ends with a wait for peers, its begin is still to be found
        self._waits = False  # gradients are computed, their reduction is waited for
        self._on_parameters = False
        self._begin: Mark | None = None
        self._gradients_computed = self._split()

    def attach(self, torch: Any) -> None:
        autograd = torch.autograd
        original = autograd.backward
        self._queue_callback = autograd.Variable._execution_engine.queue_callback
        observer, tensor_type = self.observer, torch.Tensor
        recorder, stopwatch = self.recorder, self._stopwatch
        words, waiting = recorder.words, recorder.waiting
        put = waiting.append
        compute = self._compute
        slot = compute.slot
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
                self._waits, self._splits = False, True
                if observer.reducers and not self._on_parameters and observer.reduces_gradients():
                    tensor = args[0] if args else kwargs.get("tensors")
                    if isinstance(tensor, tensor_type) and tensor.requires_grad:
                        handle = tensor.register_hook(self._gradients_begin)
                if stopwatch.on_events:
                    self._begin = stopwatch.begin(compute)
                else:
                    self._begin = words[slot] = now()
            except Exception as error:
                self.failed(error)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._broken(handle)
                raise
            self._running = False
            try:
                if handle is not None:
                    handle.remove()
                task, begin = self._wait if self._waits else compute, self._begin
                if type(begin) is not int:
                    self._begin = None
                    stopwatch.span(task, begin)
                elif recorder.alive:  # no child of fork that comes out of here
                    end = now()
                    words[task.slot] = 0
                    if len(waiting) < recorder.room:
                        put((task.on_host, begin, end - begin, recorder.step))
                    else:
                        recorder.span(task.on_host, begin, end - begin)
            except Exception as error:
                self.failed(error)
            return result

        self.replace(autograd, "backward", backward)

    def _broken(self, handle: Any) -> None:
        """The backward raised."""
        self._running = False
        try:
            if handle is not None:
                handle.remove()
            begin, self._begin = self._begin, None
            self._stopwatch.discard(self._wait if self._waits else self._compute, begin)
        except Exception as error:
            self.failed(error)

    def _split(self) -> Callable[[], None]:
        """The final callback: all gradients are computed; the engine goes on to wait for their reduction."""
        recorder, stopwatch, compute = self.recorder, self._stopwatch, self._compute
        words, waiting = recorder.words, recorder.waiting
        put, slot, phase = waiting.append, compute.slot, compute.on_host
        sequence = recorder.collectives("dp")

        def gradients_computed() -> None:
            try:
                if not self._running or self._waits or not recorder.alive:
                    return
                self._waits = True
                begin = self._begin
                at = words[sequence + 1] = now()
                words[sequence] += 1
                wait = self._wait
                if type(begin) is not int:
                    stopwatch.span(compute, begin)
                    self._begin = stopwatch.begin(wait)
                    return
                self._begin = words[wait.slot] = at
                words[slot] = 0
                if len(waiting) < recorder.room:
                    put((phase, begin, at - begin, recorder.step))
                else:
                    recorder.span(phase, begin, at - begin)
            except Exception as error:
                self.failed(error)

        return gradients_computed

    def _new_reducer(self, module: Any) -> None:
        """Under DDP one parameter's hook is enough, and cheaper than one on every loss (4 us against 9).

        The last parameter that has a gradient: used by every step, first in the backward. DDP's own callback
        is queued after the last gradient. Hooks of parameters are neither pickled nor copied with them.
        """
        self._wait = self._wait_sharded if self.observer.gradients_sharded else self._wait_whole
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
            if not self._splits or not self._running or self._nested:
                return
            self._splits = False
            reducers = self.observer.reducers
            if len(reducers) == 1:  # as nearly always; in the instance's own dict, see reduces_gradients
                waits = reducers[0].__dict__.get("require_backward_grad_sync", True)
            else:
                waits = self.observer.reduces_gradients()
            if waits:
                self._queue_callback(self._gradients_computed)
        except Exception as error:
            self.failed(error)
