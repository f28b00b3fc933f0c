"""A recording's file, open for one pass: decompressed as it is read, and counted for a progress bar."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from argus_exporter.replay.recording import RecordingError

_GZIP: Final = b"\x1f\x8b"
_BUFFER: Final = 1 << 18
HEAD_BYTES: Final = 1 << 12

Advance = Callable[[int], None]
"""Told how many more bytes of the file (as it lies on disk) have been read."""


class Source:
    """The content of a stream, with its first bytes also to look at in `head`.

    Args:
        stream: plain or gzip bytes.
        advance: told of the bytes taken from `stream`.
    """

    def __init__(self, stream: IO[bytes], advance: Advance = lambda _: None) -> None:
        counted = io.BufferedReader(_Counted(stream, advance), _BUFFER)
        self.compressed = counted.peek(2)[:2] == _GZIP
        content: io.BufferedIOBase = gzip.GzipFile(fileobj=counted, mode="rb") if self.compressed else counted
        self.head = content.read(HEAD_BYTES)
        self._reader = io.BufferedReader(_Joined(self.head, content), _BUFFER)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes of the decompressed content; none at its end."""
        return self._reader.read(size)

    def lines(self, limit: int) -> Iterator[bytes]:
        """Line by line; one of more than `limit` bytes comes in pieces."""
        while line := self._reader.readline(limit):
            yield line


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """What reading may meet, said in one line that names the file."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordingError(f"{path}: truncated or damaged gzip ({error}); copy the file again") from error
    except MemoryError as error:
        raise RecordingError(f"{path}: does not fit into memory") from error
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from error


class _Counted(io.RawIOBase):
    """Raw bytes of a stream, each read told to `advance`."""

    def __init__(self, stream: IO[bytes], advance: Advance) -> None:
        self._stream = stream
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        raw = self._stream.read(len(buffer))
        buffer[: len(raw)] = raw
        self._advance(len(raw))
        return len(raw)


class _Joined(io.RawIOBase):
    """What was read of a stream already, then the rest of it."""

    def __init__(self, head: bytes, stream: io.BufferedIOBase) -> None:
        self._head = head
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        raw = self._head or self._stream.read(len(buffer))
        taken, self._head = raw[: len(buffer)], raw[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)
