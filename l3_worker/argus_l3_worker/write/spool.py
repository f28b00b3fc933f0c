"""Requests that the receiver has not taken yet, oldest first, bounded in bytes and age.

Every request passes through here, so that order holds: what was kept while the receiver was away is sent
before what is new. In memory, or in a folder that survives a restart (one file a request, renamed into it).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from argus_l3_worker.errors import ConfigError

_SUFFIX = ".rw"


def _sync(folder: Path) -> None:
    """Make the names in a folder last through a power cut, where its file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass
class Entry:
    """One request: when it was made (Unix milliseconds), its size, and its body if that is in memory."""

    created_ms: int
    sequence: int
    size: int
    body: bytes | None
    refusals: int = 0
    """How often the receiver refused its content in this run."""
    turned_away: int = 0
    """How often it was not taken for another reason that may be its own."""
    alone: bool = False
    """Another one was taken when it was turned away."""

    @property
    def file_name(self) -> str:
        return f"{self.created_ms:013d}-{self.sequence:06d}{_SUFFIX}"


class Spool:
    """A queue of request bodies.

    Args:
        folder: where bodies are kept; None keeps them in memory.
        limit_bytes, limit_age_ms: bounds; beyond them the oldest are dropped.

    Raises:
        ConfigError: the folder cannot be used, or another worker uses it.
    """

    def __init__(self, folder: Path | None, limit_bytes: int, limit_age_ms: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._limit_age_ms = limit_age_ms
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._sequence = 0
        self._lock: IO[bytes] | None = None
        if folder is not None:
            self._open(folder)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def append(self, body: bytes, now_ms: int) -> int:
        """Add a request at the end; return how many old ones had to go. Waits for the disk.

        A full or broken disk must not stop the worker: the body then stays in memory.
        """
        self._sequence = (self._sequence + 1) % 1_000_000
        entry = Entry(now_ms, self._sequence, len(body), None if self._folder else body)
        if self._folder is not None:
            path = self._folder / entry.file_name
            try:
                temporary = self._folder / "new.tmp"  # one name: what a full disk leaves is written over
                with temporary.open("wb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
                _sync(self._folder)
            except OSError:
                entry = Entry(now_ms, self._sequence, len(body), body)
        self._entries.append(entry)
        self._bytes += entry.size
        return self.trim(now_ms)

    def trim(self, now_ms: int) -> int:
        """Drop what is too old or too much; return how many."""
        dropped = 0
        while self._entries and (
            self._bytes > self._limit_bytes or now_ms - self._entries[0].created_ms > self._limit_age_ms
        ):
            self.remove(self._entries[0])
            dropped += 1
        return dropped

    def waiting(self) -> list[Entry]:
        """All requests, oldest first."""
        return list(self._entries)

    def body(self, entry: Entry) -> bytes:
        """What to send. Raises OSError where its file cannot be read."""
        if entry.body is not None:
            return entry.body
        assert self._folder is not None
        return (self._folder / entry.file_name).read_bytes()

    def remove(self, entry: Entry) -> None:
        """Forget a request."""
        self._entries.remove(entry)
        self._bytes -= entry.size
        if self._folder is not None and entry.body is None:
            with contextlib.suppress(OSError):  # a broken disk: sent once more after a restart
                (self._folder / entry.file_name).unlink()

    def close(self) -> None:
        """Let another worker have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _open(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = (folder / "lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise ConfigError(
                f"spool folder {folder} is used by another worker, so both would send the same requests: "
                "give each its own --spool.dir"
            ) from error
        except OSError as error:
            self.close()
            raise ConfigError(
                f"spool folder {folder} cannot be used ({error.strerror}), so nothing outlasts a restart: "
                "name a writable folder with --spool.dir, or leave it out to keep requests in memory"
            ) from error
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            created, _, sequence = path.stem.partition("-")
            if created.isdigit() and sequence.isdigit():
                size = path.stat().st_size
                self._entries.append(Entry(int(created), int(sequence), size, None))
                self._bytes += size
