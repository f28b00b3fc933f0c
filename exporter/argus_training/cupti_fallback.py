"""Kernels by cupti-python, for where `libargus_cupti.so` cannot be built: same records, another way to them.

Off unless ARGUS_KERNELS_FALLBACK asks for it: cupti-python makes a Python object of every record and holds
the GIL meanwhile, at several times the cost of the library, and a release of it fits one CUDA minor version.

Three threads meet here. CUPTI calls `_completed` from a thread of its own, or from one that flushes: the
records are packed at once (cupti_records.py). Our worker flushes CUPTI and sends. The training thread only
calls `pause` and `rearm`.

On an H200 the real package (13.0.1) gave every record that torch.profiler had of the same steps, 4,140. What
else it does beyond its published signatures (13.0 and 13.4) is unverified: docs/cupti-python.md.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from argus_core import wire
from argus_core.injection import NAME, SLOT
from argus_core.link import Link
from argus_training.cupti_records import RecordQueue
from argus_training.profiler_windows import around_profiler_windows

_BUFFER_BYTES: Final = 1 << 20
_RECORDS_AT_ONCE: Final = 1024
_TURN_S: Final = 1.0
_INVALID_LIMIT: Final = 1_000
"""Records in a row with impossible times after which the channel stops by itself."""
_CLOCK_TOLERANCE: Final = 1e-3
"""CUPTI's clock counts nanoseconds to within 1e-4; one that does not has been replaced by another tool."""

TOOLS: Final = (
    ("nsight_systems", "NSYS_PROFILING_SESSION_ID", "/libToolsInjection64.so"),
    ("nsight_compute", "NV_COMPUTE_PROFILER_PERFWORKS_DIR", "/libcuda-injection.so"),
    ("compute_sanitizer", "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN", "/libsanitizer-collection.so"),
    ("nvrx", "", "/nvrx_cupti_module."),
    ("parcagpu", "", "/libparcagpucupti.so"),
    ("cupti_python", "", "/site-packages/cupti/"),
)
"""Who has CUPTI for good: reason, variable, part of a mapped path. As native/injector/other_users.cpp."""

REASONS: Final = (
    "cupti_python_missing",
    "cupti_error",
    "invalid_timestamps",
    "foreign_clock",
    "slot_taken",
    *(reason for reason, _, _ in TOOLS),
    "paused",
    "exit",
)
"""Why the channel may be down."""


class CuptiFallback:
    """The kernels channel of one rank on a connection of its own.

    Args:
        link: the connection; the worker is its only user.
        load: imports `cupti.cupti`; ImportError where it is not installed.
        ready: whether this process uses CUDA; until then nothing is loaded.
        steps: iterations so far, for the watchdog.
        watchdog_s: kernels that stay away so long while steps go on have the callbacks taken back; 0: never.
        clock: Unix nanoseconds.
        monotonic: seconds, for the watchdog.
    """

    def __init__(
        self,
        link: Link,
        *,
        load: Callable[[], Any],
        ready: Callable[[], bool],
        steps: Callable[[], int],
        watchdog_s: float = 30.0,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._load = load
        self._ready = ready
        self._steps = steps
        self._watchdog_s = watchdog_s
        self._clock = clock
        self._monotonic = monotonic
        self._cupti: Any = None
        self.queue = RecordQueue(REASONS, clock)
        self._bound = 0
        self._last_pair: tuple[int, int] | None = None
        self._lock = threading.Lock()
        """Held while CUPTI's kinds are switched."""
        self._paused = False
        self._armed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_records_at = monotonic()
        self._last_step = 0
        self.alive = True
        self.reason = ""
        self.rearmed = 0
        self.cpu_ns = 0

    # -- the training thread --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the worker; it loads cupti-python once CUDA is in use."""
        self._thread = threading.Thread(target=self._run, name="argus-kernels", daemon=True)
        self._thread.start()

    def stand_aside(self, reason: str) -> None:
        """Before `start`: CUPTI is another's for good; the channel only says so."""
        self._fail(reason, "another user has CUPTI")

    def pause(self) -> None:
        """Stand aside: another profiler is about to take CUPTI's callbacks; a process has one pair."""
        if not self.alive:
            return
        with self._lock:
            self._paused = True
            if self._armed:
                self._armed = False
                self._each_kind("activity_disable")
                self._guarded(lambda: self._cupti.activity_flush_all(0))

    def rearm(self) -> None:
        """The other profiler is done: take the callbacks back."""
        if not self.alive:
            return
        with self._lock:
            self._paused = False
            if self._cupti is not None and not self.reason:
                self._arm()

    def close(self) -> None:
        """At exit: no callback of ours may come once the interpreter is gone. Without BYE."""
        if not self.alive:
            return
        with self._lock:
            if self._armed:
                self._armed = False
                self._each_kind("activity_disable")
                self._guarded(lambda: self._cupti.activity_flush_all(1))
            self.alive = False
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def forked(self) -> None:
        """In a child of fork: no CUDA, no worker, and the connection is the parent's."""
        self.alive = False
        self._thread = None
        self.queue.clear()
        self._link.abandon()

    # -- CUPTI's thread -------------------------------------------------------------------------------------

    def _requested(self) -> tuple[int, int]:
        """Size of a buffer in bytes, and records in it (0: as many as fit)."""
        return _BUFFER_BYTES, 0

    def _completed(self, activities: list[Any]) -> None:
        """Pack the records of a buffer. Never raises into CUPTI."""
        if not self.alive:
            return
        began = time.thread_time_ns()
        try:
            self.queue.add(activities)
        except Exception:
            self.queue.dropped += len(activities)
        if threading.current_thread() is not self._thread:  # the worker's own time is counted by its turn
            self.cpu_ns += time.thread_time_ns() - began

    # -- the worker -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(_TURN_S):
            try:
                self.turn()
            except Exception as error:
                self._fail("cupti_error", repr(error))
        with contextlib.suppress(Exception):
            self._send(self.reason or "exit")
            self._link.close()

    def turn(self) -> None:
        """Once a second: begin when CUDA is in use, flush, watch, send."""
        if self._cupti is None and not self.reason:
            if not self._ready():
                return
            self._begin()
        began = time.thread_time_ns()
        if self._armed:
            self._refresh_clock()
            self._guarded(lambda: self._cupti.activity_flush_all(0))
            if self.queue.invalid_run >= _INVALID_LIMIT:
                self._fail(
                    "invalid_timestamps", f"{self.queue.invalid_run} records in a row have impossible times"
                )
            self._watch()
        self._send(self.reason or ("paused" if self._paused else ""))
        self.cpu_ns += time.thread_time_ns() - began

    def _begin(self) -> None:
        try:
            cupti = self._load()
        except Exception as error:
            self._fail("cupti_python_missing", repr(error))
            return
        kinds = cupti.ActivityKind
        self.queue.kinds = int(kinds.CONCURRENT_KERNEL), int(kinds.MEMCPY), int(kinds.MEMSET)
        with self._lock:
            self._cupti = cupti
            if not self._paused and self.alive:
                self._arm()

    def _arm(self) -> None:
        """Under the lock: our callbacks, our kinds, the clock."""
        try:
            self._cupti.activity_register_callbacks(self._requested, self._completed)
            for kind in self.queue.kinds:
                self._cupti.activity_enable(kind)
        except Exception as error:
            self._fail("cupti_error", repr(error))
            return
        self._armed = True
        self._last_pair = None
        self._refresh_clock()
        self._last_records_at, self._last_step = self._monotonic(), self._steps()

    def _refresh_clock(self) -> None:
        """Tie CUPTI's clock to Unix time anew, and see that it still counts nanoseconds."""
        before = self._clock()
        ticks = int(self._cupti.get_timestamp())
        now = before + (self._clock() - before) // 2
        if self._last_pair is not None and now - self._last_pair[1] > 100_000_000:
            rate = (ticks - self._last_pair[0]) / (now - self._last_pair[1])
            if abs(rate - 1) > _CLOCK_TOLERANCE:
                self._fail("foreign_clock", f"CUPTI's clock runs at {rate:g} ticks a nanosecond")
                return
        self._last_pair = ticks, now
        self.queue.offset_ns = now - ticks

    def _watch(self) -> None:
        """Steps that go on without a kernel: somebody has taken the callbacks, and CUPTI tells nobody."""
        now, step = self._monotonic(), self._steps()
        if len(self.queue) or step == self._last_step:
            self._last_records_at, self._last_step = now, step
        elif self._watchdog_s and now - self._last_records_at > self._watchdog_s:
            self.rearmed += 1
            with self._lock:
                if self._armed:
                    self._arm()

    def _send(self, reason: str) -> None:
        link = self._link
        buffers = self.queue.take()
        for text in list(self.queue.texts)[
            self._bound :
        ]:  # after the records, which may have brought new names
            link.name_id(text)
            self._bound += 1
        size = wire.Kernel.FORMAT.size * _RECORDS_AT_ONCE
        for packed in buffers:
            for at in range(0, len(packed), size):
                link.add_packed(wire.MessageType.KERNELS, packed[at : at + size])
        up, reason_id = not reason, self.queue.texts[reason] if reason else 0
        link.add(wire.ChannelState(self.cpu_ns, self.queue.dropped, reason_id, wire.Channel.KERNELS, up))
        link.flush()

    def _each_kind(self, call: str) -> None:
        for kind in self.queue.kinds:
            self._guarded(functools.partial(getattr(self._cupti, call), kind))

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            self._fail("cupti_error", repr(error))

    def _fail(self, reason: str, detail: str) -> None:
        """The channel is down for good, and says so once."""
        if self.reason:
            return
        self.reason = reason
        if self._armed:
            self._armed = False
            for kind in self.queue.kinds:
                with contextlib.suppress(Exception):
                    self._cupti.activity_disable(kind)
        _say(f"{reason}: {detail}")


def taken(environ: Mapping[str, str], maps: Path = Path("/proc/self/maps")) -> str | None:
    """By whom CUPTI is taken, as a reason; None: by libargus_cupti, which speaks for itself; empty: free."""
    try:
        mapped = maps.read_text(errors="replace")
    except OSError:
        mapped = ""
    slot = environ.get(SLOT, "")
    if os.path.basename(slot) == NAME or "libargus_cupti" in mapped:  # noqa: PTH119
        return None
    for reason, variable, library in TOOLS:
        if (variable and variable in environ) or library in mapped:
            return reason
    return "slot_taken" if slot else ""


def prepare(
    torch: Any,
    enabled: bool,
    socket: Path,
    hello: Callable[[], wire.Hello],
    steps: Callable[[], int],
    watchdog_s: float,
) -> Callable[[], None]:
    """What starts the channel, to be called once this process has shown that it trains. Never raises.

    `enabled` is ARGUS_KERNELS_FALLBACK. The channel ends with the process, and not in a fork.
    """

    def begin() -> None:
        try:
            reason = taken(os.environ)
            if reason is None:
                return
            link = Link(
                socket,
                lambda: dataclasses.replace(hello(), channels=1 << wire.Channel.KERNELS, shares_page=0),
            )
            fallback = CuptiFallback(
                link,
                load=functools.partial(importlib.import_module, "cupti.cupti"),
                ready=torch.cuda.is_initialized,
                steps=steps,
                watchdog_s=watchdog_s,
            )
            if reason:
                fallback.stand_aside(reason)
            around_profiler_windows(torch, fallback.pause, fallback.rearm)
            os.register_at_fork(after_in_child=fallback.forked)
            atexit.register(fallback.close)
            fallback.start()
        except Exception as error:
            _say(repr(error))

    return begin if enabled else lambda: None


def _say(detail: str) -> None:
    with contextlib.suppress(Exception):  # stderr may be closed or None
        sys.stderr.write(f"argus: kernels are not recorded, training goes on: {detail}\n")
