"""What runs inside a training process: standard library, the wire, and torch if it is there.

A training script needs none of this: `argus-exporter run -- COMMAND` attaches by itself. A script that
wants to say more may:

    from argus_training import iteration, span, work

    with span("tokenise"):          # a phase of its own
        ...

    @span("attention", kind="compute")
    def attention(q, k, v): ...

    work("tokens", batch.numel())   # what was done, to compare ranks whose input differs

    with iteration():               # where no torch optimizer shows it
        ...

Without ARGUS all of it does nothing, nor does it within what torch.compile compiles. Importing this imports
nothing but a little of the standard library.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from typing import ParamSpec

    from argus_training.hook import Observer

    P = ParamSpec("P")

__all__ = ["boot_directory", "iteration", "span", "work"]

R = TypeVar("R")

_KINDS = ("compute", "comm", "host")
_observer: Observer | None = None


def _never() -> bool:
    return False


_compiles: Callable[[], bool] = _never
"""`torch.compiler.is_compiling`, once attached. Asked first: to dynamo a constant, and it sees no more."""


def boot_directory() -> Path:
    """Folder that makes a Python process attach when it leads PYTHONPATH."""
    return Path(__file__).resolve().parent / "boot"


class _Timed(abc.ABC):
    """Base of the context managers that are decorators too; one may be entered again, also within itself."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[Callable[[], None]] = []

    @abc.abstractmethod
    def _begin(self, observer: Observer) -> Callable[[], None]:
        """Begin one; what ends it."""

    @abc.abstractmethod
    def _another(self) -> _Timed:
        """The same, for one call of the decorated function."""

    def __enter__(self) -> None:
        end: Callable[[], None] = _nothing
        try:
            if not _compiles() and _observer is not None and _observer.public.alive:
                _observer.steps_seen = True
                end = self._begin(_observer)
        except Exception as failure:
            _failed(failure)
        self._open.append(end)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._open.pop()()
        except Exception as failure:
            _failed(failure)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: each call is one."""

        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._another():
                return function(*args, **kwargs)

        return timed


class span(_Timed):  # noqa: N801  (read as a word of the language: `with span("tokenise"):`)
    """Time a phase of your own. On a GPU, `compute` and `comm` are timed there, on the current stream.

    Names must come from a small fixed set: each is a series of its own, and from the 200th on they are
    dropped and counted.

    Raises:
        ValueError: `kind` is not one of the three.
    """

    __slots__ = ("_kind", "_name")

    def __init__(self, name: str, kind: Literal["compute", "comm", "host"] = "host") -> None:
        if kind not in _KINDS:
            raise ValueError(f"kind is {kind!r}; allowed: {', '.join(_KINDS)}")
        super().__init__()
        self._name = name
        self._kind: Literal["compute", "comm", "host"] = kind

    def _begin(self, observer: Observer) -> Callable[[], None]:
        from argus_core.wire import Kind

        recorder, stopwatch = observer.recorder, observer.stopwatch
        observer.user_phases.add(self._name)
        if self._kind == "host":  # the host's clock, also where the model is on a GPU
            phase = recorder.phase(self._name, Kind.HOST)
            return functools.partial(recorder.ended, phase, recorder.begin(phase))
        task = stopwatch.task(self._name, Kind[self._kind.upper()])
        return functools.partial(stopwatch.span, task, stopwatch.begin(task))

    def _another(self) -> span:
        return span(self._name, self._kind)


class iteration(_Timed):  # noqa: N801
    """Mark one iteration yourself, where no torch optimizer shows it.

    From the first use on, only marked iterations count.
    """

    __slots__ = ()

    def _begin(self, observer: Observer) -> Callable[[], None]:
        observer.iterations.manual = True
        return functools.partial(_mark, observer, time.monotonic_ns())

    def _another(self) -> iteration:
        return iteration()


def work(unit: str, amount: float) -> None:
    """Count work done (tokens, samples, pixels): makes ranks with uneven input comparable.

    Sent with the next iteration as a running total. `unit` must come from a small fixed set. Without a call
    tokens and samples are counted from the shapes of the model's inputs; from the first call on only what is
    told counts.
    """
    try:
        if not _compiles() and _observer is not None and _observer.public.alive:
            _observer.progress.counts_work = False
            _observer.recorder.work(unit, float(amount))
    except Exception as failure:
        _failed(failure)


def _failed(failure: Exception) -> None:
    """Counted like every failure of ours; a third one switches these functions off."""
    with contextlib.suppress(Exception):
        if _observer is not None:
            _observer.public.failed(failure)


def _mark(observer: Observer, start_ns: int) -> None:
    observer.iterations.mark(start_ns, time.monotonic_ns())


def _nothing() -> None:
    pass
