"""Wrapping a framework's function in a span: what the files of this folder share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

from argus_core import wire
from argus_training.hook import Hook
from argus_training.spans import now


def timed(
    hook: Hook,
    original: Callable[..., Any],
    phase: str,
    kind: wire.Kind,
    *,
    opens: bool = False,
    trains: bool = False,
    group: str = "",
    count: Callable[[tuple[Any, ...], Any], None] | None = None,
) -> Callable[..., Any]:
    """`original` with a span around each call; its result and exceptions are its own.

    Args:
        opens: the call may begin an iteration.
        trains: a forward pass that is certain to train; forwards of torch modules within are part of it.
        count: takes the arguments of each call, to count their work; else the model's call counts.
        group: process group whose sequence of collectives the call counts in.
    """
    observer = hook.observer
    stopwatch, progress = observer.stopwatch, observer.progress
    task = stopwatch.task(phase, kind)
    communicates = kind == wire.Kind.COMM

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not hook.alive or (trains and progress.forwarding):
            return original(*args, **kwargs)
        begin = None
        try:
            if group:
                hook.recorder.entered(group)
            if opens or trains:
                observer.iterations.opening(now(), trains=trains)
            if count is not None and progress.counts_work:
                count(args, kwargs)
            begin = stopwatch.begin(task)
        except Exception as error:
            hook.failed(error)
        if trains:
            progress.forwarding, progress.forwarded = True, count is None
        progress.communicating[get_ident()] += communicates
        try:
            result = original(*args, **kwargs)
        except BaseException:
            stopwatch.discard(task, begin)
            raise
        finally:
            progress.communicating[get_ident()] -= communicates
            if trains:
                progress.forwarding = progress.forwarded = False
        try:
            stopwatch.span(task, begin)
        except Exception as error:
            hook.failed(error)
        return result

    return call
