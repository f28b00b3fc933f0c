"""How work is timed: on the host clock, or with CUDA events where the model lives on a GPU.

The host returns from a GPU call before the GPU has done the work, so a span's ends are events that the GPU
passes by itself. They come from a bounded pool, are asked (never waited for) on the training thread at the
end of each iteration and where no event is free, one queue a stream so that a late one holds up no other, and
are not touched while a CUDA graph is captured: there an event would become a node of the graph, and a query
would break the capture (pytorch#104555, pytorch#148594).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, NamedTuple, Protocol

from argus_core import wire
from argus_core.shared_page import SPARE_WORD
from argus_training.recorder import Recorder
from argus_training.spans import Phase, Task, now
from argus_training.step_log import NO_CODE

_POLL_LIMIT: Final = 256  # spans read at one iteration's end; the rest waits for the next
_POLL_BETWEEN: Final = 8  # and within it, where no event is free: each is read in a few us


class Event(Protocol):
    """What is needed of `torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds."""
        ...


class EventMark(NamedTuple):
    """One end of a span on the GPU: the event that it passes, and when the host asked for it."""

    host_ns: int
    event: Event


Mark = int | EventMark
"""One end of a span; a plain int is host time."""


class _Running(NamedTuple):
    phase: Phase | None
    begin: EventMark
    end: EventMark
    step: int


def _same_stream() -> int:
    return 0


class Stopwatch:
    """Times spans on the host clock until `use_events` is called."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pool: EventPool | None = None
        self._capturing: Callable[[], bool] = lambda: False
        self._stream: Callable[[], int] = _same_stream
        self._running: dict[int, deque[_Running]] = {}
        self._thread = 0
        """The one that trains: it asked at the end of the last iteration."""
        self.on_events = False
        self.begin: Callable[[Task], Mark | None] = self._begin_on_host
        """A span begins now, on the current stream. None: no event is free, or a graph is captured."""
        self.span: Callable[[Task, Mark | None], None] = recorder.timed
        """The span from `begin` to now. Takes `begin` over; no begin, no span."""

    def use_events(
        self,
        make: Callable[[], Event],
        capacity: int,
        capturing: Callable[[], bool],
        stream: Callable[[], int] = _same_stream,
    ) -> None:
        """From here on, time with events.

        Args:
            make: a new event.
            capacity: events in flight; a span that finds none is dropped and counted.
            capturing: whether a CUDA graph is being captured.
            stream: handle of the current stream.
        """
        self._pool = EventPool(make, capacity)
        self._capturing = capturing
        self._stream = stream
        self.begin = self._begin_event
        self.span = self._span
        self.on_events = True

    def task(self, name: str, kind: wire.Kind, group: str = "") -> Task:
        """What `span` is to time; hooks keep theirs."""
        phase = self._recorder.phase
        on_host = phase(name, kind, wire.Source.HOST, group)
        on_gpu = phase(name, kind, wire.Source.EVENT, group)
        if on_host is None:
            return Task(on_host, on_gpu, SPARE_WORD, NO_CODE)
        return Task(on_host, on_gpu, on_host.slot, on_host.code)

    def _span(self, task: Task, begin: Mark | None) -> None:
        if type(begin) is int:  # also where a span began before events were in use
            self._recorder.timed(task, begin)
            return
        recorder = self._recorder
        recorder.words[task.slot] = 0
        if type(begin) is EventMark:
            end = self._mark()
            if end is not None:
                running = self._running.setdefault(self._stream(), deque())
                running.append(_Running(task.on_gpu, begin, end, recorder.step))
            elif self._pool is not None:
                self._pool.give(begin.event)

    def discard(self, task: Task, begin: Mark | None) -> None:
        """The span that began at `begin` has no end to report."""
        self._recorder.words[task.slot] = 0
        if type(begin) is EventMark and self._pool is not None:
            self._pool.give(begin.event)

    def poll(self, most: int = _POLL_LIMIT) -> int:
        """Send the spans whose last event the GPU has passed. Never waits. Training thread only."""
        if self._pool is None or self._capturing():
            return 0
        self._thread = get_ident()
        done = 0
        for stream, running in self._running.items():
            while running and done < most and running[0].end.event.query():
                phase, begin, end, step = running.popleft()
                nanoseconds = int(begin.event.elapsed_time(end.event) * 1e6)
                # As the host asked for them spans of a stream lie within one another, and so on the GPU.
                self._recorder.measured(phase, begin.host_ns, end.host_ns, nanoseconds, step, -1 - stream)
                self._pool.give(begin.event)
                self._pool.give(end.event)
                done += 1
        return done

    def _begin_on_host(self, task: Task) -> Mark | None:
        start_ns = now()
        self._recorder.words[task.slot] = start_ns
        return start_ns

    def _begin_event(self, task: Task) -> Mark | None:
        mark = self._mark()
        # Where the host stands is known also while the GPU's time is not.
        self._recorder.words[task.slot] = now() if mark is None else mark.host_ns
        return mark

    def _mark(self) -> EventMark | None:
        if self._pool is None or self._capturing():
            return None
        if not self._pool.free and get_ident() == self._thread:
            self.poll(_POLL_BETWEEN)
        event = self._pool.take()
        if event is None:
            self._recorder.outbox.dropped += 1
            return None
        event.record()
        return EventMark(now(), event)


class EventPool:
    """Events for reuse, never more than `capacity` in all: creating one costs ten times its use."""

    def __init__(self, make: Callable[[], Event], capacity: int) -> None:
        self._make = make
        self._capacity = capacity
        self.free: list[Event] = []
        self.made = 0

    def take(self) -> Event | None:
        if self.free:
            return self.free.pop()
        if self.made >= self._capacity:
            return None
        self.made += 1
        return self._make()

    def give(self, event: Event) -> None:
        self.free.append(event)
