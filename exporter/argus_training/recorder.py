"""The recorder: takes spans and iterations from the hooks and sends them, about once a second.

Hooks run in any thread (autograd, garbage collection, a user's own), so they only append to a deque;
packing, sums and sending are the work of a thread of their own (`sender.py`), of whichever thread ends an
iteration where that cannot be had, one at a time. Spans are
stamped with the monotonic clock and shifted to Unix time when they are packed. What has begun and not ended
stands in the shared page meanwhile (argus_core.shared_page): two plain stores a span.

What runs in every step (fetch, forward, backward, optimizer) has its span written out in its hook for as
long as all goes as usual (step_progress.py): after a step's work the interpreter's bytecodes cost some 10 ns
each, and a call of our own dozens of them.

    begin = words[slot] = now()
    ...
    words[slot] = 0
    put((code, begin, now()))  # step_log.py

Otherwise, and everywhere else, `begin` and `ended` do it, or a stopwatch.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident

from argus_core import shared_page, wire
from argus_core.link import Link
from argus_core.shared_page import STEP_WORD, PageWriter, pack_recorded, recorded_word
from argus_training.flight_recorder import LastCollective
from argus_training.host_report import HostReport
from argus_training.outbox import PENDING_LIMIT, Outbox
from argus_training.spans import Phase, PhaseTable, Task, now
from argus_training.step_log import GPU_SPAN, ITERATION, TRAINING_CLOCK


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
        self.host = HostReport(facts)
        """Pauses, work, activity, and how the channel is."""
        self.host.warm = warmup_iterations < 1
        self._table = PhaseTable(page)
        self.phase = self._table.phase
        """The phase of a name, see `PhaseTable.phase`."""
        self.collectives = self._table.group
        """Word of the shared page that counts the collectives of a process group, see `PhaseTable.group`."""
        self.outbox = Outbox(
            link,
            self._table,
            self.host,
            flush_ns=flush_ms * 1_000_000,
            background=background,
            announce=announce,
            wall=wall,
        )
        self.put = self.outbox.log.put
        """Finished spans and iterations, (phase.code, begin, end) each; without any check or limit."""
        self.words: memoryview | array[int] = page.words if page is not None else _no_page()
        """The shared page as 8-byte words, for plain stores. A fork swaps it: read anew, or ask `alive`."""
        self.keep_dump: Callable[[int, int, Mapping[str, bytes]], bool] = (
            page.dump if page is not None else lambda *_: True
        )
        """Put dumps of the flight recorder behind the page, see `PageWriter.dump`."""
        self._warmup = warmup_iterations
        self.alive = True
        """False after a fork (the child does not speak) and after close: every hook looks here first."""
        self.step = 1
        """Number of the iteration that is running."""
        self.thread = 0
        """The one that trains: it ended an iteration. 0: none has ended."""
        self.words[STEP_WORD] = self.step
        self.words[STEP_WORD + 1] = now()

    @property
    def training(self) -> bool:
        """Whether this process has shown that it trains: a span was sent, so it speaks for its rank."""
        return self.outbox.training

    @property
    def keeps_up(self) -> bool:
        """Whether hooks may `put` without a look at anything: warm-up is over, and what they put is sent."""
        return self.step > self._warmup and self.outbox.keeps_up

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

    def span(self, phase: Phase | None, begin_ns: int, end_ns: int) -> None:
        """One finished span of this thread, on the clock `now`."""
        self.measured(phase, begin_ns, end_ns, end_ns - begin_ns, self.step, self._clock())

    def measured(
        self, phase: Phase | None, begin_ns: int, end_ns: int, measured_ns: int, step: int, clock: int
    ) -> None:
        """One finished span of any clock, see step_log.py.

        Args:
            begin_ns, end_ns: on the clock `now`; where it nests, as the host saw it.
            measured_ns: its duration.
        """
        if not self.alive:
            return
        outbox = self.outbox
        waiting = len(outbox.log)
        if phase is None or measured_ns < 0 or waiting >= PENDING_LIMIT:
            outbox.dropped += 1
            return
        self.put((phase, begin_ns, end_ns, measured_ns, step, clock))
        if waiting >= outbox.room and (waiting >= outbox.due_at or now() >= outbox.silent_until):
            outbox.due()

    def located(self, phase: Phase, step: int, after_ns: int, duration_ns: int) -> None:
        """Where a span lay on the GPU: so long after the mark that ended the step before."""
        outbox = self.outbox
        if self.alive and len(outbox.log) < PENDING_LIMIT and type(phase) is Phase:
            self.put((GPU_SPAN, phase, step, after_ns, duration_ns))

    def stopped(self, begin_ns: int, end_ns: int) -> None:
        """This thread did something else (compiled): no part of the span around it, and no span itself."""
        waiting = len(self.outbox.log)
        # Who only compiles speaks for no rank.
        if self.alive and waiting < PENDING_LIMIT and (waiting or self.training):
            self.put((None, begin_ns, end_ns, end_ns - begin_ns, self.step, self._clock()))

    def ended(self, phase: Phase | None, start_ns: int) -> None:
        """A span that ends now."""
        end_ns = now()
        if phase is not None:
            self.words[phase.slot] = 0
        self.span(phase, start_ns, end_ns)

    def timed(self, task: Task, begin: object) -> None:
        """`ended` for a task on the host clock, in one call; no begin (None), no span."""
        if type(begin) is not int:
            return
        end_ns = now()
        self.words[task.slot] = 0
        self.span(task.on_host, begin, end_ns)

    def _clock(self) -> int:
        """Of this thread."""
        thread = get_ident()
        return TRAINING_CLOCK if thread == self.thread or not self.thread else thread

    def iteration(self, start_ns: int, end_ns: int) -> None:
        """The running iteration has ended; the next one begins."""
        if not self.alive:
            return
        step, words = self.step, self.words
        self.thread = get_ident()
        self.put((ITERATION, start_ns, end_ns))
        self.step = words[STEP_WORD] = step + 1
        words[STEP_WORD + 1] = end_ns
        if step == self._warmup:
            self.host.warm = self.host.changed = True
        self.outbox.iteration_ended()

    def entered(self, group: str) -> None:
        """The rank enters the next collective of a process group."""
        if self.alive:
            slot, words = self.collectives(group), self.words
            words[slot + 1] = now()
            words[slot] += 1

    def counted(self, group: str, entered: int) -> None:
        """So many collectives of a process group the rank has entered, as torch counts them."""
        if self.alive:
            slot, words = self.collectives(group), self.words
            if words[slot] != entered:
                words[slot + 1] = now()
                words[slot] = entered

    def recorded(self, group: str, last: LastCollective | None) -> None:
        """What torch's flight recorder says of the last collective of a process group; None: nothing."""
        if self.alive:
            slot, words = self.collectives(group), self.words
            word = 0 if last is None else pack_recorded(words[slot], *last)
            words[recorded_word(slot)] = word

    def enter(self, activity: wire.Activity, *, urgent: bool = False) -> None:
        """The rank does something else than train. `urgent`: said at once, nothing may end for minutes."""
        if self.host.enter(activity, now()) and self.alive and self.training:
            if urgent:
                self.outbox.flush()
            else:
                self.outbox.flush_if_due()

    def leave(self, activity: wire.Activity) -> None:
        """Back from what `enter` said; told with the next flush."""
        self.host.leave(activity, now())

    def work(self, unit: str, amount: float) -> None:
        """So many more tokens, samples or pixels were processed."""
        if self.alive and not self.host.work(unit, amount):
            self.outbox.dropped += 1

    def close(self, exit_status: int | None) -> None:
        """Send the rest and say BYE."""
        if self.alive:
            try:
                self.outbox.close(exit_status)
            finally:
                self.alive = False

    def forked(self) -> None:
        """In a child of fork: fall silent, and let go of the parent's connection and page."""
        self.alive = False
        self.words = _no_page()  # the page is the parent's: a store of ours would lie about it
        self._table.forked()
        self.outbox.forked()


def _no_page() -> array[int]:
    """Memory of our own to store into, where there is no shared page."""
    return array(shared_page.WORD_FORMAT, bytes(shared_page.PAGE))
