"""Traces that wait for the store, as files: they survive a restart; beyond a budget the oldest go first."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_core.store.keys import check_key

_SEPARATOR: Final = "+"
"""Stands for the `/` of a key in a file's name; no key contains it."""
_TEMPORARY: Final = ".writing-"
_NAME_LIMIT: Final = 200
"""Characters of a file's name, of which file systems take 255; a job's name in a key may have 192."""


@dataclass(frozen=True)
class Waiting:
    """One trace that waits."""

    key: str
    path: Path
    size: int


class Outbox:
    """A folder of files, one a trace, those of a job with a long name in a folder of their own.

    Any thread may put; one takes.

    Args:
        folder: of its own; made when needed.
        budget_bytes: what all files together may take.
    """

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder = folder
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._waiting: dict[str, Waiting] = {}
        self.dropped: Counter[str] = Counter()
        """Traces that are lost, by reason: budget, disk, refused."""
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        found = [path for path in folder.rglob("*") if not _removed_if_empty(path)]
        for path in sorted(found, key=lambda path: path.stat().st_mtime_ns):
            if path.name.startswith(_TEMPORARY):
                path.unlink()
            else:
                key = path.relative_to(folder).as_posix().replace(_SEPARATOR, "/")
                self._waiting[key] = Waiting(key, path, path.stat().st_size)

    @property
    def files(self) -> int:
        return len(self._waiting)

    @property
    def size(self) -> int:
        """Bytes that wait."""
        with self._lock:
            return sum(waiting.size for waiting in self._waiting.values())

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    def put(self, key: str, content: bytes) -> bool:
        """Keep a trace until it is uploaded. False, and counted, where there is no room for it."""
        check_key(key)
        path = self._place(key)
        if len(content) > self._budget:
            self.dropped["budget"] += 1
            return False
        temporary = path.with_name(f"{_TEMPORARY}{path.name}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with temporary.open("wb") as target:
                target.write(content)
                target.flush()
                os.fsync(target.fileno())
            temporary.replace(path)
        except OSError:
            _unlink(temporary)
            self.dropped["disk"] += 1
            return False
        with self._lock:
            self._waiting.pop(key, None)
            self._waiting[key] = Waiting(key, path, len(content))
            self._make_room()
        return True

    def oldest(self) -> Waiting | None:
        """What has waited longest."""
        with self._lock:
            return next(iter(self._waiting.values()), None)

    def later(self, waiting: Waiting) -> None:
        """The store refuses this one for now: it goes behind all others."""
        with self._lock:
            if self._waiting.get(waiting.key) is waiting:
                self._waiting[waiting.key] = self._waiting.pop(waiting.key)

    def done(self, waiting: Waiting) -> None:
        """It is in the store."""
        self._remove(waiting)

    def refuse(self, waiting: Waiting) -> None:
        """The store will never take it."""
        if self._remove(waiting):
            self.dropped["refused"] += 1

    def _place(self, key: str) -> Path:
        name = key.replace("/", _SEPARATOR)
        if len(name) <= _NAME_LIMIT:
            return self._folder / name
        job, _, rest = key.partition("/")
        return self._folder / job / rest.replace("/", _SEPARATOR)

    def _remove(self, waiting: Waiting) -> bool:
        with self._lock:
            if self._waiting.get(waiting.key) is not waiting:  # replaced or dropped meanwhile
                return False
            del self._waiting[waiting.key]
            _unlink(waiting.path)
            return True

    def _make_room(self) -> None:
        total = sum(waiting.size for waiting in self._waiting.values())
        while total > self._budget:
            oldest = next(iter(self._waiting.values()))
            del self._waiting[oldest.key]
            _unlink(oldest.path)
            total -= oldest.size
            self.dropped["budget"] += 1


def _unlink(path: Path) -> None:
    """What a broken disk keeps is uploaded once more after a restart: that ends no thread."""
    with contextlib.suppress(OSError):
        path.unlink()


def _removed_if_empty(path: Path) -> bool:
    """Whether it is a folder, which is removed where nothing waits in it."""
    if not path.is_dir():
        return False
    with contextlib.suppress(OSError):
        path.rmdir()
    return True
