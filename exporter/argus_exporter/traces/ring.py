"""The ring: what all ranks of this host sent lately, on local disk within a budget of bytes and age.

Taps append to lists on the event loop; one thread packs and writes them about once a second. A kill loses at
most what was not yet written. Nothing here stops the exporter: what cannot be kept is dropped and counted.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from argus_core import wire
from argus_core.log import Log
from argus_exporter.place.topology import Identity
from argus_exporter.stacks.folded import Folded
from argus_exporter.traces.segment_index import RankKey, Segment, SegmentIndex, rank_folder, segment_name
from argus_exporter.traces.segments import RECORDED, Frame, FrameType, SegmentWriter, pack_names

log = Log(__name__)

_FLUSH_S: Final = 1.0
_BACKLOG_BYTES: Final = 16 << 20
"""Bytes that may wait for a slow disk: half a minute of 8 ranks at 1e5 events a minute."""
_EAGER_BYTES: Final = 1 << 20
"""Bytes that are written at once and do not wait for the second: a burst must not pile up in memory."""
_NAMES_LIMIT: Final = 16_384
"""Names kept of a connection, as many as `names` interns."""
_SEGMENTS_LIMIT: Final = 16_384
"""Closed segments kept: more than eight of each of 1,024 ranks. A file of one record takes a block too."""
_HEAD: Final = frozenset({FrameType.IDENTITY, FrameType.NAMES})
"""What every segment begins with: alone it is worth none."""
_SEGMENT_AGE_SHARE: Final = 8
"""A segment is closed after an eighth of the ring's age, so that what is too old goes in small parts."""


class RingTaken(Exception):
    """Another exporter writes to this folder."""


class Tap:
    """Takes the records of one connection, on the event loop."""

    def __init__(self, ring: Ring, rank: _RankLog, number: int) -> None:
        self._ring = ring
        self._rank = rank
        self.number = number
        self.names: dict[int, bytes] = {}

    def take(self, header: wire.Header, payload: memoryview, lost: int) -> None:
        """A message that was checked, and how many records its sender has lost since the one before.

        The memory of the payload must stay as it is.
        """
        type_ = header.type
        if lost:
            self._put(FrameType.DROPPED, lost.to_bytes(8, "little"))
        if int(type_) in RECORDED:
            self._put(FrameType(int(type_)), payload)
        elif type_ is wire.MessageType.NAMES:
            new = {name_id: text.rstrip(b"\0") for name_id, text in wire.Name.FORMAT.iter_unpack(payload)}
            if len(self.names) < _NAMES_LIMIT:
                self.names |= new
                self._put(FrameType.NAMES, pack_names(new))

    def close(self) -> None:
        """The connection ended."""
        self._rank.pending.append(self.number)

    def _put(self, type_: FrameType, payload: bytes | memoryview) -> None:
        self._ring.put(self._rank, type_, self.number, payload)


@dataclass
class _RankLog:
    """One rank's frames on their way to its segment.

    `pending` holds frames, and the numbers of connections that have ended; the event loop appends, the
    writer takes from the front.
    """

    folder: Path
    identity: bytes = b"{}"
    taps: dict[int, Tap] = field(default_factory=dict)
    pending: deque[Frame | int] = field(default_factory=deque)
    writer: SegmentWriter | None = None
    segment: Segment | None = None

    def open_segment(self, path: Path, now_ns: int) -> None:
        """Begin a segment with what its frames need: who the rank is, and what name ids mean."""
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        self.writer = SegmentWriter(path)
        self.segment = Segment(path, now_ns, now_ns, 0)
        head = [Frame(FrameType.IDENTITY, 0, now_ns, self.identity)]
        head += [
            Frame(FrameType.NAMES, number, now_ns, pack_names(dict(tap.names)))
            for number, tap in list(self.taps.items())
        ]
        try:
            self.append(b"".join(frame.pack() for frame in head), now_ns)
        except OSError:  # what would follow could not be read without it
            self.writer.close()
            path.unlink(missing_ok=True)
            self.writer = self.segment = None
            raise

    def append(self, packed: bytes, now_ns: int) -> None:
        assert self.writer is not None and self.segment is not None
        self.writer.append(packed)
        self.segment.size = self.writer.size
        self.segment.last_ns = now_ns


class Ring:
    """Writes the ring of one host; `open` first, `close` last.

    Args:
        folder: a folder of its own.
        budget_bytes: what all segments together may take.
        age_s: how long records are kept.
        segment_bytes: size at which a segment is closed.
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        budget_bytes: int,
        age_s: float,
        segment_bytes: int = 8 << 20,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.folder = folder
        self._budget = budget_bytes
        self._age_ns = int(age_s * 1e9)
        self._segment_bytes = min(segment_bytes, max(budget_bytes // 4, 1))
        self._clock = clock
        self._ranks: dict[RankKey, _RankLog] = {}
        """Those that are connected, or have frames to be written."""
        self._changing = threading.Lock()
        """Held where a rank comes and where it goes: neither must miss the other."""
        self._closed = SegmentIndex(folder)
        self._put_bytes = 0  # counted on the event loop
        self._taken_bytes = 0  # counted on the writer's thread
        self._connections = 0
        self._serial = 0
        self._lock_file: int | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Condition()
        self._flush_wanted = 0
        self._flush_done = 0
        self._stopping = False
        self._hurry = False
        self._failing = False
        self.dropped_bytes = self._closed.dropped_bytes
        """Bytes of records that are gone, by reason: age, budget, backlog, disk, torn."""

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._closed.size + sum(segment.size for segment in self._open_segments())

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest segment began."""
        oldest = [segment.created_ns for segment in self._open_segments()]
        if self._closed.oldest is not None:
            oldest.append(self._closed.oldest.created_ns)
        return min(oldest, default=None)

    def open(self) -> None:
        """Take the folder, cut what a crash left, and begin to write.

        Raises:
            RingTaken: another exporter has it.
            OSError: it cannot be made or written.
        """
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._lock_file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock_file)
            self._lock_file = None
            raise RingTaken(f"{self.folder} is in use by another exporter") from error
        self._closed.recover()
        self._thread = threading.Thread(target=self._run, name="argus-ring", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is pending and end."""
        if self._thread is not None:
            with self._wake:
                self._stopping = True
                self._wake.notify_all()
            self._thread.join()
        if self._lock_file is not None:
            os.close(self._lock_file)

    def connect(self, identity: Identity) -> Tap:
        """A tap for a new connection of a rank, whose identity may have become better known."""
        with self._changing:
            rank = self._rank(identity.key)
            rank.identity = json.dumps(dataclasses.asdict(identity), sort_keys=True).encode()
            self._connections += 1
            tap = rank.taps[self._connections] = Tap(self, rank, self._connections)
        self.put(rank, FrameType.IDENTITY, tap.number, rank.identity)
        return tap

    def stacks(self, key: RankKey, begin_ns: int, end_ns: int, folded: Folded) -> None:
        """Folded stacks of a stretch of time (a `stacks.folded.Sink`); unknown ranks are passed over."""
        entries = [[thread, frames, count] for (thread, frames), count in folded.items()]
        content = json.dumps({"begin_ns": begin_ns, "end_ns": end_ns, "stacks": entries}).encode()
        with self._changing:
            rank = self._ranks.get(key)
            if rank is not None:
                self.put(rank, FrameType.STACKS, 0, content)

    def put(self, rank: _RankLog, type_: FrameType, connection: int, payload: bytes | memoryview) -> None:
        """Queue one frame (event loop)."""
        if self._put_bytes - self._taken_bytes + len(payload) > _BACKLOG_BYTES:
            self.dropped_bytes["backlog"] += len(payload)
            return
        self._put_bytes += len(payload)
        rank.pending.append(Frame(type_, connection, self._clock(), payload))
        if self._put_bytes - self._taken_bytes > _EAGER_BYTES and not self._hurry:
            with self._wake:
                self._hurry = True
                self._wake.notify_all()

    def flush(self, limit_s: float = 10.0) -> bool:
        """Wait until all that was put before is written (not on the event loop). False: it took too long."""
        with self._wake:
            self._flush_wanted += 1
            mine = self._flush_wanted
            self._wake.notify_all()
            return self._wake.wait_for(lambda: self._flush_done >= mine, limit_s)

    # -- writer thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(self._is_wanted, _FLUSH_S)
                self._hurry = False
                wanted, stopping = self._flush_wanted, self._stopping
            try:
                for key, rank in list(self._ranks.items()):
                    self._write(rank)
                    self._let_go(key, rank)
                self._enforce()
            except Exception:  # the exporter goes on without this second of the ring
                log.exception("trace ring not written")
            with self._wake:
                self._flush_done = wanted
                self._wake.notify_all()
            if stopping:
                for rank in list(self._ranks.values()):
                    self._close_segment(rank)
                return

    def _open_segments(self) -> list[Segment]:
        return [rank.segment for rank in list(self._ranks.values()) if rank.segment is not None]

    def _is_wanted(self) -> bool:
        return self._stopping or self._hurry or self._flush_wanted > self._flush_done

    def _write(self, rank: _RankLog) -> None:
        frames: list[Frame] = []
        ended: list[int] = []
        for _ in range(len(rank.pending)):
            entry = rank.pending.popleft()
            if isinstance(entry, Frame):
                frames.append(entry)
            else:
                ended.append(entry)
        size = sum(len(frame.payload) for frame in frames)
        self._taken_bytes += size
        if frames and (rank.writer is not None or any(frame.type not in _HEAD for frame in frames)):
            try:
                self._append(rank, frames)
            except OSError as error:
                self.dropped_bytes["disk"] += size
                self._close_segment(rank)  # the next one begins with all names, those that were lost too
                if not self._failing:
                    log.error("trace ring cannot be written, records are dropped", error=error)
                self._failing = True
            else:
                if self._failing:
                    log.info("trace ring is written again")
                self._failing = False
        for number in ended:
            rank.taps.pop(number, None)

    def _let_go(self, key: RankKey, rank: _RankLog) -> None:
        """Close the segment of a rank whose last connection has ended, and keep nothing of it in memory."""
        with self._changing:
            if rank.taps or rank.pending:
                return
            del self._ranks[key]
        self._close_segment(rank)

    def _append(self, rank: _RankLog, frames: list[Frame]) -> None:
        packed = b"".join(frame.pack() for frame in frames)
        for attempt in range(3):
            try:
                if self._is_full(rank):
                    self._close_segment(rank)
                if rank.writer is None:
                    self._open_segment(rank)
                rank.append(packed, self._clock())
            except OSError:
                # No room: what is oldest makes some, and what is then still refused is lost.
                if attempt == 2 or not self._closed.drop_oldest("disk"):
                    raise
            else:
                return

    def _is_full(self, rank: _RankLog) -> bool:
        segment = rank.segment
        return segment is not None and (
            segment.size >= self._segment_bytes
            or self._clock() - segment.created_ns > self._age_ns // _SEGMENT_AGE_SHARE
        )

    def _open_segment(self, rank: _RankLog) -> None:
        now = self._clock()
        self._serial += 1
        rank.open_segment(rank.folder / segment_name(now, self._serial), now)

    def _close_segment(self, rank: _RankLog) -> None:
        if rank.writer is not None and rank.segment is not None:
            rank.writer.close()
            self._closed.add(rank.segment)
        rank.writer = rank.segment = None

    def _enforce(self) -> None:
        limit = self._clock() - self._age_ns
        while (oldest := self._closed.oldest) is not None and oldest.last_ns < limit:
            self._closed.drop_oldest("age")
        for rank in list(self._ranks.values()):
            if rank.segment is not None and rank.segment.last_ns < limit:
                self._close_segment(rank)
        while self.size > self._budget or len(self._closed) > _SEGMENTS_LIMIT:
            if self._closed.oldest is None:
                for rank in list(self._ranks.values()):
                    self._close_segment(rank)
            if not self._closed.drop_oldest("budget"):
                return

    def _rank(self, key: RankKey) -> _RankLog:
        rank = self._ranks.get(key)
        if rank is None:
            rank = self._ranks[key] = _RankLog(rank_folder(self.folder, key))
        return rank
