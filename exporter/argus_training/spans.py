"""The recorder: takes spans and iterations from the hooks and sends them, about once a second.

Hooks run in any thread (autograd, garbage collection, a user's own), so they only append to a deque;
packing, sums and sending are the work of a thread of their own (`sender.py`), of whichever thread ends an
iteration where that cannot be had, one at a time. Spans are
stamped with the monotonic clock and shifted to Unix time when they are packed. What has begun and not ended
stands in the shared page meanwhile (argus_core.shared_page): two plain stores a span.

What runs in every step (fetch, forward, backward, optimizer) has its span written out in its hook for as
long as all goes as usual (course.py): after a step's work the interpreter's bytecodes cost some 10 ns each,
and a call of our own dozens of them.

    begin = words[slot] = now()
    ...
    words[slot] = 0
    put((code, begin, now()))  # step_log.py

Otherwise, and everywhere else, `begin` and `ended` do it, or a stopwatch.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from argus_core import shared_page, wire
from argus_core.link import Link
from argus_core.shared_page import SPARE_WORD, STEP_WORD, PageWriter
from argus_training.activity import Activities
from argus_training.pauses import Pauses
from argus_training.sender import Sender
from argus_training.step_log import ITERATION, StepLog

now: Final = time.monotonic_ns
"""The clock of all spans and of the shared page: CLOCK_MONOTONIC, nanoseconds."""

_PENDING_LIMIT: Final = 8192
"""Spans that may wait to be sent; more are dropped and counted (0.7 MB)."""
_PENDING_FLUSH: Final = 512
"""Spans after which a flush does not wait for its time; also how many one packet holds at most."""
_PENDING_HURRY: Final = 4096
"""The same for the sender, which may need some ms until it has the GIL."""
_LOG_HURRY: Final = 3072
"""The same for the log of the hooks of a step, which is looked at some times a second: 770 steps."""
_LOG_LIMIT: Final = 16_384
"""Length of that log from which hooks take the general way, which drops what is too much (4 MB)."""
_FOREVER_NS: Final = 1 << 62
_SENDER_SHORTEST_NS: Final = 10_000_000  # a thread that asks for the GIL more often would be felt
_CLOSE_LIMIT_S: Final = 1.0
_SILENCE_NS: Final = 2_000_000_000
"""After so long a span does not wait either: long steps, and the first span, which opens the connection."""
_STATE_NS: Final = 5_000_000_000  # own cost, drops and small pauses stay current within this
_PHASES_LIMIT: Final = 200  # below the exporter's limit of 256 series keys a rank
_COMPILERS_LIMIT: Final = 8
_GENERATIONS: Final = 3
_CHANGES_LIMIT: Final = 64
_LONG_PAUSE_NS: Final = 1_000_000  # a collection worth a word at once; short ones wait for the next state
_SPAN_COST_NS: Final = 3_000
"""What a span costs outside flush: a fifth of what the hooks of a step cost. Source: docs/overhead.md."""

# A span record in two halves: what differs, and what each span of a phase repeats.
_PACK_TIMES: Final = struct.Struct("<QQQ").pack
_PACK_PHASE: Final = struct.Struct("<IIBBHI").pack
_PACK_ITERATION: Final = wire.Iteration.FORMAT.pack
_SPANS: Final = int(wire.MessageType.SPANS)
_ITERATIONS: Final = int(wire.MessageType.ITERATIONS)
assert _PACK_TIMES(0, 0, 0) + _PACK_PHASE(0, 0, 0, 0, 0, 0) == bytes(wire.Span.FORMAT.size)


class Phase:
    """What a span is of. `group` may be empty: the exporter routes it."""

    __slots__ = ("code", "group", "kind", "name", "packed", "slot", "source")

    def __init__(
        self, code: int, name: str, kind: wire.Kind, source: wire.Source, group: str, slot: int
    ) -> None:
        self.code = code
        """Its number in the step log."""
        self.name = name
        self.kind = int(kind)
        self.source = int(source)
        self.group = group
        self.slot = slot
        """Word of the shared page that holds the start of the open span."""
        self.packed = b""
        """The half of a span record that does not change; made at the first flush."""


class Task(NamedTuple):
    """What a stopwatch times: the same phase with either clock as its source."""

    on_host: Phase | None
    on_gpu: Phase | None
    slot: int
    """Word of the shared page that is the start of the open span."""
    code: int
    """Number in the step log, on the host's clock."""


class Recorder:
    """Records of one rank on their way to the exporter.

    Args:
        link: the connection; the recorder is its only user.
        page: the shared page that the link hands over; None where there is none.
        warmup_iterations: activity is WARMUP until so many iterations have ended.
        flush_ms: iterations that end sooner after a flush wait for the next one: a flush costs as much as
            the hooks of a step.
        background: send on a thread of our own once this process trains; else at the ends of iterations.
        facts: said with every state, such as what the job trains.
        announce: called once, before the first record is sent: from here on this process trains.
        wall: Unix nanoseconds.
    """

    def __init__(
        self,
        link: Link,
        *,
        page: PageWriter | None = None,
        warmup_iterations: int = 0,
        flush_ms: int = 1000,
        background: bool = False,
        announce: Callable[[], None] = lambda: None,
        facts: Sequence[wire.Record] = (),
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._link = link
        self._facts = facts
        self._page = page
        self.words: memoryview | array[int] = page.words if page is not None else _no_page()
        """The shared page as 8-byte words, for plain stores. A fork swaps it: read anew, or ask `alive`."""
        self._warmup = warmup_iterations
        self._flush_ns = flush_ms * 1_000_000
        self._announce: Callable[[], None] | None = announce
        self._wall = wall
        self.waiting: deque[tuple[Phase | None, int, int, int]] = deque()
        """Finished spans to be sent: phase (None: one too many), start, duration, step."""
        self._log = StepLog()
        self.put = self._log.put
        """Finished spans and iterations, (phase.code, begin, end) each; without any check or limit."""
        self._log_step = 1
        """Number of the iteration that the next entry of the log belongs to."""
        self._codes = itertools.count(ITERATION + 1)
        self._coded: dict[int, Phase] = {}
        self._phases: dict[tuple[str, int, int, str], Phase] = {}
        self._group_slots: dict[str, int] = {}
        self._work: dict[str, float] = {}
        self._collections = [Pauses() for _ in range(_GENERATIONS)]
        self._compilations: dict[str, Pauses] = {}
        self._activities = Activities()
        self._changes: deque[tuple[int, wire.Activity]] = deque(maxlen=_CHANGES_LIMIT)
        """(when, what) since the last flush: one that the sender was too busy for is told all the same."""
        self._lock = threading.Lock()
        self._background = background
        self._sender: Sender | None = None
        self._room = 0
        """So many spans may wait before a look at the time. 0: each looks, nobody sends beside us."""
        self._due_at = _PENDING_FLUSH
        self._flushed_at = 0
        self._silent_until = 0
        self._state_at = 0
        self._state_changed = True
        self._reason = ""
        self._connects = 0
        self._said: set[str] = set()
        self.may_speak: Callable[[], bool] = lambda: True
        """Asked until it says yes: whether this process speaks for a rank at all."""
        self.alive = True
        """False after a fork (the child does not speak) and after close: every hook looks here first."""
        self.step = 1
        """Number of the iteration that is running."""
        self._total_seconds = 0.0
        self._total_squared = 0.0
        self.spans = 0
        self.dropped = 0
        self.cost_ns = 0
        """CPU time spent in flushes."""
        self.words[STEP_WORD] = self.step
        self.words[STEP_WORD + 1] = now()

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
            slot = self._page.phase(name, kind) if self._page is not None else None
            slot = SPARE_WORD if slot is None else slot
            made = Phase(next(self._codes), name, kind, source, group, slot)
            self._coded[made.code] = made
            known = self._phases.setdefault(key, made)
        return known

    def begin(self, phase: Phase | None) -> int:
        """A span begins: it is open in the shared page until `ended` or `broken`. Its start."""
        start_ns = now()
        if phase is not None:
            self.words[phase.slot] = start_ns
        return start_ns

    def broken(self, phase: Phase | None) -> None:
        """A span that began has no end to report."""
        if phase is not None:
            self.words[phase.slot] = 0

    def span(self, phase: Phase | None, start_ns: int, duration_ns: int, step: int | None = None) -> None:
        """One finished span, on the clock `now`."""
        if not self.alive:
            return
        waiting = self.waiting
        if phase is None or duration_ns < 0 or len(waiting) >= _PENDING_LIMIT:
            self.dropped += 1
            return
        waiting.append((phase, start_ns, duration_ns, self.step if step is None else step))
        if len(waiting) >= self._room and (len(waiting) >= self._due_at or now() >= self._silent_until):
            self._due()

    def ended(self, phase: Phase | None, start_ns: int) -> None:
        """A span that ends now."""
        duration_ns = now() - start_ns
        if phase is not None:
            self.words[phase.slot] = 0
        self.span(phase, start_ns, duration_ns)

    def timed(self, task: Task, begin: object) -> None:
        """`ended` for a task on the host clock, in one call; no begin (None), no span."""
        if type(begin) is not int:
            return
        duration_ns = now() - begin
        self.words[task.slot] = 0
        self.span(task.on_host, begin, duration_ns)

    def iteration(self, start_ns: int, end_ns: int) -> None:
        """The running iteration has ended; the next one begins."""
        if not self.alive:
            return
        step, words = self.step, self.words
        self.put((ITERATION, start_ns, end_ns))
        if step == self._warmup:
            self._state_changed = True
        self.step = words[STEP_WORD] = step + 1
        words[STEP_WORD + 1] = end_ns
        if self._sender is None:
            if now() - self._flushed_at >= self._flush_ns or len(self._log) >= _LOG_HURRY:
                self.flush()
        else:
            self.look()

    def look(self) -> None:
        """Hurry the sender where much is in the log."""
        if self._sender is not None and len(self._log) >= _LOG_HURRY:
            self._sender.hurry()

    @property
    def keeps_up(self) -> bool:
        """Whether hooks may `put` without a look at anything: warm-up is over, and what they put is sent."""
        return self._sender is not None and self.step > self._warmup and len(self._log) < _LOG_LIMIT

    def collectives(self, group: str) -> int:
        """Word of the shared page that counts the collectives of a process group; the next: when entered."""
        slot = self._group_slots.get(group)
        if slot is None:
            slot = self._page.group(group) if self._page is not None else None
            slot = self._group_slots[group] = SPARE_WORD if slot is None else slot
        return slot

    def entered(self, group: str) -> None:
        """The rank enters the next collective of a process group."""
        if self.alive:
            slot, words = self.collectives(group), self.words
            words[slot + 1] = now()
            words[slot] += 1

    def collection(self, generation: int, start_ns: int, duration_ns: int) -> None:
        """A garbage collection has ended."""
        if self.alive:
            self._collections[min(generation, _GENERATIONS - 1)].add(start_ns, duration_ns)

    def compilation(self, compiler: str, start_ns: int, duration_ns: int) -> None:
        """A JIT compilation on the host has ended."""
        if self.alive and (compiler in self._compilations or len(self._compilations) < _COMPILERS_LIMIT):
            self._compilations.setdefault(compiler, Pauses()).add(start_ns, duration_ns)

    def enter(self, activity: wire.Activity, *, urgent: bool = False) -> None:
        """The rank does something else than train. `urgent`: said at once, nothing may end for minutes."""
        if self._activities.enter(activity):
            self._activity_changed()
            if self.training and (urgent or now() - self._flushed_at >= self._flush_ns):
                self.flush()

    def leave(self, activity: wire.Activity) -> None:
        """Back from what `enter` said; told with the next flush."""
        if self._activities.leave(activity):
            self._activity_changed()

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

    def introduce_again(self) -> None:
        """What HELLO tells has changed: the next flush says it on a new connection."""
        if self.alive and self._lock.acquire(blocking=False):
            try:
                self._link.renew()
            finally:
                self._lock.release()

    def flush(self) -> None:
        """Send what is there. Returns at once when another thread (or this one, further up) is sending."""
        if not self.alive or not self._lock.acquire(blocking=False):
            return
        try:
            self._send()
        finally:
            self._lock.release()

    def flush_if_due(self) -> None:
        """Between iterations, when none may end for long."""
        if now() - self._flushed_at >= self._flush_ns:
            self.flush()

    def close(self, exit_status: int | None) -> None:
        """Send the rest and say BYE; a process that never trained never said HELLO and leaves silently."""
        if not self.alive:
            return
        if self._sender is not None:
            self._sender.stop(_CLOSE_LIMIT_S)
        self._state_changed = True
        if not self._lock.acquire(timeout=_CLOSE_LIMIT_S):
            self.alive = False
            return
        self._send()
        self.alive = False
        if self.training:  # the lock is kept: nobody sends any more
            self._link.close(exit_status)

    def forked(self) -> None:
        """In a child of fork: fall silent, and let go of the parent's connection and page."""
        self.alive = False
        self._sender = None
        self.words = _no_page()  # the page is the parent's: a store of ours would lie about it
        self._page = None
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self.waiting.clear()
        self._log.clear()
        self._link.abandon()

    def _activity_changed(self) -> None:
        self._changes.append((now(), self._activities.current(warm=self.step > self._warmup)))
        self._state_changed = True

    def _due(self) -> None:
        """Much waits, or for long: by the sender where there is one."""
        if self._sender is not None:
            self._sender.hurry()
        else:
            self.flush()

    def _flush_guarded(self) -> None:
        """For the sender: a failure of ours ends the channel, not with a traceback."""
        try:
            self.flush()
        except Exception as error:
            self.degraded("sender")
            self.say(f"records are not sent: {error!r}")

    def _start_sender(self) -> None:
        try:
            self._sender = Sender(self._flush_guarded, max(self._flush_ns, _SENDER_SHORTEST_NS) / 1e9)
        except RuntimeError as error:
            self.say(f"no thread for sending, the training thread sends: {error}")
        else:
            self._silent_until = _FOREVER_NS
            self._due_at = self._room = _PENDING_HURRY

    # -- under the lock -------------------------------------------------------------------------------------

    def _send(self) -> None:
        waiting, log, link = self.waiting, self._log, self._link
        if self._announce is not None and not self._introduce():
            return
        says_state = self._state_changed or now() - self._state_at >= _STATE_NS
        if not waiting and not log and not self._state_changed:
            return
        began_ns = time.thread_time_ns()
        flushed_at = self._flushed_at = now()
        if self._sender is None:
            self._silent_until = flushed_at + _SILENCE_NS
        offset = self._wall() - flushed_at
        if says_state:
            self._send_state(offset)
        self._send_pauses(offset, every=says_state)
        packed = self._pack_log(offset)
        for _ in range(len(waiting)):
            phase, start, duration, step = waiting.popleft()
            if phase is None:
                self.dropped += 1
                continue
            packed.append(_PACK_TIMES(start + offset, duration, step) + (phase.packed or self._bind(phase)))
        self.spans += len(packed)
        for at in range(0, len(packed), _PENDING_FLUSH):
            link.add_packed(_SPANS, b"".join(packed[at : at + _PENDING_FLUSH]))
        for unit, total in list(self._work.items()):  # another thread may add one
            link.add(wire.Work(total, link.name_id(unit)))
        link.flush()
        if link.connects != self._connects:
            self._connects = link.connects
            if not says_state:  # an exporter that has just started knows nothing of this rank
                self._send_state(offset)
                self._send_pauses(offset, every=True)
                link.flush()
        self.cost_ns += time.thread_time_ns() - began_ns

    def _pack_log(self, offset: int) -> list[bytes]:
        """Queue the iterations of the step log; the packed spans of it."""
        coded, packed = self._coded, []
        for code, begin, end in self._log.take(_LOG_LIMIT):
            if code == ITERATION:
                self._queue_iteration(begin, end, offset)
                continue
            phase = coded.get(code)
            if phase is None or not 0 < begin <= end:  # its begin has failed
                self.dropped += 1
                continue
            times = _PACK_TIMES(begin + offset, end - begin, self._log_step)
            packed.append(times + (phase.packed or self._bind(phase)))
        return packed

    def _queue_iteration(self, start_ns: int, end_ns: int, offset: int) -> None:
        step, duration = self._log_step, max(end_ns - start_ns, 0)
        self._log_step = step + 1
        self._total_seconds += duration / 1e9
        self._total_squared += (duration / 1e9) ** 2
        totals = step, self._total_seconds, self._total_squared
        self._link.add_packed(_ITERATIONS, _PACK_ITERATION(step, end_ns + offset, duration, *totals))

    def _introduce(self) -> bool:
        """Whether this process speaks for a rank; what it recorded without may not pile up."""
        waiting = self.waiting
        if not waiting and not self._log:
            return False
        if self._announce is not None:
            if not self.may_speak():
                while len(waiting) >= _PENDING_FLUSH:
                    waiting.popleft()
                while len(self._log) >= _LOG_HURRY:  # iterations alone: no hook is on its short way yet
                    self._log_step += sum(1 for _ in self._log.take(_LOG_HURRY))
                self._silent_until = now() + _SILENCE_NS
                return False
            self._announce()
            self._announce = None
            if self._background:
                self._start_sender()
        return True

    def _bind(self, phase: Phase) -> bytes:
        link = self._link
        group_id = link.name_id(phase.group) if phase.group else 0
        phase.packed = _PACK_PHASE(link.name_id(phase.name), group_id, phase.kind, phase.source, 0, 0)
        return phase.packed

    def _send_pauses(self, offset: int, *, every: bool) -> None:
        """Collections and compilations since the last time; short collections with the state only."""
        link = self._link
        for generation, pauses in enumerate(self._collections):
            if pauses.unsent and (every or pauses.latest_ns >= _LONG_PAUSE_NS):
                pauses.unsent = False
                start = pauses.start_ns + offset
                link.add(
                    wire.GarbageCollection(start, pauses.latest_ns, pauses.count, pauses.seconds, generation)
                )
        for compiler, pauses in list(self._compilations.items()):
            if pauses.unsent:
                pauses.unsent = False
                start, id_ = pauses.start_ns + offset, link.name_id(compiler)
                link.add(wire.Compilation(start, pauses.latest_ns, pauses.count, pauses.seconds, id_))

    def _send_state(self, offset: int) -> None:
        """Activity, channel and what the job is."""
        self._state_at, self._state_changed = self._flushed_at, False
        link = self._link
        while self._changes:
            at_ns, what = self._changes.popleft()
            link.add(wire.ActivityChange(at_ns + offset, what))
        for fact in self._facts:
            link.add(fact)
        activity = self._activities.current(warm=self.step > self._warmup)
        link.add(wire.ActivityChange(self._flushed_at + offset, activity))
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


def _no_page() -> array[int]:
    """Memory of our own to store into, where there is no shared page."""
    return array("Q", bytes(shared_page.SIZE))
