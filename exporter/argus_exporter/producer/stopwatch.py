"""How work is timed: on the host clock, or with CUDA events where the model lives on a GPU.

The host returns from a GPU call before the GPU has done the work, so a span's ends are events that the GPU
passes by itself. They come from a bounded pool, are asked (never waited for) at the end of each iteration
on the training thread, and are not touched while a CUDA graph is captured: there an event would become a
node of the graph, and a query would break the capture (pytorch#104555, pytorch#148594).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from argus_core import wire
from argus_exporter.producer.spans import Recorder, now

_POLL_LIMIT: Final = 256  # spans read at one iteration's end; the rest waits for the next


class Event(Protocol):
    """What is needed of `torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds."""
        ...


class Mark(NamedTuple):
    """One end of a span: host time, and the event that the GPU passes, if there is one."""

    host_ns: int
    event: Event | None


class _Running(NamedTuple):
    name: str
    kind: wire.Kind
    group: str
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

    @property
    def on_events(self) -> bool:
        return self._pool is not None

    def use_events(self, make: Callable[[], Event], capacity: int, capturing: Callable[[], bool]) -> None:
        """From here on, time with events.

        Args:
            make: a new event.
            capacity: events in flight; a span that finds none is dropped and counted.
            capturing: whether a CUDA graph is being captured on the current stream.
        """
        self._pool = EventPool(make, capacity)
        self._capturing = capturing

    def mark(self) -> Mark | None:
        """One end of a span, now, on the current stream. None: no event is free, or a graph is captured."""
        pool = self._pool
        if pool is None:
            return Mark(now(), None)
        if self._capturing():
            return None
        event = pool.take()
        if event is None:
            self._recorder.dropped += 1
            return None
        event.record()
        return Mark(now(), event)

    def span(self, name: str, kind: wire.Kind, begin: Mark | None, group: str = "") -> None:
        """The span from `begin` to now. Takes `begin` over; no begin, no span."""
        recorder = self._recorder
        if begin is None:
            return
        if begin.event is None:  # host clock, also where a span began before events were in use
            phase = recorder.phase(name, kind, wire.Source.HOST, group)
            recorder.span(phase, begin.host_ns, now() - begin.host_ns)
            return
        end = self.mark()
        if end is None or end.event is None:
            self.discard(begin)
            return
        self._running.append(
            _Running(name, kind, group, begin.host_ns, begin.event, end.event, recorder.step)
        )

    def discard(self, mark: Mark | None) -> None:
        """Give back a mark that will have no span."""
        if mark is not None and mark.event is not None and self._pool is not None:
            self._pool.give(mark.event)

    def poll(self) -> int:
        """Send the spans whose last event the GPU has passed. Never waits. Training thread only."""
        if self._pool is None or self._capturing():
            return 0
        done = 0
        while self._running and done < _POLL_LIMIT and self._running[0].end.query():
            span = self._running.popleft()
            milliseconds = span.begin.elapsed_time(span.end)
            phase = self._recorder.phase(span.name, span.kind, wire.Source.EVENT, span.group)
            self._recorder.span(phase, span.host_ns, int(milliseconds * 1e6), span.step)
            self._pool.give(span.begin)
            self._pool.give(span.end)
            done += 1
        return done


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
