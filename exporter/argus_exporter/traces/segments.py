"""Segment files of the ring: records as they came over the wire, in frames that each carry a checksum.

A segment explains itself: it begins with the rank's identity and the names of the connections that were open,
so that any other may be deleted. A frame is a header and a payload; what a crash left half written ends the
segment, and nothing behind it is read.
"""

from __future__ import annotations

import enum
import os
import struct
import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from argus_core import wire

SUFFIX: Final = ".segment"
_FILE_HEADER: Final = b"ARGUSRING\0\0\1"
_FRAME: Final = struct.Struct("<HHIIqI")
"""Mark, type, connection, payload length, arrival (Unix ns), CRC-32 of all before it and the payload."""
_CHECKED: Final = _FRAME.size - 4
_MARK: Final = 0xA5C3
_PAYLOAD_LIMIT: Final = 16 << 20
_NAME: Final = struct.Struct("<IH")


class FrameType(enum.IntEnum):
    """What a payload is. Below 100: records of the wire's message type of that number, as they came."""

    SPANS = wire.MessageType.SPANS
    KERNELS = wire.MessageType.KERNELS
    ITERATIONS = wire.MessageType.ITERATIONS
    GARBAGE_COLLECTIONS = wire.MessageType.GARBAGE_COLLECTIONS
    COMPILATIONS = wire.MessageType.COMPILATIONS
    LAYERS = wire.MessageType.LAYERS
    NCCL_OPERATIONS = wire.MessageType.NCCL_OPERATIONS
    IDENTITY = 100
    """JSON: the fields of `topology.Identity`."""
    NAMES = 101
    """Name ids of the connection: `<IH` (id, length) and the text, repeated."""
    DROPPED = 102
    """Records that were lost on the way just before: one unsigned 64-bit number."""
    STACKS = 103
    """JSON: begin and end (Unix ns) and [thread, frames, count] of folded stacks."""


RECORDED: Final = frozenset(int(type_) for type_ in FrameType if type_ < 100)
"""Message types that are kept; the others are state, not history."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `arrival_ns` is when the exporter got it, at or after what it tells of."""

    type: FrameType
    connection: int
    arrival_ns: int
    payload: bytes | memoryview

    def pack(self) -> bytes:
        head = _FRAME.pack(_MARK, self.type, self.connection, len(self.payload), self.arrival_ns, 0)[
            :_CHECKED
        ]
        checksum = zlib.crc32(self.payload, zlib.crc32(head))
        return b"".join((head, checksum.to_bytes(4, "little"), self.payload))


def pack_names(names: Mapping[int, bytes]) -> bytes:
    """Payload of a NAMES frame."""
    return b"".join(_NAME.pack(name_id, len(text)) + text for name_id, text in names.items())


def unpack_names(payload: bytes | memoryview) -> Iterator[tuple[int, bytes]]:
    """Inverse of `pack_names`, for a checked payload."""
    at = 0
    while at < len(payload):
        name_id, length = _NAME.unpack_from(payload, at)
        at += _NAME.size + length
        yield name_id, bytes(payload[at - length : at])


class SegmentWriter:
    """Appends frames to a new file. What a failed write left is cut off at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = 0
        try:
            self.append(_FILE_HEADER)
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def append(self, frames: bytes) -> None:
        """Write whole frames, or none.

        Raises:
            OSError: the disk is full or has failed; the file is as before.
        """
        view, written = memoryview(frames), 0
        try:
            while written < len(frames):
                written += os.write(self._file, view[written:])
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(frames)

    def close(self) -> None:
        os.close(self._file)


def read_frames(path: Path, wanted: Container[int] | None = None) -> Iterator[Frame]:
    """Frames of a segment up to its end, or to the first that is damaged.

    Args:
        wanted: types to read; the payloads of others are skipped, not checked.
    """
    with path.open("rb") as file:
        for _, frame in _walk(file, wanted):
            if frame is not None:
                yield frame


def cut_torn_tail(path: Path) -> int:
    """Cut what a crash left behind the last whole frame; the number of bytes cut."""
    with path.open("rb") as file:
        whole = len(_FILE_HEADER) if file.read(len(_FILE_HEADER)) == _FILE_HEADER else 0
        for end, _ in _walk(file, None):
            whole = end
    torn = path.stat().st_size - whole
    if torn:
        os.truncate(path, whole)
    return torn


def _walk(file: BinaryIO, wanted: Container[int] | None) -> Iterator[tuple[int, Frame | None]]:
    """End of each whole frame, and the frame where it is wanted. Of others only the header is read."""
    descriptor = file.fileno()
    if os.pread(descriptor, len(_FILE_HEADER), 0) != _FILE_HEADER:
        return
    at, size = len(_FILE_HEADER), os.fstat(descriptor).st_size
    while at + _FRAME.size <= size:
        head = os.pread(descriptor, _FRAME.size, at)
        if len(head) < _FRAME.size:  # cut since by a writer that found no room
            return
        mark, type_, connection, length, arrival_ns, checksum = _FRAME.unpack(head)
        end = at + _FRAME.size + length
        if mark != _MARK or length > _PAYLOAD_LIMIT or end > size:
            return
        frame = None
        if wanted is None or type_ in wanted:
            payload = os.pread(descriptor, length, at + _FRAME.size)
            if zlib.crc32(payload, zlib.crc32(head[:_CHECKED])) != checksum:
                return
            if type_ in FrameType.__members__.values():
                frame = Frame(FrameType(type_), connection, arrival_ns, payload)
        yield end, frame
        at = end
