"""Processes that play batches side by side, and end with whoever started them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ParamSpec, TypeVar

from argus_simulator.stack.signals import StopSignals, Terminated

_P = ParamSpec("_P")
_T = TypeVar("_T")


@contextlib.contextmanager
def players(count: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """So many processes; on SIGTERM, Ctrl-C or an error they end at once, each with its Prometheus.

    What they play goes through `until_stopped`.
    """
    signals = StopSignals()
    signals.raise_them()
    try:
        with concurrent.futures.ProcessPoolExecutor(
            count, multiprocessing.get_context("spawn"), initializer=_raise_signals
        ) as pool:
            try:
                yield pool
            except BaseException:
                # They would play their batches to the end, which takes minutes.
                for worker in multiprocessing.active_children():
                    worker.terminate()
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        signals.restore()


def until_stopped(play: Callable[_P, _T], /, *args: _P.args, **options: _P.kwargs) -> _T:
    """Play in a process of `players`, which takes no other batch once it was stopped."""
    try:
        return play(*args, **options)
    except (Terminated, KeyboardInterrupt):
        os._exit(1)  # an executor's process keeps exceptions of any kind, and goes on with what it was handed


def _raise_signals() -> None:
    """The first alone: an executor of which one process has ended tells the others again, as they stop."""
    signals = StopSignals()

    def stop(number: int, _: FrameType | None) -> None:
        signals.put_off()
        raise Terminated(128 + number)

    signal.signal(signal.SIGTERM, stop)
