"""Play recordings to an exporter as if they happened now, through the same wire as a training process.

When things happen is scaled by the speed; how long they took stays as recorded. So at speed 10 a window of
`windows.seconds: 60` closes after 6 s and still says what the recording says. At speed 0 everything goes out
at once, stamped so that it ends now. At speed 0 and 1, which scale nothing, phases also come as they lay on
the GPU; at others kernels and the gaps between them do not fit together.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Final

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, join
from argus_core.link import Link
from argus_exporter.replay.gpu_spans import GPU_SPAN_DTYPE, on_gpu
from argus_exporter.replay.recording import Array, RankRecording
from argus_exporter.replay.rows import sort_by_start

_TICK_NS: Final = 250_000_000
"""Recording time that goes out at once at speed 0 and 1; faster speeds send as often, so more at once."""
_PATIENCE_S: Final = 10.0

Fleet = Sequence[RankRecording]


@dataclass
class Progress:
    """How far the player is. Written by its thread, read by anyone."""

    passes: int = 0
    step: int = -1
    kernels: int = 0
    dropped: int = 0
    behind_s: float = 0.0
    """How late the last batch was: the recording is faster than this machine."""


class Player:
    """Sends one recording after another; blocks, so it runs in a thread of its own.

    Args:
        passes: fleets to play one after another, each with the same ranks; steps and time go on.
        socket_path: where the exporter listens.
        speed: recorded seconds a second; 0: as fast as the exporter takes them (the passes must end).
        stay: at the end, keep the connections until `stop` and say no BYE.
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        passes: Iterable[Fleet],
        socket_path: Path,
        *,
        speed: float = 1.0,
        stay: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._passes = passes
        self._socket_path = socket_path
        self._speed = speed
        self._stay = stay
        self._clock = clock
        self._ranks: dict[int, _RankLink] = {}
        self._stop = threading.Event()
        self.progress = Progress()
        self.finished = False
        """Whether the passes are through; the connections may stay."""

    def stop(self) -> None:
        """End soon, from any thread: what was not yet sent stays unsent."""
        self._stop.set()

    def run(self) -> Progress:
        """Play until the passes or the patience of the caller end."""
        try:
            self._play()
            self.finished = True
            if self._stay:
                self._stop.wait()
        finally:
            for rank in self._ranks.values():
                rank.link.close(exit_status=0)
                self.progress.dropped = sum(rank.link.dropped for rank in self._ranks.values())
        return self.progress

    def _play(self) -> None:
        anchor_ns = self._clock()
        played_ns = 0
        next_step: int | None = None
        passes = self._passes
        if self._speed == 0:
            passes = list(passes)
            anchor_ns -= sum(end - begin for begin, end in map(_extent, passes))
        for fleet in passes:
            begin, end = _extent(fleet)
            first, last = _step_range(fleet)
            step_shift = 0 if next_step is None else next_step - first
            next_step = last + 1 + step_shift
            tracks = []
            for recording in fleet:
                rank = self._ranks.get(recording.rank)
                if rank is None:
                    rank = self._ranks[recording.rank] = _RankLink(recording, self._socket_path)
                tracks.append(_Track(recording, rank, begin, anchor_ns, played_ns, self._scale, step_shift))
            if not self._play_pass(tracks, anchor_ns, played_ns, end - begin):
                return
            played_ns += end - begin
            self.progress.passes += 1

    def _play_pass(self, tracks: list[_Track], anchor_ns: int, played_ns: int, length_ns: int) -> bool:
        """Whether the pass was played to its end."""
        tick = round(_TICK_NS * max(self._speed, 1.0))
        at = 0
        while at < length_ns:
            at = min(at + tick, length_ns)
            if self._speed > 0:
                due = anchor_ns + (played_ns + at) / self._speed
                wait_s = (due - self._clock()) / 1e9
                self.progress.behind_s = max(-wait_s, 0.0)
                if wait_s > 0:
                    self._stop.wait(wait_s)
            if self._stop.is_set():
                return False
            for track in tracks:
                track.send_until(at, self.progress)
            self.progress.dropped = sum(track.rank.link.dropped for track in tracks)
        return True

    @property
    def _scale(self) -> float:
        return 1.0 if self._speed == 0 else 1.0 / self._speed


@dataclass
class _RankLink:
    """One rank's connection, with the totals that its training process would keep."""

    recording: RankRecording
    socket_path: Path
    link: Link = field(init=False)
    total_count: int = 0
    total_seconds: float = 0.0
    total_squared: float = 0.0

    def __post_init__(self) -> None:
        identity = self.recording.identity

        def hello() -> wire.Hello:
            return wire.hello(
                pid=os.getpid(),
                rank=identity.rank,
                training_job=identity.training_job,
                monotonic_ns=time.monotonic_ns(),
                realtime_ns=time.time_ns(),
                local_rank=identity.local_rank,
                world_size=identity.world_size,
                coordinates=identity.coordinates,
                sizes=identity.sizes,
                node=identity.node,
                gpu_uuid=identity.gpu_uuid,
                role=identity.role,
            )

        self.link = Link(self.socket_path, hello, patience_s=_PATIENCE_S)
        self.link.add(wire.ActivityChange(time.time_ns(), wire.Activity.TRAIN))
        spans = self.recording.spans
        if self.recording.own_work:
            for phase_id in np.unique(spans["phase_id"][spans["kind"] == wire.Kind.COMPUTE]).tolist():
                name_id = self.link.name_id(self.recording.texts[phase_id])
                self.link.add(wire.PhaseInfo(name_id, wire.Kind.COMPUTE, wire.waits_mask(())))
        self.link.flush()

    def iteration(self, step: int, end_ns: int, duration_ns: int) -> None:
        seconds = duration_ns / 1e9
        self.total_count += 1
        self.total_seconds += seconds
        self.total_squared += seconds * seconds
        self.link.add(
            wire.Iteration(
                step, end_ns, duration_ns, self.total_count, self.total_seconds, self.total_squared
            )
        )


class _Track:
    """One recording of a pass, ready to be sent: times and ids are already those of the wire.

    Kernels go out once they have started, not once they have ended: a window closes at the first later
    kernel, and one that straddles its end must not come after that. Spans and iterations go out when they
    have ended.
    """

    def __init__(
        self,
        recording: RankRecording,
        rank: _RankLink,
        begin_ns: int,
        anchor_ns: int,
        played_ns: int,
        scale: float,
        step_shift: int,
    ) -> None:
        self.rank = rank
        ids = np.array([rank.link.name_id(text) if text else 0 for text in recording.texts], np.uint32)

        def now(recorded: Array) -> Array:
            """Recorded times to the times at which they are played."""
            offset = (recorded.astype(np.int64) - begin_ns + played_ns) * scale
            times: Array = anchor_ns + np.rint(offset).astype(np.int64)
            return times

        kernels = recording.kernels.copy()
        kernels["name_id"] = ids[kernels["name_id"]]
        self._gpu_spans, self._gpu_spans_at = np.zeros(0, GPU_SPAN_DTYPE), np.zeros(0, np.int64)
        located = on_gpu(recording) if scale == 1.0 else None
        if located is not None:
            marks = np.zeros(len(located.marks), KERNEL_DTYPE)
            marks["mark"] = [wire.step_mark(step + step_shift) for step, _ in located.marks]
            marks["start_ns"] = [time_ns for _, time_ns in located.marks]
            marks["operation"], marks["name_id"] = wire.Operation.MEMSET, rank.link.name_id("Memset (Device)")
            marks["stream"], marks["device"] = located.stream, located.device
            kernels = join((kernels, marks))
            sort_by_start(kernels)
            self._gpu_spans, self._gpu_spans_at = located.spans, located.span_ends - begin_ns
            self._gpu_spans["step"] += np.uint64(step_shift)
            self._gpu_spans["phase_id"] = ids[self._gpu_spans["phase_id"]]
        self._kernels_at = kernels["start_ns"].astype(np.int64) - begin_ns
        kernels["start_ns"] = now(kernels["start_ns"])
        self._kernels = kernels

        ends = (recording.spans["start_ns"] + recording.spans["duration_ns"]).astype(np.int64)
        order = np.argsort(ends, kind="stable")
        spans = recording.spans[order]
        self._spans_at = ends[order] - begin_ns
        spans["start_ns"] = now(spans["start_ns"])
        spans["step"] = spans["step"].astype(np.int64) + step_shift
        spans["phase_id"] = ids[spans["phase_id"]]
        spans["group_id"] = ids[spans["group_id"]]
        self._spans = spans

        iterations = recording.iterations
        ends = iterations["start_ns"] + iterations["duration_ns"]
        order = np.argsort(ends, kind="stable")
        self._iterations_at = ends[order] - begin_ns
        self._iterations = [
            (int(step) + step_shift, int(end), int(duration))
            for step, end, duration in zip(
                iterations["step"][order], now(ends[order]), iterations["duration_ns"][order], strict=True
            )
        ]
        self._sent = [0, 0, 0, 0]

    def send_until(self, at_ns: int, progress: Progress) -> None:
        """Send what has happened until `at_ns` after the pass began."""
        sent = self._sent
        times = self._kernels_at, self._spans_at, self._iterations_at, self._gpu_spans_at
        upto = [int(np.searchsorted(at, at_ns, side="right")) for at in times]
        link = self.rank.link
        _add_array(link, wire.Span, self._spans[sent[1] : upto[1]])
        _add_array(link, wire.Kernel, self._kernels[sent[0] : upto[0]])
        _add_array(link, wire.GpuSpan, self._gpu_spans[sent[3] : upto[3]])
        for step, end, duration in self._iterations[sent[2] : upto[2]]:
            self.rank.iteration(step, end, duration)
            progress.step = max(progress.step, step)
        link.flush()
        progress.kernels += int(np.count_nonzero(self._kernels["mark"][sent[0] : upto[0]] == 0))
        self._sent = upto


async def play(player: Player) -> Progress:
    """Run a player beside the event loop; cancelling this stops it and waits for its goodbye."""
    running = asyncio.ensure_future(asyncio.to_thread(player.run))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        player.stop()
        await running
        raise


async def serve(
    recordings: Fleet, socket_path: Path, *, speed: float = 1.0, loop: bool = False, stay: bool = False
) -> Progress:
    """Play recordings to the exporter at `socket_path`, once or until cancelled (`loop`)."""
    passes: Iterable[Fleet] = repeat(recordings) if loop else [recordings]
    return await play(Player(passes, socket_path, speed=speed, stay=stay))


def _extent(fleet: Fleet) -> tuple[int, int]:
    return min(r.begin_ns for r in fleet), max(r.end_ns for r in fleet)


def _step_range(fleet: Fleet) -> tuple[int, int]:
    steps = [r.iterations["step"] for r in fleet if len(r.iterations)]
    if not steps:
        return 0, -1
    return min(int(s.min()) for s in steps), max(int(s.max()) for s in steps)


def _add_array(link: Link, record: type[wire.Record], rows: Array) -> None:
    """Queue whole packets' worth of rows at a time: packing 1e5 kernels one by one takes seconds."""
    size = wire.records_per_message(record)
    for start in range(0, len(rows), size):
        link.add_packed(record.TYPE, rows[start : start + size].tobytes())
