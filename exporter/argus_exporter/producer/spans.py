"""The recorder: takes spans and iterations from the hooks and sends them, at the end of an iteration.

Hooks run in any thread (autograd, garbage collection, a user's own), so they only append to a deque;
packing and sending happen at the end of an iteration, in whichever thread ends it, one at a time. Spans are
stamped with the monotonic clock and shifted to Unix time when they are packed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from argus_core import wire
from argus_core.link import Link

now: Final = time.perf_counter_ns
"""The clock of all spans: monotonic nanoseconds."""

_PENDING_LIMIT: Final = 8192
"""Spans that may wait to be sent; more are dropped and counted (0.7 MB)."""
_PENDING_FLUSH: Final = 512
"""Spans after which a flush does not wait for the end of the iteration."""
_SILENCE_NS: Final = 2_000_000_000
"""After so long a span does not wait either: long steps, and the first span, which opens the connection."""
_STATE_NS: Final = 5_000_000_000  # own cost and drops stay current within this
_PHASES_LIMIT: Final = 200  # below the exporter's limit of 256 series keys a rank
_SPAN_COST_NS: Final = 1_000
"""What a span costs outside flush: two clock reads, the guard and the append. Source: bench/overhead."""

_PACK_SPAN: Final = wire.Span.FORMAT.pack
_PACK_ITERATION: Final = wire.Iteration.FORMAT.pack


class Phase:
    """What a span is of. Ids are bound at the first flush; `group` may be empty: the exporter routes it."""

    __slots__ = ("group", "group_id", "kind", "name", "name_id", "source")

    def __init__(self, name: str, kind: wire.Kind, source: wire.Source, group: str) -> None:
        self.name = name
        self.kind = int(kind)
        self.source = int(source)
        self.group = group
        self.name_id = 0
        self.group_id = 0


class Recorder:
    """Records of one rank on their way to the exporter.

    Args:
        link: the connection; the recorder is its only user.
        warmup_iterations: activity is WARMUP until so many iterations have ended.
        flush_ms: iterations that end sooner after a flush wait for the next one: a flush costs as much as
            the hooks of a step.
        announce: called once, before the first record is sent: from here on this process trains.
        wall: Unix nanoseconds.
    """

    def __init__(
        self,
        link: Link,
        *,
        warmup_iterations: int = 0,
        flush_ms: int = 1000,
        announce: Callable[[], None] = lambda: None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._link = link
        self._warmup = warmup_iterations
        self._flush_ns = flush_ms * 1_000_000
        self._announce: Callable[[], None] | None = announce
        self._wall = wall
        self._pending: deque[tuple[Phase, int, int, int]] = deque()
        self._iterations: deque[tuple[int, int, int, float, float]] = deque()
        self._phases: dict[tuple[str, int, int, str], Phase] = {}
        self._work: dict[str, float] = {}
        self._lock = threading.Lock()
        self._flushed_at = 0
        self._state_at = 0
        self._state_changed = True
        self._reason = ""
        self._connects = 0
        self._said: set[str] = set()
        self._offset = wall() - now()
        self.alive = True
        """False after a fork (the child does not speak) and after close: every hook looks here first."""
        self.step = 1
        """Number of the iteration that is running."""
        self.total_seconds = 0.0
        self.total_squared = 0.0
        self.spans = 0
        self.dropped = 0
        self.cost_ns = 0
        """CPU time spent in flushes."""

    @property
    def training(self) -> bool:
        """Whether this process has shown that it trains: a span was sent, so it speaks for its rank."""
        return self._announce is None

    # -- any thread -----------------------------------------------------------------------------------------

    def phase(
        self, name: str, kind: wire.Kind, source: wire.Source = wire.Source.HOST, group: str = ""
    ) -> Phase | None:
        """The phase of that name, made at first use; None when there are too many to be names."""
        key = (name, kind, source, group)
        known = self._phases.get(key)
        if known is None and len(self._phases) < _PHASES_LIMIT:
            known = self._phases.setdefault(key, Phase(name, kind, source, group))
        return known

    def span(self, phase: Phase | None, start_ns: int, duration_ns: int, step: int | None = None) -> None:
        """One finished span, on the clock `now`."""
        if not self.alive:
            return
        pending = self._pending
        if phase is None or duration_ns < 0 or len(pending) >= _PENDING_LIMIT:
            self.dropped += 1
            return
        pending.append((phase, start_ns, duration_ns, self.step if step is None else step))
        if len(pending) >= _PENDING_FLUSH or now() - self._flushed_at >= _SILENCE_NS:
            self.flush()

    def ended(self, phase: Phase | None, start_ns: int) -> None:
        """A span that ends now: the hot path of `span`."""
        end_ns = now()
        pending = self._pending
        if (
            phase is None
            or len(pending) >= _PENDING_FLUSH
            or end_ns - self._flushed_at >= _SILENCE_NS
            or not self.alive
        ):
            self.span(phase, start_ns, end_ns - start_ns)
        else:
            pending.append((phase, start_ns, end_ns - start_ns, self.step))

    def iteration(self, start_ns: int, end_ns: int) -> None:
        """The running iteration has ended; the next one begins."""
        if not self.alive:
            return
        duration_ns = max(end_ns - start_ns, 0)
        seconds = duration_ns / 1e9
        self.total_seconds += seconds
        self.total_squared += seconds * seconds
        self._iterations.append((self.step, end_ns, duration_ns, self.total_seconds, self.total_squared))
        if self.step == self._warmup:
            self._state_changed = True
        self.step += 1
        if now() - self._flushed_at >= self._flush_ns or len(self._iterations) > _PENDING_FLUSH:
            self.flush()

    def work(self, unit: str, amount: float) -> None:
        """So many more tokens, samples or pixels were processed."""
        if self.alive:
            if unit not in self._work and len(self._work) >= _PHASES_LIMIT:
                self.dropped += 1
                return
            self._work[unit] = self._work.get(unit, 0.0) + amount

    def degraded(self, reason: str) -> None:
        """A part of the channel has failed: it counts as down. `reason` is a label: a few fixed words."""
        self._reason = reason
        self._state_changed = True

    def say(self, text: str) -> None:
        """One line on stderr, once."""
        if text not in self._said:
            self._said.add(text)
            with contextlib.suppress(Exception):  # stderr may be closed or None
                sys.stderr.write(f"argus: {text}\n")

    def flush(self) -> None:
        """Send what is there. Returns at once when another thread (or this one, further up) is sending."""
        if not self.alive or not self._lock.acquire(blocking=False):
            return
        try:
            self._send()
        finally:
            self._lock.release()

    def close(self, exit_status: int | None) -> None:
        """Send the rest and say BYE; a process that never trained never said HELLO and leaves silently."""
        if not self.alive:
            return
        self.flush()
        self.alive = False
        if self.training and self._lock.acquire(timeout=1.0):
            self._link.close(exit_status)

    def forked(self) -> None:
        """In a child of fork: fall silent, and let go of the parent's connection so that its end is seen."""
        self.alive = False
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._pending.clear()
        self._iterations.clear()
        self._link.abandon()

    # -- under the lock -------------------------------------------------------------------------------------

    def _send(self) -> None:
        pending, iterations, link = self._pending, self._iterations, self._link
        if not pending and not iterations:
            return
        began_ns = time.thread_time_ns()
        self._flushed_at = now()
        if self._announce is not None:
            self._announce()
            self._announce = None
        offset = self._offset = self._wall() - now()
        says_state = self._state_changed or self._flushed_at - self._state_at >= _STATE_NS
        if says_state:
            self._send_state()
        packed = []
        for _ in range(min(len(pending), _PENDING_LIMIT)):
            phase, start, duration, step = pending.popleft()
            if not phase.name_id:
                phase.name_id = link.name_id(phase.name)
                phase.group_id = link.name_id(phase.group) if phase.group else 0
            packed.append(
                _PACK_SPAN(
                    start + offset,
                    duration,
                    step,
                    phase.name_id,
                    phase.group_id,
                    phase.kind,
                    phase.source,
                    0,
                    0,
                )
            )
        self.spans += len(packed)
        for at in range(0, len(packed), _PENDING_FLUSH):
            link.add_packed(wire.MessageType.SPANS, b"".join(packed[at : at + _PENDING_FLUSH]))
        while iterations:
            step, end, duration, seconds, squared = iterations.popleft()
            link.add_packed(
                wire.MessageType.ITERATIONS,
                _PACK_ITERATION(step, end + offset, duration, step, seconds, squared),
            )
        for unit, total in self._work.items():
            link.add(wire.Work(total, link.name_id(unit)))
        link.flush()
        if link.connects != self._connects:
            self._connects = link.connects
            if not says_state:  # an exporter that has just started knows nothing of this rank
                self._send_state()
                link.flush()
        self.cost_ns += time.thread_time_ns() - began_ns

    def _send_state(self) -> None:
        """Activity and channel."""
        self._state_at, self._state_changed = self._flushed_at, False
        link = self._link
        activity = wire.Activity.WARMUP if self.step <= self._warmup else wire.Activity.TRAIN
        link.add(wire.ActivityChange(self._wall(), activity))
        up = self.alive and not self._reason
        link.add(
            wire.ChannelState(
                cpu_ns=self.cost_ns + self.spans * _SPAN_COST_NS,
                dropped=self.dropped,
                reason_id=0 if up else link.name_id(self._reason),
                channel=wire.Channel.PHASES,
                up=int(up),
            )
        )


def exit_status(last_exit: object) -> int:
    """Exit status of this interpreter, as far as it can be known while it ends.

    An uncaught exception is left in `sys.last_value` before atexit functions run; `last_exit` is the argument
    of the last `sys.exit`, or None.
    """
    uncaught = getattr(sys, "last_value", None)
    if isinstance(uncaught, KeyboardInterrupt):
        return 130
    if uncaught is not None:
        return 1
    if last_exit is None:
        return 0
    return last_exit & 0xFF if isinstance(last_exit, int) else 1
