"""How work is timed: on the host clock, or with CUDA events where the model lives on a GPU.

The host returns from a GPU call before the GPU has done the work, so a span's ends are events that the GPU
passes by itself. They come from a bounded pool, are asked (never waited for) on the training thread at the
end of each iteration and where no event is free, one queue a stream so that a late one holds up no other, and
are not touched while a CUDA graph is captured: there an event would become a node of the graph, and a query
would break the capture (pytorch#104555, pytorch#148594). An event belongs to the device on which it was
recorded first, and each device has a pool of its own: a process may drive several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Final, NamedTuple, Protocol, Union

from argus_core import wire
from argus_core.shared_page import SPARE_WORD
from argus_training.recorder import Recorder
from argus_training.spans import Phase, Task, now
from argus_training.step_log import NO_CODE

_POLL_LIMIT: Final = 256  # spans read at one iteration's end; the rest waits for the next
_POLL_BETWEEN: Final = 8  # and within it, where no event is free: each is read in a few us
_LOOK_LIMIT: Final = 64  # spans of a stream that are looked at for where the GPU is
_MARK_HOLDS_NS: Final = 256_000_000_000
"""`elapsed_time` is a 32-bit float of milliseconds: at 256 s it goes in steps of 15 us."""


class Event(Protocol):
    """What is needed of `torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds."""
        ...


class EventMark(NamedTuple):
    """One end of a span on a GPU: the event that it passes, and when the host asked for it."""

    host_ns: int
    event: Event
    device: int


@dataclass(frozen=True)
class StepMark:
    """The end of a step on the stream where it was put: an event right behind a mark that CUPTI sees."""

    step: int
    event: Event
    device: int
    stream: int


Mark = Union[int, EventMark]
"""One end of a span; a plain int is host time."""


class _Running(NamedTuple):
    phase: Phase | None
    begin: EventMark
    end: EventMark
    step: int
    after: StepMark | None
    """The mark that lies before it on its stream."""


def _same_stream(_device: int) -> int:
    return 0


def _same_device() -> int:
    return 0


class Stopwatch:
    """Times spans on the host clock until `use_events` is called."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._make_event: Callable[[], Event] | None = None
        self._make_pool: Callable[[], EventPool] | None = None
        self._pools: dict[int, EventPool] = {}
        """By device."""
        self._capturing: Callable[[], bool] = lambda: False
        self._stream: Callable[[int], int] = _same_stream
        self._device: Callable[[], int] = _same_device
        self._put_mark: Callable[[int, int, int], bool] | None = None
        self._may_ask: Callable[[int], bool] = lambda _: False
        self._step_mark: StepMark | None = None
        """The latest."""
        self._running: dict[tuple[int, int], deque[_Running]] = {}
        """By device and stream."""
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
        stream: Callable[[int], int] = _same_stream,
        device: Callable[[], int] = _same_device,
        put_mark: Callable[[int, int, int], bool] | None = None,
        may_ask: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """From here on, time with events.

        Args:
            make: a new event.
            capacity: events in flight on one device; a span that finds none is dropped and counted.
            capturing: whether a CUDA graph is being captured.
            stream: handle of the current stream of a device.
            device: number of this thread's current device, on whose stream `record` goes.
            put_mark: marks the end of a step on a stream of a device; False: it cannot. None where nobody
                observes kernels: spans need no place among them.
            may_ask: makes a thread of ours fit to ask events of a device; False: it cannot.
        """
        self._make_event = make
        self._make_pool = lambda: EventPool(make, capacity)
        self._capturing = capturing
        self._stream = stream
        self._device = device
        self._put_mark = put_mark
        self._may_ask = may_ask
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
            if end is not None and end.device == begin.device:
                key = end.device, self._stream(end.device)
                running = self._running.setdefault(key, deque())
                after = self._step_mark
                if after is not None and (
                    after.step != recorder.step - 1 or key != (after.device, after.stream)
                ):
                    after = None
                running.append(_Running(task.on_gpu, begin, end, recorder.step, after))
                return
            self._give(begin)
            if end is not None:  # the program went over to another GPU: no clock spans both
                self._give(end)
                recorder.outbox.dropped += 1

    def discard(self, task: Task, begin: Mark | None) -> None:
        """The span that began at `begin` has no end to report."""
        self._recorder.words[task.slot] = 0
        if type(begin) is EventMark:
            self._give(begin)

    def step_ended(self) -> None:
        """The step that is running ends here, on the current stream. Training thread only."""
        self.poll()
        self._step_mark = None
        if self._make_event is None or self._put_mark is None or self._capturing():
            return
        device = self._device()
        stream, step = self._stream(device), self._recorder.step
        if not self._put_mark(step, device, stream):
            self._put_mark = None
            self._recorder.host.limited("step_marks")
            return
        event = self._make_event()
        event.record()
        self._step_mark = StepMark(step, event, device, stream)

    def poll(self, most: int = _POLL_LIMIT) -> int:
        """Send the spans whose last event the GPU has passed. Never waits. Training thread only."""
        if self._make_pool is None or self._capturing():
            return 0
        self._thread = get_ident()
        done = 0
        for (device, stream), running in self._running.items():
            clock = -1 - (stream << 8 | device)
            while running and done < most and running[0].end.event.query():
                phase, begin, end, step, after = running.popleft()
                nanoseconds = int(begin.event.elapsed_time(end.event) * 1e6)
                if phase is not None and after is not None:
                    after_ns = int(after.event.elapsed_time(begin.event) * 1e6)
                    if after_ns < _MARK_HOLDS_NS:
                        self._recorder.located(phase, step, after_ns, nanoseconds)
                # As the host asked for them spans of a stream lie within one another, and so on the GPU.
                self._recorder.measured(phase, begin.host_ns, end.host_ns, nanoseconds, step, clock)
                self._give(begin)
                self._give(end)
                done += 1
        return done

    def gpu_is_in(self) -> tuple[int, int] | None:
        """The innermost span that the GPU has begun and not ended: its word of the page, and its begin.

        Of several streams one that computes. For a thread of ours, while the one that trains stands still.
        Never waits, but holds the GIL while a wedged driver does not say whether an event has passed.

        Returns:
            None where it is in none of those that the host has ended, or where that is not known.
        """
        found: list[tuple[Phase, int]] = []
        if get_ident() == self._thread or self._capturing():
            return None
        for (device, _), running in list(self._running.items()):
            if not self._may_ask(device):
                return None
            # In the order in which they end: the first of those that it is in is the innermost.
            for phase, begin, end, _, _ in list(running)[:_LOOK_LIMIT]:
                if phase is not None and not end.event.query() and begin.event.query():
                    found.append((phase, begin.host_ns))
                    break
        found.sort(key=lambda one: one[0].kind != wire.Kind.COMPUTE)
        return (found[0][0].slot, found[0][1]) if found else None

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
        if self._make_pool is None or self._capturing():
            return None
        device = self._device()
        pool = self._pools.get(device)
        if pool is None:
            pool = self._pools[device] = self._make_pool()
        if not pool.free and get_ident() == self._thread:
            self.poll(_POLL_BETWEEN)
        event = pool.take()
        if event is None:
            self._recorder.outbox.dropped += 1
            return None
        event.record()
        return EventMark(now(), event, device)

    def _give(self, mark: EventMark) -> None:
        self._pools[mark.device].give(mark.event)


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
