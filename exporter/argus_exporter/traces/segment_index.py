"""The closed segments of a ring: which there are, how large, and which goes first."""

from __future__ import annotations

import bisect
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from argus_core.log import Log
from argus_core.store.keys import decode_part, encode_part
from argus_exporter.traces.segments import SUFFIX, cut_torn_tail

log = Log(__name__)

RankKey = tuple[str, int]
"""Training job and rank."""


@dataclass
class Segment:
    """A file of the ring. Times are Unix ns."""

    path: Path
    created_ns: int
    last_ns: int
    size: int


class SegmentIndex:
    """Closed segments of all ranks, oldest first. One thread changes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[Segment] = []
        self.size = 0
        """Bytes of all of them."""
        self.dropped_bytes: Counter[str] = Counter()
        """Bytes that are gone, by reason."""

    @property
    def oldest(self) -> Segment | None:
        return next(iter(self._segments), None)

    def recover(self) -> None:
        """Take over what a former exporter left; what its crash left half written is cut and counted."""
        for _, folder in rank_folders(self._folder):
            paths = segment_paths(folder)
            for path in paths:
                if path is paths[-1]:  # the others were closed whole; readers check each frame anyway
                    torn = cut_torn_tail(path)
                    if torn:
                        self.dropped_bytes["torn"] += torn
                        log.warning("torn tail cut", bytes=torn, segment=path)
                status = path.stat()
                self.add(Segment(path, created_ns(path), status.st_mtime_ns, status.st_size))
        for folder in (*self._folder.glob("*/*/"), *self._folder.glob("*/")):
            _remove_if_empty(folder)

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, segment: Segment) -> None:
        """A segment was closed."""
        bisect.insort(self._segments, segment, key=lambda segment: segment.created_ns)
        self.size += segment.size

    def drop_oldest(self, reason: str) -> bool:
        """Delete the oldest segment; False when there is none."""
        if not self._segments:
            return False
        segment = self._segments.pop(0)
        segment.path.unlink(missing_ok=True)
        _remove_if_empty(segment.path.parent)
        _remove_if_empty(segment.path.parent.parent)
        self.size -= segment.size
        self.dropped_bytes[reason] += segment.size
        return True


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # other segments, or ranks, are in it
        folder.rmdir()


def rank_folder(folder: Path, key: RankKey) -> Path:
    """Where the segments of a rank are."""
    return folder / encode_part(key[0]) / str(key[1])


def rank_folders(folder: Path) -> Iterator[tuple[RankKey, Path]]:
    """The ranks that the ring knows, and where their segments are."""
    for path in sorted(folder.glob("*/*/")):
        if path.name.isdecimal():
            yield (decode_part(path.parent.name), int(path.name)), path


def segment_paths(folder: Path) -> list[Path]:
    """Segments of a rank, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def segment_name(created: int, serial: int) -> str:
    """Name of a file that began at `created` (Unix ns); names sort by time."""
    return f"{created:020d}-{serial:06d}{SUFFIX}"


def created_ns(path: Path) -> int:
    """When a segment began, by its name."""
    return int(path.name[:20])
