"""One page of memory that a producer keeps current and its exporter reads: what is going on right now.

Records say what has finished; a rank that hangs sends none. So each producer keeps a sealed memfd of one page
(handed over with HELLO) in which it marks, by plain aligned 8-byte stores, the step it is in, which phases
are open and which collective it entered last in each process group. While an iteration is overdue it also
marks what torch's flight recorder says of that collective. It costs nothing to read, and it survives a
process whose threads are stopped. Standard library only: the training process loads this file.

Layout, little-endian: a header, then slots of phases, then slots of process groups, then a word of each group
for what the flight recorder says. A slot is claimed once, with its name written before its number, and never
given back.

Behind the page is room for a dump of the flight recorder, made once a hang is certain. It takes no memory
until then, and outlives a process that is killed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from argus_core import memfd, wire

PAGE: Final = 4096
DUMP_BYTES: Final = 2 << 20
"""Room for dumps, compressed: 2,000 entries, as many as torch keeps by default, take 35 kB."""
SIZE: Final = PAGE + DUMP_BYTES
"""Of the memfd."""
NAME: Final = "argus-page"
"""Of the memfd, as it stands in /proc/PID/maps of a process that ARGUS is attached to."""
MAGIC: Final = 0x45474150  # "PAGE"
VERSION: Final = 1
PHASE_SLOTS: Final = 40
GROUP_SLOTS: Final = 20
NAME_BYTES: Final = 47
"""Longest name in a slot; a longer one is cut."""

_HEADER: Final = struct.Struct("<IIQQQQ24x")
"""magic, version, step, start of the step (CLOCK_MONOTONIC, ns), and where its GPU is, see GPU_WORD."""
_SLOT: Final = struct.Struct("<QQB47s")
"""Phase: start of the open span (CLOCK_MONOTONIC ns, 0: none), spans opened so far, kind, name.
Group: number of the last collective entered, when it was entered, unused, name."""
_PHASES_AT: Final = _HEADER.size
_GROUPS_AT: Final = _PHASES_AT + PHASE_SLOTS * _SLOT.size
STEP_WORD: Final = 1
"""Number of the running step; its start in the next word."""
GPU_WORD: Final = 3
"""While an iteration is overdue: index of the word of the phase that the GPU is in, 0: not known. In the next
word, when the host began that span."""
SPARE_WORD: Final = 6
"""With the next one in the header's padding, read by nobody: where a phase or group without a slot may write,
so that none need ask."""
_WORD: Final = 8
WORD_FORMAT: Final = "L"
"""Of a memoryview: stores into it take two thirds of the time of "Q", on each platform of ours the same."""
_RECORDED_AT: Final = _GROUPS_AT + GROUP_SLOTS * _SLOT.size
"""One word a group: the low 16 bits of the number of the collective that it is about, 8 bits for the
operation, 20 for how many collectives were entered and had not started, 20 for how many were not complete.
The last three are one more than what they say; 0: not known. A number that went on makes the word void."""
_BACKLOG_MOST: Final = (1 << 20) - 2
OPERATIONS: Final = (
    "other",
    "all_gather",
    "_all_gather_base",
    "all_gather_into_tensor_coalesced",
    "all_reduce",
    "all_reduce_barrier",
    "all_reduce_sparse",
    "allreduce_coalesced",
    "all_to_all",
    "barrier",
    "broadcast",
    "_broadcast_oop",
    "coalesced",
    "gather",
    "reduce",
    "_reduce_oop",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "sparse_all_reduce",
)
"""Names that gloo and NCCL give their collectives in torch's flight recorder. The page holds the index: new
ones go to the end."""

RECORDERS: Final = ("gloo", "nccl", "nccl2")
"""Torch's flight recorders, of which a process may have several. A dump holds the index."""
_DUMP_HEADER: Final = struct.Struct("<QQQQ")
"""Number of the dump, 0: none, odd: it is being written; step, when it was made (Unix ns), bytes that follow.
Those are parts: which recorder, how long, and so many bytes."""
_PART: Final = struct.Struct("<II")
_DUMP_ROOM: Final = DUMP_BYTES - _DUMP_HEADER.size

assert _RECORDED_AT + GROUP_SLOTS * _WORD <= PAGE
assert struct.calcsize(WORD_FORMAT) == _WORD


class PageError(Exception):
    """What a producer handed over is not a shared page."""


def recorded_word(group: int) -> int:
    """Index of the word for what the flight recorder says of a group, by that of its collective counter."""
    if group == SPARE_WORD:
        return SPARE_WORD
    return (_RECORDED_AT + (group * _WORD - _GROUPS_AT) // _SLOT.size * _WORD) // _WORD


def pack_recorded(number: int, operation: str, not_started: int | None, not_completed: int | None) -> int:
    """The word about the collective of this number, the last that was entered.

    Args:
        operation: name in the flight recorder, without the backend, of the first that is not complete, or of
            the last where all are; empty: not known.
        not_started, not_completed: so many of the group's collectives, with the last one; None: not known.
    """
    known = OPERATIONS.index(operation) if operation in OPERATIONS else 0
    code = known + 1 if operation else 0
    started, completed = (
        0 if backlog is None else min(max(backlog, 0), _BACKLOG_MOST) + 1
        for backlog in (not_started, not_completed)
    )
    return (number & 0xFFFF) << 48 | code << 40 | started << 20 | completed


class PageWriter:
    """The producer's side. Stores are lock-free; a slot belongs to one phase or group name.

    Hot paths write `words[slot] = time.monotonic_ns()` themselves and `words[slot] = 0` at the end.

    Raises:
        OSError: no memfd can be made.
    """

    def __init__(self) -> None:
        self.fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, SIZE)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, memfd.SEALS)
            self._map = mmap.mmap(self.fd, PAGE)
        except OSError:
            os.close(self.fd)
            raise
        _HEADER.pack_into(self._map, 0, MAGIC, VERSION, 0, 0, 0, 0)
        self.words = memoryview(self._map).cast(WORD_FORMAT)
        """The page as 8-byte words."""
        self._phases: dict[tuple[str, int], int] = {}
        self._groups: dict[str, int] = {}
        self._dumps = 0

    def phase(self, name: str, kind: wire.Kind) -> int | None:
        """Index in `words` of the start of the open span of this phase; None when the slots are used up."""
        key = name, int(kind)
        known = self._phases.get(key)
        if known is None and len(self._phases) < PHASE_SLOTS:
            known = self._claim(_PHASES_AT + len(self._phases) * _SLOT.size, name, int(kind))
            self._phases[key] = known
        return known

    def group(self, name: str) -> int | None:
        """Index in `words` of the collective counter of this group, its time of entry in the next word."""
        known = self._groups.get(name)
        if known is None and len(self._groups) < GROUP_SLOTS:
            known = self._groups[name] = self._claim(_GROUPS_AT + len(self._groups) * _SLOT.size, name, 0)
        return known

    def enter_collective(self, name: str) -> None:
        """The rank enters the next collective of this process group."""
        slot = self.group(name)
        if slot is not None:
            self.words[slot + 1] = time.monotonic_ns()
            self.words[slot] += 1

    def step(self, number: int) -> None:
        """The iteration of this number begins now."""
        self.words[STEP_WORD] = number
        self.words[STEP_WORD + 1] = time.monotonic_ns()

    def dump(self, step: int, made_ns: int, recorders: Mapping[str, bytes]) -> bool:
        """Keep what flight recorders said in this step, by recorder. False where there is no room.

        Raises:
            OSError: the system has no memory.
        """
        content = b"".join(
            _PART.pack(RECORDERS.index(name), len(said)) + said for name, said in recorders.items()
        )
        if len(content) > _DUMP_ROOM:
            return False
        number = self._dumps = self._dumps + 2
        os.pwrite(self.fd, _DUMP_HEADER.pack(number - 1, step, made_ns, 0), PAGE)
        os.pwrite(self.fd, content, PAGE + _DUMP_HEADER.size)
        os.pwrite(self.fd, _DUMP_HEADER.pack(number, step, made_ns, len(content)), PAGE)
        return True

    def close(self) -> None:
        self.words.release()
        self._map.close()
        os.close(self.fd)

    def _claim(self, offset: int, name: str, kind: int) -> int:
        _SLOT.pack_into(self._map, offset, 0, 0, kind, wire.encode_text(name, NAME_BYTES))
        return offset // _WORD


@dataclass(frozen=True)
class OpenSpan:
    phase: str
    kind: wire.Kind
    start_monotonic_ns: int


@dataclass(frozen=True)
class CollectiveSequence:
    """The last three as torch's flight recorder has it, only while an iteration is overdue."""

    group: str
    number: int
    entered_monotonic_ns: int
    operation: str = ""
    """What the one that is waited for is; empty: not known."""
    started: int | None = None
    """Number of the last one that has started."""
    completed: int | None = None

    @property
    def waited_for(self) -> int:
        """Number of the first that is not complete; of the last where all are, or where that is not known."""
        return self.number if self.completed is None else min(self.completed + 1, self.number)


@dataclass(frozen=True)
class Page:
    """What a page said at one moment. Its parts may be some nanoseconds apart."""

    step: int
    step_monotonic_ns: int
    open_spans: tuple[OpenSpan, ...]
    collectives: tuple[CollectiveSequence, ...]
    gpu: OpenSpan | None
    """The one that the GPU is in, only while an iteration is overdue; None: not known."""


@dataclass(frozen=True)
class Dump:
    """What flight recorders said in a hang."""

    number: int
    step: int
    made_ns: int
    """Unix time."""
    recorders: Mapping[str, bytes]
    """By name, one of `RECORDERS`: as the producer has it, which may be anything."""


class PageReader:
    """The exporter's side. Owns the descriptor.

    It reads with pread, never through a mapping, and takes only a memfd sealed against shrinking: whatever a
    peer hands over can neither block the exporter nor kill it by SIGBUS.

    Raises:
        PageError: the descriptor is no sealed memfd of the right size; it has been closed.
    """

    def __init__(self, fd: int) -> None:
        # A producer that was attached before an upgrade has the page alone, and trains on for weeks.
        if (why := memfd.unfit(fd, SIZE)) and memfd.unfit(fd, PAGE):
            os.close(fd)
            raise PageError(f"the shared page {why}")
        self._fd = fd
        self.inode = os.fstat(fd).st_ino
        """Which memory it is: of two at one time, and nearly always of two after one another."""

    def read(self) -> Page:
        """The page as it is now.

        Raises:
            PageError: the bytes are not a page of this version.
        """
        raw = os.pread(self._fd, PAGE, 0)
        magic, version, step, step_ns, gpu_word, gpu_ns = _HEADER.unpack_from(raw)
        if (magic, version) != (MAGIC, VERSION):
            raise PageError(f"magic {magic:#x} version {version}, not {MAGIC:#x} version {VERSION}")
        spans, gpu = [], None
        for offset in range(_PHASES_AT, _GROUPS_AT, _SLOT.size):
            start, _, kind, name = _SLOT.unpack_from(raw, offset)
            if kind not in wire.Kind.__members__.values():
                continue
            if start:
                spans.append(OpenSpan(wire.decode_text(name), wire.Kind(kind), start))
            if gpu_ns and offset == gpu_word * _WORD:
                gpu = OpenSpan(wire.decode_text(name), wire.Kind(kind), gpu_ns)
        collectives = []
        words = struct.unpack_from(f"<{GROUP_SLOTS}Q", raw, _RECORDED_AT)
        for offset, word in zip(range(_GROUPS_AT, _RECORDED_AT, _SLOT.size), words, strict=True):
            number, entered, _, name = _SLOT.unpack_from(raw, offset)
            if name.strip(b"\0"):  # also at 0: others may wait in the first collective of a group
                recorded = _unpack_recorded(word, number)
                collectives.append(CollectiveSequence(wire.decode_text(name), number, entered, *recorded))
        return Page(step, step_ns, tuple(spans), tuple(collectives), gpu)

    def dump(self, known: int) -> Dump | None:
        """The dump of the producer's latest hang; None where there is none but that of the number `known`."""
        header = os.pread(self._fd, _DUMP_HEADER.size, PAGE)
        if not header:
            return None
        number, step, made_ns, size = _DUMP_HEADER.unpack(header)
        if number == known or not number or number % 2 or size > _DUMP_ROOM:
            return None
        content = os.pread(self._fd, size, PAGE + _DUMP_HEADER.size)
        if os.pread(self._fd, _DUMP_HEADER.size, PAGE) != header:  # the next one is being written
            return None
        return Dump(number, step, made_ns, _parts(content))

    def close(self) -> None:
        os.close(self._fd)


def _parts(content: bytes) -> dict[str, bytes]:
    """By recorder, as far as they make sense."""
    found: dict[str, bytes] = {}
    at = 0
    while at + _PART.size <= len(content):
        which, size = _PART.unpack_from(content, at)
        at += _PART.size
        if which >= len(RECORDERS) or not 0 < size <= len(content) - at:
            break
        found[RECORDERS[which]] = content[at : at + size]
        at += size
    return found


def _unpack_recorded(word: int, number: int) -> tuple[str, int | None, int | None]:
    """Operation, started and completed; nothing where a peer wrote nonsense, or of another collective."""
    if word >> 48 != number & 0xFFFF:
        return "", None, None
    code, *backlogs = word >> 40 & 0xFF, word >> 20 & 0xFFFFF, word & 0xFFFFF
    operation = OPERATIONS[code - 1] if 0 < code <= len(OPERATIONS) else ""
    started, completed = (number - backlog + 1 if 0 < backlog <= number + 1 else None for backlog in backlogs)
    return operation, started, completed
