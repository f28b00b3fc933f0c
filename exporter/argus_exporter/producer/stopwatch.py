"""How work is timed: on the host clock, or with CUDA events where the model lives on a GPU.

The host returns from a GPU call before the GPU has done the work, so a span's ends are events that the GPU
passes by itself. They come from a bounded pool, are asked (never waited for) at the end of each iteration on
the training thread, and are not touched while a CUDA graph is captured: there an event would become a node of
the graph, and a query would break the capture (pytorch#104555, pytorch#148594).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from argus_core import wire
from argus_exporter.producer.spans import Phase, Recorder, now

_POLL_LIMIT: Final = 256  # spans read at one iteration's end; the rest waits for the next


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


class Task(NamedTuple):
    """What a stopwatch times: the same phase with either clock as its source."""

    on_host: Phase | None
    on_gpu: Phase | None


class _Running(NamedTuple):
    phase: Phase | None
    host_ns: int
    begin: Event
    end: Event
    step: int


class Stopwatch:
    """Times spans on the host clock until `use_events` is called."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pool: EventPool | None = None
        self._capturing: Callable[[], bool] = lambda: False
        self._running: deque[_Running] = deque()
        self.on_events = False
        self.mark: Callable[[], Mark | None] = now
        """One end of a span, now, on the current stream. None: no event is free, or a graph is captured."""

    def use_events(self, make: Callable[[], Event], capacity: int, capturing: Callable[[], bool]) -> None:
        """From here on, time with events.

        Args:
            make: a new event.
            capacity: events in flight; a span that finds none is dropped and counted.
            capturing: whether a CUDA graph is being captured on the current stream.
        """
        self._pool = EventPool(make, capacity)
        self._capturing = capturing
        self.mark = self._mark_event
        self.on_events = True

    def task(self, name: str, kind: wire.Kind, group: str = "") -> Task:
        """What `span` is to time; hooks keep theirs."""
        phase = self._recorder.phase
        return Task(
            phase(name, kind, wire.Source.HOST, group),
            phase(name, kind, wire.Source.EVENT, group),
        )

    def span(self, task: Task, begin: Mark | None) -> None:
        """The span from `begin` to now. Takes `begin` over; no begin, no span."""
        if type(begin) is int:  # also where a span began before events were in use
            self._recorder.ended(task.on_host, begin)
        elif type(begin) is EventMark:
            end = self.mark()
            if type(end) is EventMark:
                self._running.append(
                    _Running(task.on_gpu, begin.host_ns, begin.event, end.event, self._recorder.step)
                )
            else:
                self.discard(begin)

    def discard(self, mark: Mark | None) -> None:
        """Give back a mark that will have no span."""
        if type(mark) is EventMark and self._pool is not None:
            self._pool.give(mark.event)

    def poll(self) -> int:
        """Send the spans whose last event the GPU has passed. Never waits. Training thread only."""
        if self._pool is None or self._capturing():
            return 0
        done = 0
        while self._running and done < _POLL_LIMIT and self._running[0].end.query():
            span = self._running.popleft()
            milliseconds = span.begin.elapsed_time(span.end)
            self._recorder.span(span.phase, span.host_ns, int(milliseconds * 1e6), span.step)
            self._pool.give(span.begin)
            self._pool.give(span.end)
            done += 1
        return done

    def _mark_event(self) -> Mark | None:
        if self._pool is None or self._capturing():
            return None
        event = self._pool.take()
        if event is None:
            self._recorder.dropped += 1
            return None
        event.record()
        return EventMark(now(), event)


class EventPool:
    """Events for reuse, never more than `capacity` in all: creating one costs ten times its use."""

    def __init__(self, make: Callable[[], Event], capacity: int) -> None:
        self._make = make
        self._capacity = capacity
        self._free: list[Event] = []
        self.made = 0

    def take(self) -> Event | None:
        if self._free:
            return self._free.pop()
        if self.made >= self._capacity:
            return None
        self.made += 1
        return self._make()

    def give(self, event: Event) -> None:
        self._free.append(event)
