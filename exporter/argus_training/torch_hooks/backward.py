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
from argus_training.hook import Hook, Observer
from argus_training.spans import now
from argus_training.step_progress import THE_BACKWARD
from argus_training.stopwatch import Mark


class BackwardHook(Hook):
    name = "backward"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._stopwatch = observer.stopwatch
        task = observer.stopwatch.task
        self._compute = task("backward", wire.Kind.COMPUTE)
        self._wait_whole = self._wait = task("dp-allreduce", wire.Kind.COMM)
        self._wait_sharded = task("dp-reduce-scatter", wire.Kind.COMM)
        self._tensor_type: Any = type(None)
        self._gradients_begin: Callable[[Any], None]
        # The state of the one backward that runs, if that is not as usual.
        self._mark: Mark | None = None
        self._waits = False  # gradients are computed, their reduction is waited for
        self._handle: Any = None

    def attach(self, torch: Any) -> None:
        autograd = torch.autograd
        original = autograd.backward
        queue_callback = autograd.Variable._execution_engine.queue_callback
        recorder, progress, wait = self.recorder, self.observer.progress, self._wait_whole
        reducers = self.observer.reducers
        words, put = recorder.words, recorder.put
        slot, code, wait_slot, wait_code = self._compute.slot, self._compute.code, wait.slot, wait.code
        sequence = recorder.collectives("dp")
        entered = sequence + 1
        # The state of the one backward that runs.
        running = False
        splits = False  # it ends with a wait for peers, and its begin is still to be found
        begin = 0  # of a usual one
        computed_ns = 0  # its gradients are computed, their reduction is waited for

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal running, splits, begin, computed_ns
            if running:
                return within(*args, **kwargs)
            running = True
            splits = False
            begin = computed_ns = 0
            try:
                try:
                    if progress.steady:
                        for reducer in reducers:  # reduces_gradients, without a call; here all are DDP
                            module = reducer()
                            if module is not None and module.require_backward_grad_sync:
                                splits = True
                                break
                        begin = words[slot] = now()
                    elif self.alive:
                        splits = self._begins(args[0] if args else kwargs.get("tensors"))
                except Exception as error:
                    self.failed(error)
                result = original(*args, **kwargs)
            except BaseException:
                running = False
                self._broken(begin, computed_ns)
                raise
            running = False
            try:
                if splits:
                    self._not_split()
                if not begin or not progress.steady:
                    self._ended(begin, computed_ns)
                elif computed_ns:
                    words[wait_slot] = 0
                    put((code, begin, computed_ns, wait_code, computed_ns, now()))
                else:
                    words[slot] = 0
                    put((code, begin, now()))
            except Exception as error:
                self.failed(error)
            return result

        def within(*args: Any, **kwargs: Any) -> Any:
            """Checkpointing runs a backward within the backward; a callback queued there runs at its end."""
            nonlocal splits
            outer, splits = splits, False
            try:
                return original(*args, **kwargs)
            finally:
                splits = outer

        def gradients_begin(_gradient: Any) -> None:
            """The engine is at work: queue a final callback before DDP or FSDP do."""
            nonlocal splits
            if splits:
                splits = False
                try:
                    queue_callback(gradients_computed)
                except Exception as error:
                    self.failed(error)

        def gradients_computed() -> None:
            """The final callback: the engine goes on to wait for their reduction."""
            nonlocal computed_ns
            try:
                if not begin:
                    self._computed()
                elif progress.steady:
                    computed_ns = words[entered] = words[wait_slot] = now()
                    words[sequence] += 1
                    words[slot] = 0
            except Exception as error:
                self.failed(error)

        # A parameter that goes to another process goes without its hooks: of others than this torch warns.
        gradients_begin.__torch_unserializable__ = True  # type: ignore[attr-defined]
        self._gradients_begin, self._tensor_type = gradients_begin, torch.Tensor
        self.observer.on_reducer.append(self._new_reducer)
        self.replace(autograd, "backward", backward)
        entries = (backward, gradients_begin, gradients_computed)
        self.hide_from_dynamo(entries, "_begins", "_computed", "_ended", "_broken", "_not_split")

    def _begins(self, tensor: Any) -> bool:
        """One that is not as usual, or not known to be. Whether it ends with a wait for peers."""
        observer = self.observer
        self._waits, self._mark = False, None
        if not observer.progress.opened_ns:  # a forward that nobody saw: there is no optimizer yet
            observer.iterations.opening(now())
        splits = observer.reduces_gradients()
        if splits and observer.splits_by_loss and isinstance(tensor, self._tensor_type):
            self._handle = tensor.register_hook(self._gradients_begin) if tensor.requires_grad else None
        self._mark = self._stopwatch.begin(self._compute)
        return splits

    def _computed(self) -> None:
        """Its gradients are computed."""
        if self.recorder.alive:
            self._waits = True
            self.recorder.entered("dp")
            self._stopwatch.span(self._compute, self._mark)
            self._mark = self._stopwatch.begin(self._wait)

    def _ended(self, begin: int, computed_ns: int) -> None:
        """One that was not as usual, or is not any more."""
        mark, handle = self._mark, self._handle
        self._mark = self._handle = None
        if handle is not None:
            handle.remove()
        if not self.recorder.alive:
            return  # a child of fork that comes out of here
        if computed_ns:
            self.recorder.span(self._compute.on_host, begin, computed_ns)
            self._stopwatch.span(self._wait_whole, computed_ns)
        elif begin:
            self._stopwatch.span(self._compute, begin)
        else:
            self._stopwatch.span(self._wait if self._waits else self._compute, mark)
        if self.observer.progress.stepping == id(THE_BACKWARD):
            self.observer.step_ends(THE_BACKWARD)
        elif self.observer.iterations.awaits_step:
            self.observer.backward_ended()

    def _broken(self, begin: int, computed_ns: int) -> None:
        """The backward raised."""
        try:
            mark, handle = self._mark, self._handle
            self._mark = self._handle = None
            if handle is not None:
                handle.remove()
            if self.observer.progress.stepping == id(THE_BACKWARD):
                self.observer.progress.stepping = 0
            waited = computed_ns if begin else self._waits
            self._stopwatch.discard(self._wait if waited else self._compute, mark)
        except Exception as error:
            self.failed(error)

    def _not_split(self) -> None:
        """No parameter tells the end of every backward (other heads, checkpointing): the loss does."""
        self.observer.splits_by_loss = True
        self.observer.progress.steady = False

    def _new_reducer(self, module: Any) -> None:
        """Under DDP one parameter's hook is enough, and cheaper than one on every loss (4 us against 9).

        The last parameter that has a gradient: used by every step, first in the backward. DDP's own callback
        is queued after the last gradient. Hooks of parameters are neither pickled nor copied with them.
        """
        observer = self.observer
        self._wait = self._wait_sharded if observer.gradients_sharded else self._wait_whole
        # What the engine sees of sharded gradients are not the module's parameters.
        with_gradient = [
            parameter
            for parameter in (() if observer.gradients_sharded else module.parameters())
            if parameter.requires_grad and parameter.grad is not None
        ]
        if with_gradient:
            self.remove_at_detach(with_gradient[-1].register_hook(self._gradients_begin))
        else:
            self._not_split()
