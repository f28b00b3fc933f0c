"""What waits to be sent to the exporter, and the sending of it, about once a second.

Packing, sums and sending are the work of a thread of their own (`sender.py`), of whichever thread ends an
iteration where that cannot be had, one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from argus_core import wire
from argus_core.link import Link
from argus_training.host_report import HostReport
from argus_training.sender import Sender
from argus_training.spans import Packer, Phase, PhaseTable, now
from argus_training.step_log import StepLog

PENDING_LIMIT: Final = 16_384
"""Entries that may wait to be sent (4 MB). Hooks take the general way then, which drops and counts spans."""
_PENDING_FLUSH: Final = 512
"""Entries after which a flush does not wait for its time; also how many spans one packet holds at most."""
_PENDING_HURRY: Final = 3072
"""The same for the sender, which may need some ms until it has the GIL: 770 steps."""
_FOREVER_NS: Final = 1 << 62
_SENDER_SHORTEST_NS: Final = 10_000_000  # a thread that asks for the GIL more often would be felt
_CLOSE_LIMIT_S: Final = 1.0
_SILENCE_NS: Final = 2_000_000_000
"""After so long a span does not wait either: long steps, and the first span, which opens the connection."""
_STATE_NS: Final = 5_000_000_000  # own cost, drops and small pauses stay current within this
_SPAN_COST_NS: Final = 3_000
"""What a span costs outside flush: a fifth of what the hooks of a step cost. Source: docs/overhead.md."""
_SPANS: Final = int(wire.MessageType.SPANS)


class Outbox:
    """Records of one process. Any thread adds and asks for a flush; one at a time sends.

    Args:
        link: the connection; the outbox is its only user.
        table: the phases of the process.
        host: said with the spans.
        flush_ns: iterations that end sooner after a flush wait for the next one: a flush costs as much as
            the hooks of a step.
        background: send on a thread of our own once this process trains; else at the ends of iterations.
        announce: called once, before the first record is sent: from here on this process trains.
        wall: Unix nanoseconds.
    """

    def __init__(
        self,
        link: Link,
        table: PhaseTable,
        host: HostReport,
        *,
        flush_ns: int,
        background: bool,
        announce: Callable[[], None],
        wall: Callable[[], int],
    ) -> None:
        self._link = link
        self._host = host
        self._flush_ns = flush_ns
        self._background = background
        self._announce: Callable[[], None] | None = announce
        self._wall = wall
        self.log = StepLog()
        """Finished spans and iterations that wait to be sent."""
        self._table = table
        self._packer = Packer(link, self.log, table)
        self.mean_iteration_s = self._packer.mean_seconds
        """How long an iteration takes, on average; 0: too few have been sent to tell."""
        self._lock = threading.Lock()
        self._sender: Sender | None = None
        self._closed = False
        self.room = 0
        """So many entries may wait before a look at the time. 0: each looks, nobody sends beside us."""
        self.due_at = _PENDING_FLUSH
        self.silent_until = 0
        self._flushed_at = 0
        self._state_at = 0
        self._connects = 0
        self.waits: Callable[[Collection[Phase]], dict[tuple[str, int], int]] = lambda _: {}
        """Whom phases may wait for: by name and kind, a mask of `wire.WAITED_FOR`."""
        self.on_turn: Callable[[], None] = lambda: None
        """Called by the sender about once a second, also while the training thread hangs."""
        self.may_speak: Callable[[], bool] = lambda: True
        """Asked until it says yes: whether this process speaks for a rank at all."""
        self.spans = 0
        self.dropped = 0
        self.cost_ns = 0
        """CPU time spent in flushes."""
        self.layers_ns = 0
        """CPU time that calls of layers have cost, about."""

    @property
    def training(self) -> bool:
        """Whether this process has shown that it trains: a span was sent, so it speaks for its rank."""
        return self._announce is None

    @property
    def keeps_up(self) -> bool:
        """Whether what hooks put into the log without a look at anything is sent."""
        return self._sender is not None and len(self.log) < PENDING_LIMIT

    # -- any thread -----------------------------------------------------------------------------------------

    def due(self) -> None:
        """Much waits, or for long: by the sender where there is one."""
        if self._sender is not None:
            self._sender.hurry()
        else:
            self.flush()

    def iteration_ended(self) -> None:
        """Flush where nobody does it beside us and it is time, or much is in the log."""
        if self._sender is not None:
            self.look()
        elif now() - self._flushed_at >= self._flush_ns or len(self.log) >= _PENDING_HURRY:
            self.flush()

    def look(self) -> None:
        """Hurry the sender where much is in the log."""
        if self._sender is not None and len(self.log) >= _PENDING_HURRY:
            self._sender.hurry()

    def flush(self) -> None:
        """Send what is there. Returns at once when another thread (or this one, further up) is sending."""
        if self._closed or not self._lock.acquire(blocking=False):
            return
        try:
            self._send()
        finally:
            self._lock.release()

    def flush_if_due(self) -> None:
        """Between iterations, when none may end for long."""
        if now() - self._flushed_at >= self._flush_ns:
            self.flush()

    def introduce_again(self) -> None:
        """What HELLO tells has changed: the next flush says it on a new connection."""
        if not self._closed and self._lock.acquire(blocking=False):
            try:
                self._link.renew()
            finally:
                self._lock.release()

    def close(self, exit_status: int | None) -> None:
        """Send the rest and say BYE; a process that never trained never said HELLO and leaves silently."""
        if self._sender is not None:
            self._sender.stop(_CLOSE_LIMIT_S)
        self._host.changed = True
        if not self._lock.acquire(timeout=_CLOSE_LIMIT_S):
            self._closed = True
            return
        self._send()
        self._closed = True
        if self.training:  # the lock is kept: nobody sends any more
            self._link.close(exit_status)

    def forked(self) -> None:
        """In a child of fork: fall silent, and let go of the parent's connection."""
        self._closed = True
        self._sender = None
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self.log.clear()
        self._link.abandon()

    def _flush_guarded(self) -> None:
        """For the sender: a failure of ours ends the channel, not with a traceback."""
        try:
            self.on_turn()
            self.flush()
        except Exception as error:
            self._host.degraded("sender")
            self._host.say(f"records are not sent: {error!r}")

    def _start_sender(self) -> None:
        try:
            self._sender = Sender(self._flush_guarded, max(self._flush_ns, _SENDER_SHORTEST_NS) / 1e9)
        except RuntimeError as error:
            self._host.say(f"no thread for sending, the training thread sends: {error}")
        else:
            self.silent_until = _FOREVER_NS
            self.due_at = self.room = _PENDING_HURRY

    # -- under the lock -------------------------------------------------------------------------------------

    def _send(self) -> None:
        link = self._link
        if not self._introduce():
            return
        host = self._host
        says_state = host.changed or now() - self._state_at >= _STATE_NS
        if not self.log and not says_state:  # a rank that hangs says it: to an exporter that has started anew
            return
        began_ns = time.thread_time_ns()
        flushed_at = self._flushed_at = now()
        if self._sender is None:
            self.silent_until = flushed_at + _SILENCE_NS
        offset = self._wall() - flushed_at
        if says_state:
            self._send_state(offset)
        host.send_pauses(link, offset, every=says_state)
        iteration = self._packer.last_iteration
        packed, dropped = self._packer.take(PENDING_LIMIT, offset)
        self.dropped += dropped
        self.spans += len(packed)
        for at in range(0, len(packed), _PENDING_FLUSH):
            link.add_packed(_SPANS, b"".join(packed[at : at + _PENDING_FLUSH]))
        host.send_work(link)
        link.flush()
        if link.connects != self._connects:
            self._connects = link.connects
            if not says_state:  # an exporter that has just started knows nothing of this rank
                self._send_state(offset)
                host.send_pauses(link, offset, every=True)
            if self._packer.last_iteration is iteration:
                self._packer.repeat_iteration()
            link.flush()
        self.cost_ns += time.thread_time_ns() - began_ns

    def _introduce(self) -> bool:
        """Whether this process speaks for a rank by now; what it recorded before may not pile up."""
        if self._announce is None:
            return True
        if not self.log:
            return False
        if not self.may_speak():
            while len(self.log) >= _PENDING_FLUSH:
                self._packer.skip(_PENDING_FLUSH)
            self.silent_until = now() + _SILENCE_NS
            return False
        self._announce()
        self._announce = None
        if self._background:
            self._start_sender()
        return True

    def _send_state(self, offset: int) -> None:
        self._send_waits()
        self._state_at = self._flushed_at
        self._host.send_state(
            self._link,
            self._flushed_at,
            offset,
            cost_ns=self.cost_ns + self.spans * _SPAN_COST_NS + self.layers_ns,
            dropped=self.dropped,
        )

    def _send_waits(self) -> None:
        """A framework that cannot be asked just now (it destroys its groups) costs these and no more."""
        link = self._link
        try:
            told = self.waits(list(self._table.coded.values()))
        except Exception:
            self.dropped += 1
            return
        for (name, kind), mask in told.items():
            link.add(wire.PhaseInfo(link.name_id(name), kind, mask))
