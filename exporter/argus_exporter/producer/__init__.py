"""What runs inside a training process: standard library, the wire, and torch if it is there.

A training script needs none of this: `argus-exporter run -- COMMAND` attaches by itself. A script that
wants to say more may:

    from argus_exporter import producer

    with producer.span("tokenise", kind="host"):
        ...
    producer.work("tokens", batch.numel())

Without ARGUS all of it does nothing. Importing this imports nothing but a little of the standard library.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from argus_exporter.producer.hook import Observer

__all__ = ["boot_directory", "iteration", "span", "work"]

_observer: Observer | None = None


def boot_directory() -> Path:
    """Folder that makes a Python process attach when it leads PYTHONPATH."""
    return Path(__file__).resolve().parent / "boot"


@contextlib.contextmanager
def span(name: str, kind: Literal["compute", "comm", "host"] = "host") -> Iterator[None]:
    """Time a phase of your own. On a GPU, `compute` and `comm` are timed there, on the current stream.

    Names must come from a small fixed set: each is a series of its own.

    Raises:
        ValueError: `kind` is not one of the three.
    """
    if kind not in ("compute", "comm", "host"):
        raise ValueError(f"kind is {kind!r}; allowed: compute, comm, host")
    finish = _begin(name, kind)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            finish()


@contextlib.contextmanager
def iteration() -> Iterator[None]:
    """Mark one iteration yourself, where no torch optimizer shows it.

    From the first use on, only marked iterations count.
    """
    observer = _observer
    if observer is None:
        yield
        return
    start_ns = time.perf_counter_ns()
    observer.iterations.manual = True
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            observer.iterations.mark(start_ns, time.perf_counter_ns())


def work(unit: str, amount: float) -> None:
    """Count work done (tokens, samples, pixels): makes ranks with uneven input comparable."""
    if _observer is not None:
        _observer.recorder.work(unit, amount)


def _begin(name: str, kind: str) -> Callable[[], None]:
    """Start a span; the result ends it."""
    observer = _observer
    if observer is None:
        return _nothing
    try:
        from argus_core.wire import Kind

        stopwatch = observer.stopwatch
        task = stopwatch.task(name, Kind[kind.upper()])
        begin = time.perf_counter_ns() if kind == "host" else stopwatch.mark()
        return lambda: stopwatch.span(task, begin)
    except Exception:
        return _nothing


def _nothing() -> None:
    pass
