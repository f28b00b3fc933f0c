"""Processes that play batches side by side, and end with whoever started them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
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
    """Play in a process of `players`. Once it was stopped it takes no other batch: some are handed out ahead."""
    try:
        return play(*args, **options)
    except (Terminated, KeyboardInterrupt):
        os._exit(1)  # an executor's process keeps exceptions of any kind, and goes on


def _raise_signals() -> None:
    StopSignals().raise_them()
