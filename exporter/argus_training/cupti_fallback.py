"""Kernels by cupti-python, for where `libargus_cupti.so` cannot be built: same records, another way to them.

Off unless ARGUS_KERNELS_FALLBACK asks for it: cupti-python makes a Python object of every record and holds
the GIL meanwhile, at several times the cost of the library, and a release of it fits one CUDA minor version.

Three threads meet here. CUPTI calls `_completed` from a thread of its own, or from one that flushes: it packs
the records at once, because the objects may be views of a buffer that CUPTI takes back, and leaves them in a
bounded queue. Our worker flushes CUPTI and sends. The training thread only calls `pause` and `rearm`.

Unverified on a GPU: everything that the real package does beyond its published signatures (13.0 and 13.4).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import ctypes.util
import dataclasses
import functools
import importlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from argus_core import wire
from argus_core.link import Link
from argus_training.profiler_windows import around_profiler_windows

_BUFFER_BYTES: Final = 1 << 20
_QUEUE_LIMIT: Final = 65_536
"""Packed records that may wait for the worker (2.6 MB); more are dropped and counted."""
_NAMES_LIMIT: Final = 8_192
"""Distinct names: the exporter takes 16,384 of a rank, of all its connections."""
_RECORDS_AT_ONCE: Final = 1024
_TURN_S: Final = 1.0
_OLDEST_NS: Final = 3_600_000_000_000
_AHEAD_NS: Final = 10_000_000_000
_INVALID_LIMIT: Final = 1_000
"""Records in a row with impossible times after which the channel stops by itself."""
_CLOCK_TOLERANCE: Final = 1e-3
"""CUPTI's clock counts nanoseconds to within 1e-4; one that does not has been replaced by another tool."""
_PACK: Final = wire.Kernel.FORMAT.pack

# As Kineto writes them, and libargus_cupti: a copy has one name, whoever has seen it.
_COPIES: Final = ("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_MEMORIES: Final = (
    "Unknown",
    "Pageable",
    "Pinned",
    "Device",
    "Array",
    "Managed",
    "Device Static",
    "Managed Static",
)
REASONS: Final = (
    "cupti_python_missing",
    "cupti_error",
    "invalid_timestamps",
    "foreign_clock",
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
        self._kinds: tuple[int, int, int] = (0, 0, 0)
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._ids: dict[object, int] = {}
        self._texts: dict[str, int] = {}
        for reason in REASONS:
            self._text_id(reason)
        self._bound = 0
        self._offset_ns = 0
        self._last_pair: tuple[int, int] | None = None
        self._invalid_run = 0
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
        self.records = 0
        self.dropped = 0
        self.rearmed = 0
        self.cpu_ns = 0

    # -- the training thread --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the worker; it loads cupti-python once CUDA is in use."""
        self._thread = threading.Thread(target=self._run, name="argus-kernels", daemon=True)
        self._thread.start()

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
        self._queue.clear()
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
            self._take(activities)
        except Exception:
            self.dropped += len(activities)
        if threading.current_thread() is not self._thread:  # the worker's own time is counted by its turn
            self.cpu_ns += time.thread_time_ns() - began

    def _take(self, activities: list[Any]) -> None:
        if self._queued + len(activities) > _QUEUE_LIMIT:
            self.dropped += len(activities)
            return
        kernel_kind, memcpy_kind, memset_kind = self._kinds
        offset = self._offset_ns
        now = self._clock()
        earliest, latest = now - _OLDEST_NS, now + _AHEAD_NS
        packed = bytearray()
        for activity in activities:
            kind = activity.kind
            if kind == kernel_kind:
                name, kilobytes, operation = self._kernel_name(activity.name), 0, 0
            elif kind == memcpy_kind:
                name, kilobytes, operation = self._copy_name(activity), -(-activity.bytes // 1024), 1
            elif kind == memset_kind:
                name, kilobytes, operation = self._set_name(activity), -(-activity.bytes // 1024), 2
            else:
                continue  # another tool may switch on kinds of its own while the callbacks are ours
            start, end = activity.start, activity.end
            begin_ns = start + offset
            # A kernel that ran while CUPTI was flushed has no end yet.
            if not (0 < start <= end and earliest < begin_ns and end + offset < latest):
                self.dropped += 1
                self._invalid_run += 1
                continue
            self._invalid_run = 0
            packed += _PACK(
                begin_ns,
                end - start,
                -1,
                name,
                activity.stream_id,
                min(kilobytes, 0xFFFFFFFF),
                operation,
                min(activity.device_id, 255),
                0,
            )
        count = len(packed) // wire.Kernel.FORMAT.size
        self.records += count
        self._queued += count
        self._queue.append(bytes(packed))

    def _kernel_name(self, mangled: str | bytes | None) -> int:
        known = self._ids.get(mangled)
        if known is None:
            text = mangled.decode("utf-8", "replace") if isinstance(mangled, bytes) else mangled or "unknown"
            known = self._id_for(mangled, demangle(text))
        return known

    def _copy_name(self, activity: Any) -> int:
        key = activity.copy_kind, activity.src_kind, activity.dst_kind
        known = self._ids.get(key)
        if known is None:
            copy, source, destination = (
                _word(_COPIES, key[0]),
                _word(_MEMORIES, key[1]),
                _word(_MEMORIES, key[2]),
            )
            known = self._id_for(key, f"Memcpy {copy} ({source} -> {destination})")
        return known

    def _set_name(self, activity: Any) -> int:
        key = activity.memory_kind
        known = self._ids.get(key)
        return known if known is not None else self._id_for(key, f"Memset ({_word(_MEMORIES, key)})")

    def _id_for(self, key: object, text: str) -> int:
        if len(self._texts) >= _NAMES_LIMIT:
            return self._text_id("other")
        known = self._ids[key] = self._text_id(text)
        return known

    def _text_id(self, text: str) -> int:
        """Ids in order of first use, from 1, as the link gives them: it binds the texts in this order."""
        return self._texts.setdefault(text, len(self._texts) + 1)

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
            if self._invalid_run >= _INVALID_LIMIT:
                self._fail(
                    "invalid_timestamps", f"{self._invalid_run} records in a row have impossible times"
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
        self._kinds = int(kinds.CONCURRENT_KERNEL), int(kinds.MEMCPY), int(kinds.MEMSET)
        with self._lock:
            self._cupti = cupti
            if not self._paused and self.alive:
                self._arm()

    def _arm(self) -> None:
        """Under the lock: our callbacks, our kinds, the clock."""
        try:
            self._cupti.activity_register_callbacks(self._requested, self._completed)
            for kind in self._kinds:
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
        self._offset_ns = now - ticks

    def _watch(self) -> None:
        """Steps that go on without a kernel: somebody has taken the callbacks, and CUPTI tells nobody."""
        now, step = self._monotonic(), self._steps()
        if self._queue or step == self._last_step:
            self._last_records_at, self._last_step = now, step
        elif self._watchdog_s and now - self._last_records_at > self._watchdog_s:
            self.rearmed += 1
            with self._lock:
                if self._armed:
                    self._arm()

    def _send(self, reason: str) -> None:
        link = self._link
        buffers = [self._queue.popleft() for _ in range(len(self._queue))]
        for text in list(self._texts)[self._bound :]:  # after the records, which may have brought new names
            link.name_id(text)
            self._bound += 1
        size = wire.Kernel.FORMAT.size * _RECORDS_AT_ONCE
        for packed in buffers:
            self._queued -= len(packed) // wire.Kernel.FORMAT.size
            for at in range(0, len(packed), size):
                link.add_packed(wire.MessageType.KERNELS, packed[at : at + size])
        up, reason_id = not reason, self._texts[reason] if reason else 0
        link.add(wire.ChannelState(self.cpu_ns, self.dropped, reason_id, wire.Channel.KERNELS, up))
        link.flush()

    def _each_kind(self, call: str) -> None:
        for kind in self._kinds:
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
            for kind in self._kinds:
                with contextlib.suppress(Exception):
                    self._cupti.activity_disable(kind)
        _say(f"{reason}: {detail}")


def wanted(environ: Mapping[str, str], maps: Path = Path("/proc/self/maps")) -> bool:
    """Whether CUPTI is free for us: neither libargus_cupti nor another injected tool has it."""
    if environ.get("CUDA_INJECTION64_PATH"):
        return False
    try:
        return "libargus_cupti" not in maps.read_text(errors="replace")
    except OSError:
        return True


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
            if not wanted(os.environ):
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


def demangle(name: str) -> str:
    """A C++ symbol as its author wrote it; anything else as it is."""
    if not name.startswith("_Z"):
        return name
    library = _cxxabi()
    if library is None:
        return name
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return (ctypes.string_at(text)).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


@functools.cache
def _cxxabi() -> Any:
    """libstdc++, which torch has mapped; None without it."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None


def _word(words: tuple[str, ...], index: int) -> str:
    return words[index] if 0 <= index < len(words) else words[0]
