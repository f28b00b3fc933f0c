"""Saving a checkpoint: the activity `checkpoint` while it lasts, and the open span of the shared page.

Patched: `torch.save` to a file and `torch.distributed.checkpoint.save`, in the main thread only (one that
saves in the background does not hold training up). No span is reported: ranks save different amounts, some
none, and the difference accuses nobody.
"""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Callable
from typing import Any

from argus_core import wire
from argus_training.hook import Hook


class CheckpointHook(Hook):
    name = "checkpoint"

    def attach(self, torch: Any) -> None:
        wrapper = saving(self, torch.serialization.save, _into_memory)
        self.replace(torch.serialization, "save", wrapper)
        self.replace(torch, "save", wrapper)
        self.when_imported("torch.distributed.checkpoint", self._attach_distributed)

    def _attach_distributed(self, checkpoint: Any) -> None:
        from torch.distributed.checkpoint import state_dict_saver

        wrapper = saving(self, state_dict_saver.save)
        self.replace(state_dict_saver, "save", wrapper)
        self.replace(checkpoint, "save", wrapper)


def saving(
    hook: Hook, original: Callable[..., Any], leave_out: Callable[..., bool] = lambda *_, **__: False
) -> Callable[..., Any]:
    """`original`, whose calls in the main thread are checkpoints; `leave_out` is asked with the arguments."""
    recorder = hook.recorder
    phase = recorder.phase("checkpoint", wire.Kind.HOST)

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        entered = False
        try:
            if (
                hook.alive
                and threading.current_thread() is threading.main_thread()
                and not leave_out(*args, **kwargs)
            ):
                recorder.begin(phase)
                entered = True
                recorder.enter(wire.Activity.CHECKPOINT, urgent=True)
        except Exception as error:
            hook.failed(error)
        try:
            return original(*args, **kwargs)
        finally:
            if entered:
                try:
                    recorder.leave(wire.Activity.CHECKPOINT)
                    recorder.broken(phase)
                    hook.observer.iterations.paused()
                except Exception as error:
                    hook.failed(error)

    hook.hide_from_dynamo((save,))
    return save


def _into_memory(*args: Any, **kwargs: Any) -> bool:
    """Whether `torch.save` was asked to pickle into a buffer: a copy, a message, no checkpoint."""
    return isinstance(args[1] if len(args) > 1 else kwargs.get("f"), io.BytesIO)
