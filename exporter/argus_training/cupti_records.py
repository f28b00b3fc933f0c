"""Activity objects of cupti-python to kernel records of the wire.

CUPTI hands them over on a thread of its own, or on one that flushes: they are packed at once, because the
objects may be views of a buffer that CUPTI takes back, and left in a bounded queue.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from argus_core import wire

_QUEUE_LIMIT: Final = 65_536
"""Packed records that may wait for the worker (2.6 MB); more are dropped and counted."""
_NAMES_LIMIT: Final = 8_192
"""Distinct names: the exporter takes 16,384 of a rank, of all its connections."""
_OLDEST_NS: Final = 3_600_000_000_000
_AHEAD_NS: Final = 10_000_000_000
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


class RecordQueue:
    """Packed records on their way from CUPTI's thread to ours, and the names that they use.

    Args:
        texts: names that have ids before any kernel.
        clock: Unix nanoseconds.
    """

    def __init__(self, texts: Iterable[str], clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._packed: deque[bytes] = deque()
        self._queued = 0
        self._ids: dict[object, int] = {}
        self.texts: dict[str, int] = {}
        """Ids in order of first use, from 1, as the link gives them: it binds the texts in this order."""
        for text in texts:
            self._text_id(text)
        self.kinds: tuple[int, int, int] = (0, 0, 0)
        """CUPTI's numbers of kernels, copies and memory sets."""
        self.offset_ns = 0
        """From CUPTI's clock to Unix time."""
        self.invalid_run = 0
        """Records in a row with impossible times."""
        self.records = 0
        self.dropped = 0

    def __len__(self) -> int:
        """Packed records that wait."""
        return self._queued

    def clear(self) -> None:
        self._packed.clear()
        self._queued = 0

    def take(self) -> list[bytes]:
        """What waits, a piece for each buffer of CUPTI."""
        taken = [self._packed.popleft() for _ in range(len(self._packed))]
        self._queued -= sum(map(len, taken)) // wire.Kernel.FORMAT.size
        return taken

    def add(self, activities: list[Any]) -> None:
        """Pack the records of a buffer."""
        if self._queued + len(activities) > _QUEUE_LIMIT:
            self.dropped += len(activities)
            return
        kernel_kind, memcpy_kind, memset_kind = self.kinds
        offset = self.offset_ns
        now = self._clock()
        earliest, latest = now - _OLDEST_NS, now + _AHEAD_NS
        packed = bytearray()
        for activity in activities:
            kind, mark = activity.kind, 0
            if kind == kernel_kind:
                name, kilobytes, operation = self._kernel_name(activity.name), 0, 0
            elif kind == memcpy_kind:
                name, kilobytes, operation = self._copy_name(activity), -(-activity.bytes // 1024), 1
            elif kind == memset_kind:
                mark = wire.mark_of_set(getattr(activity, "value", 0), activity.bytes)
                name, kilobytes, operation = self._set_name(activity), -(-activity.bytes // 1024), 2
            else:
                continue  # another tool may switch on kinds of its own while the callbacks are ours
            start, end = activity.start, activity.end
            begin_ns = start + offset
            # A kernel that ran while CUPTI was flushed has no end yet.
            if not (0 < start <= end and earliest < begin_ns and end + offset < latest):
                self.dropped += 1
                self.invalid_run += 1
                continue
            self.invalid_run = 0
            packed += _PACK(
                begin_ns,
                end - start,
                -1,
                name,
                activity.stream_id,
                min(kilobytes, 0xFFFFFFFF),
                operation,
                min(activity.device_id, 255),
                mark,
            )
        count = len(packed) // wire.Kernel.FORMAT.size
        self.records += count
        self._queued += count
        self._packed.append(bytes(packed))

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
        if len(self.texts) >= _NAMES_LIMIT:
            return self._text_id("other")
        known = self._ids[key] = self._text_id(text)
        return known

    def _text_id(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts) + 1)


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
