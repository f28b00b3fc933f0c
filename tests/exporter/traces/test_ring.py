"""The ring keeps what ranks sent, within its limits, through crashes and full disks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from argus_core import wire
from argus_exporter.place.topology import Identity
from argus_exporter.traces import reader
from argus_exporter.traces import ring as ring_module
from argus_exporter.traces.reader import (
    NotInRing,
    TooManyRecords,
    steps_between,
    window_of_steps,
    window_of_time,
)
from argus_exporter.traces.ring import Ring, RingTaken
from argus_exporter.traces.segment_index import rank_folder, rank_folders, segment_name
from argus_exporter.traces.segments import Frame, FrameType, SegmentWriter, cut_torn_tail, read_frames
from argus_exporter.traces.window import LayerSample
from exporter.traces.rings import KERNELS, STEP_NS, Clock, Producer, identity, segments

KEY = ("job", 0)


@pytest.fixture
def ring(tmp_path: Path):
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600)
    ring.open()
    yield ring
    ring.close()


def test_a_window_of_steps_has_what_began_in_them(ring: Ring) -> None:
    """Whole steps, with names, groups and topology; what others did stays out."""
    producer = Producer(ring)
    producer.pauses()
    producer.layer()
    for _ in range(10):
        producer.step()
    ring.flush()
    window = window_of_steps(ring.folder, KEY, 0, 2)
    assert (window.first_step, window.last_step) == (0, 2)
    assert (window.begin_ns, window.end_ns) == (producer.begin, producer.begin + 3 * STEP_NS)
    assert len(window.kernels) == 3 * KERNELS
    assert {window.texts[i] for i in window.kernels["name_id"].tolist()} == {"gemm"}
    assert [window.texts[i] for i in window.spans["phase_id"].tolist()] == ["forward"] * 3
    assert window.groups == ["dp:pp0"] * 3
    assert window.identity == identity()
    assert [(pause.category, pause.name, pause.duration_ns) for pause in window.pauses] == [
        ("gc", "gc generation 2", 700),
        ("compile", "dynamo", 800),
    ]
    host = wire.Source.HOST
    assert window.layers == [LayerSample("gemm", 12, 3, 0, host, producer.begin + 5, 700)]


def test_a_time_range_is_widened_to_whole_steps(ring: Ring) -> None:
    """From the middle of step 3 to the middle of step 5: steps 3 to 5."""
    producer = Producer(ring)
    for _ in range(10):
        producer.step()
    ring.flush()
    begin = producer.begin + 3 * STEP_NS + STEP_NS // 2
    window = window_of_time(ring.folder, KEY, begin, begin + 2 * STEP_NS)
    assert (window.first_step, window.last_step) == (3, 5)
    assert steps_between(ring.folder, KEY, begin, begin + 1) == (3, 3)


def test_without_steps_a_time_range_is_taken_as_it_is(ring: Ring) -> None:
    """Kernels of a process that has no iterations."""
    producer = Producer(ring)
    for _ in range(4):
        producer.step(marked=False)
    ring.flush()
    begin = producer.begin + STEP_NS // 2
    window = window_of_time(ring.folder, KEY, begin, begin + STEP_NS)
    assert (window.begin_ns, window.end_ns, window.first_step) == (begin, begin + STEP_NS, None)
    assert len(window.kernels) == KERNELS
    later = producer.begin + 10 * STEP_NS
    with pytest.raises(NotInRing, match="nothing in the ring of that time"):
        window_of_time(ring.folder, KEY, later, later + STEP_NS)


def test_a_window_is_no_larger_than_memory_is_for(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long steps the time that was asked for, not the whole steps; of too many steps none, and why."""
    producer = Producer(ring)
    for _ in range(10):
        producer.step()
    ring.flush()
    in_a_step = len(window_of_steps(ring.folder, KEY, 0, 0).kernels) + len(
        window_of_steps(ring.folder, KEY, 0, 0).spans
    )
    monkeypatch.setattr(reader, "_RECORDS", in_a_step)
    begin = producer.begin + STEP_NS // 2
    window = window_of_time(ring.folder, KEY, begin, begin + STEP_NS)
    assert window.first_step is None and 0 < len(window.kernels) <= in_a_step
    with pytest.raises(TooManyRecords, match="ask for fewer steps"):
        window_of_steps(ring.folder, KEY, 0, 5)


def test_a_segment_whose_beginning_does_not_fit_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and identity are its head; records behind half of it would be of nobody."""
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600, segment_bytes=8192)
    ring.open()
    producer = Producer(ring)
    producer.step()
    ring.flush()
    append, refusals = SegmentWriter.append, iter((False, True))  # the file's header fits, its head does not

    def full(writer: SegmentWriter, frames: bytes) -> None:
        if writer.path not in before and next(refusals, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        append(writer, frames)

    before = set(segments(tmp_path))
    monkeypatch.setattr(SegmentWriter, "append", full)
    while set(segments(tmp_path)) <= before:
        producer.step()
        ring.flush()
    ring.close()
    (path,) = set(segments(tmp_path)) - before
    assert [frame.type for frame in read_frames(path)][:2] == [FrameType.IDENTITY, FrameType.NAMES]


def test_names_of_two_connections_meet(ring: Ring) -> None:
    """Phases and kernels come by different connections, whose ids mean different things."""
    one, two = Producer(ring, ids=count(1)), Producer(ring, ids=count(2))
    two.begin = one.begin
    one.step()
    two.step()
    ring.flush()
    window = window_of_steps(ring.folder, KEY, 0, 0)
    assert len(window.kernels) == 2 * KERNELS
    assert {window.texts[i] for i in window.kernels["name_id"].tolist()} == {"gemm"}


def test_names_outlive_the_segment_and_the_process(tmp_path: Path) -> None:
    """The segment that had the names first is gone, and so is the process; the records still have names."""
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600, segment_bytes=8192)
    ring.open()
    producer = Producer(ring)
    for _ in range(20):
        producer.step()
        ring.flush()
    ring.close()
    paths = segments(tmp_path)
    assert len(paths) > 4
    for path in paths[:-2]:
        path.unlink()
    window = window_of_steps(tmp_path, KEY, 19, 19)
    assert len(window.kernels) == KERNELS
    assert {window.texts[i] for i in window.kernels["name_id"].tolist()} == {"gemm"}
    assert window.identity == identity()


def test_steps_that_ran_twice_are_shown_as_they_ran_last(ring: Ring) -> None:
    """A job restarted from its checkpoint."""
    first = Producer(ring)
    first.step()
    second = Producer(ring, begin=first.begin + 10 * STEP_NS)
    second.step()
    ring.flush()
    assert window_of_steps(ring.folder, KEY, 0, 0).begin_ns == second.begin


def test_what_is_not_there_is_said(ring: Ring) -> None:
    """With the steps that are."""
    with pytest.raises(NotInRing, match="rank 0 of job: no step of 5 to 6 in the ring; it has none"):
        window_of_steps(ring.folder, KEY, 5, 6)
    producer = Producer(ring)
    producer.step()
    producer.step()
    ring.flush()
    with pytest.raises(NotInRing, match="it has 0 to 1"):
        window_of_steps(ring.folder, KEY, 5, 6)
    assert [key for key, _ in rank_folders(ring.folder)] == [KEY]


def test_an_identity_of_another_version_is_read(tmp_path: Path) -> None:
    """After an update or a downgrade the ring of before is still of use."""
    content = {"training_job": "job", "rank": 0, "coordinates": {"dp": 2}, "color": "blue"}
    folder = rank_folder(tmp_path, KEY)
    folder.mkdir(parents=True)
    now = time.time_ns()
    writer = SegmentWriter(folder / segment_name(now, 1))
    writer.append(Frame(FrameType.IDENTITY, 1, now, json.dumps(content).encode()).pack())
    span = wire.Span(now - STEP_NS, 1000, 1, 0, 0, 0, 1, 0).pack()
    writer.append(Frame(FrameType.SPANS, 1, now, span).pack())
    writer.close()
    window = window_of_time(tmp_path, KEY, now - 2 * STEP_NS, now)
    assert window.identity.coordinates == {"dp": 2}


def test_drops_on_the_way_are_counted_in_the_window(tmp_path: Path) -> None:
    """By when they were noticed."""
    clock = Clock()
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600, clock=clock)
    ring.open()
    producer = Producer(ring, begin=clock.now)
    producer.step()
    for lost, after in ((5, 0), (7, STEP_NS // 2), (100, STEP_NS)):
        clock.now += after
        producer.lost = lost
        producer.pauses()
    ring.close()
    window = window_of_steps(tmp_path, KEY, 0, 0)
    assert window.drops == [(producer.begin, 5), (producer.begin + STEP_NS // 2, 12)]
    assert window.dropped == 12


def test_folded_stacks_are_kept(ring: Ring) -> None:
    """Windows that touch the steps; a rank that never connected has none."""
    producer = Producer(ring)
    producer.step()
    folded = {("MainThread", ("main", "forward")): 3}
    ring.stacks(KEY, producer.begin, producer.begin + 1, folded)
    ring.stacks(KEY, producer.begin + 5 * STEP_NS, producer.begin + 6 * STEP_NS, folded)
    ring.stacks(("job", 9), producer.begin, producer.begin + 1, folded)
    ring.flush()
    (samples,) = window_of_steps(ring.folder, KEY, 0, 0).samples
    assert samples.counts == folded


def test_a_stack_is_a_record_for_each_of_its_samples(ring: Ring) -> None:
    """One record on the wire may tell of four billion, and each becomes a packet of the file."""
    producer = Producer(ring)
    producer.step()
    ring.stacks(KEY, producer.begin, producer.begin + 1, {("MainThread", ("main",)): 2**32 - 1})
    ring.flush()
    with pytest.raises(TooManyRecords):
        window_of_steps(ring.folder, KEY, 0, 0)


def test_the_oldest_go_when_the_budget_is_reached(tmp_path: Path) -> None:
    """Of all ranks; what is gone is counted in bytes, and the ring stays within its budget."""
    ring = Ring(tmp_path, budget_bytes=200_000, age_s=3600, segment_bytes=20_000)
    ring.open()
    producers = [Producer(ring, rank) for rank in (0, 1)]
    for _ in range(60):
        for producer in producers:
            producer.step()
        ring.flush()
        assert ring.size == sum(path.stat().st_size for path in segments(tmp_path)) <= 200_000
    assert ring.dropped_bytes["budget"] > 0
    for rank in (0, 1):
        window_of_steps(tmp_path, ("job", rank), 59, 59)
        with pytest.raises(NotInRing):
            window_of_steps(tmp_path, ("job", rank), 0, 0)
    ring.close()


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    """Also of a rank that left."""
    clock = Clock()
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=60, clock=clock)
    ring.open()
    gone = Producer(ring, 0)
    gone.step()
    gone.tap.close()
    ring.flush()
    stays = Producer(ring, 1)
    for _ in range(20):
        clock.now += 10_000_000_000
        stays.step()
        ring.flush()
    assert {path.parent.name for path in segments(tmp_path)} == {"1"}
    assert ring.dropped_bytes["age"] > 0
    assert clock.now - ring.oldest_ns < 100e9
    ring.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_ranks_that_came_and_left_hold_nothing(ring: Ring) -> None:
    """A name in each HELLO, as from a hostile peer: no file, no folder, no descriptor, no memory of them."""
    stays = Producer(ring, 0)
    stays.step()
    ring.flush()
    before, files = descriptors(), len(list(ring.folder.rglob("*")))
    for number in range(500):
        ring.connect(Identity(f"job{number}", 1)).close()
    ring.flush()
    assert (descriptors(), len(list(ring.folder.rglob("*")))) == (before, files)
    assert list(ring._ranks) == [KEY]


def test_a_rank_that_left_keeps_its_records_and_no_descriptor(ring: Ring) -> None:
    """Its segment is closed when its last connection ends; when it comes back there is another."""
    before = descriptors()
    for turn in range(3):
        phases = Producer(ring, begin=time.time_ns() - (10 - turn) * STEP_NS)
        kernels = Producer(ring, ids=count(5))
        kernels.tap.close()
        ring.flush()
        phases.step()
        ring.flush()
        assert descriptors() == before + 1
        phases.tap.close()
        ring.flush()
        assert (descriptors(), ring._ranks) == (before, {})
    assert len(segments(ring.folder)) == 3
    assert len(window_of_steps(ring.folder, KEY, 0, 0).kernels) == KERNELS


def test_a_rank_comes_back_while_its_end_is_written(ring: Ring) -> None:
    """Another connection at that very moment: what it sends is kept, and the backlog returns to nothing."""
    for turn in range(200):
        producer = Producer(ring, begin=time.time_ns() - (1000 - turn) * STEP_NS)
        producer.steps = turn
        producer.step(1)
        producer.tap.close()
        if turn % 3 == 0:
            ring.flush()
    ring.flush()
    assert len(window_of_steps(ring.folder, KEY, 0, 199).iterations) == 200
    assert (ring._put_bytes - ring._taken_bytes, ring._ranks) == (0, {})


def test_ranks_with_one_record_each_do_not_fill_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file takes a block of the disk whatever it holds, so the number of files has a limit too."""
    monkeypatch.setattr(ring_module, "_SEGMENTS_LIMIT", 50)
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600)
    ring.open()
    for rank in range(200):
        producer = Producer(ring, rank)
        producer.step(1)
        producer.tap.close()
    ring.flush()
    assert len(segments(tmp_path)) == len(list(tmp_path.glob("*/*/"))) == 50
    assert ring.dropped_bytes["budget"] > 0
    assert ring.size == sum(path.stat().st_size for path in segments(tmp_path))
    ring.close()


def test_folders_without_records_are_removed(tmp_path: Path) -> None:
    """When the last segment goes, and what an exporter of before has left."""
    (tmp_path / "left" / "7").mkdir(parents=True)
    (tmp_path / "bare").mkdir()
    clock = Clock()
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=60, clock=clock)
    ring.open()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    producer = Producer(ring)
    producer.step()
    producer.tap.close()
    ring.flush()
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "job"}
    clock.now += 61 * 10**9
    ring.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    ring.close()


def test_a_killed_exporter_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """SIGKILL while it writes: every step that was flushed is there, whole; the next exporter goes on."""
    script = Path(__file__).with_name("ring_writer.py")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    written = 0
    for line in process.stdout:
        written = int(line.split()[1])
        if written >= 500:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600)
    ring.open()
    window = window_of_steps(tmp_path, KEY, 0, written - 1)
    assert len(window.iterations) == written
    assert len(window.kernels) == written * KERNELS
    producer = Producer(ring)
    for _ in range(written + 1000):
        producer.step()
    ring.flush()
    assert window_of_steps(tmp_path, KEY, written + 999, written + 999).begin_ns > producer.begin
    ring.close()


@pytest.mark.parametrize("torn", [1, 10, 27, 28, 100])
def test_a_torn_tail_is_cut_counted_and_never_shown(tmp_path: Path, torn: int) -> None:
    """What a power failure left of the last frame."""
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600)
    ring.open()
    producer = Producer(ring)
    producer.step()
    ring.flush()
    producer.step()
    ring.close()
    (path,) = segments(tmp_path)
    whole = path.stat().st_size
    frame = Frame(FrameType.KERNELS, 1, 0, bytes(range(48)) * 10).pack()
    with path.open("ab") as file:
        file.write(frame[:torn])
    assert len(window_of_steps(tmp_path, KEY, 0, 1).kernels) == 2 * KERNELS
    again = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600)
    again.open()
    assert again.dropped_bytes["torn"] == torn
    assert path.stat().st_size == whole
    again.close()


def test_a_flipped_bit_ends_the_segment(tmp_path: Path) -> None:
    """Nothing behind it is trusted; what lies before it is shown."""
    path = tmp_path / "a.segment"
    writer = SegmentWriter(path)
    frames = [Frame(FrameType.SPANS, 1, number, bytes([number]) * 40) for number in range(10)]
    for frame in frames:
        writer.append(frame.pack())
    writer.close()
    assert [frame.arrival_ns for frame in read_frames(path)] == list(range(10))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    left = [frame.arrival_ns for frame in read_frames(path)]
    assert left == list(range(len(left)))
    assert 0 < len(left) < 10
    assert cut_torn_tail(path) > 0
    assert [frame.arrival_ns for frame in read_frames(path)] == left


def test_a_file_that_is_no_segment_has_no_frames(tmp_path: Path) -> None:
    """Not even by chance."""
    path = tmp_path / "a.segment"
    path.write_bytes(b"something else entirely" * 10)
    assert list(read_frames(path)) == []


class FullDisk:
    """`os.write` that finds no room for a while, sometimes after half of what it was given."""

    def __init__(self) -> None:
        self.full = False
        self._write = os.write
        self._half = False

    def __call__(self, descriptor: int, data) -> int:
        if not self.full:
            return self._write(descriptor, data)
        self._half = not self._half
        if self._half and len(data) > 1:
            return self._write(descriptor, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_drops_the_oldest_then_what_comes_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted; no half frame stays; once there is room the ring goes on."""
    disk = FullDisk()
    monkeypatch.setattr(ring_module.os, "write", disk)
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600, segment_bytes=8192)
    ring.open()
    producer = Producer(ring)
    for _ in range(20):
        producer.step()
        ring.flush()
    before = len(segments(tmp_path))
    disk.full = True
    producer.step()
    assert ring.flush()
    assert ring.dropped_bytes["disk"] > KERNELS * 40
    assert len(segments(tmp_path)) < before
    disk.full = False
    producer.step()
    ring.flush()
    assert len(window_of_steps(tmp_path, KEY, 21, 21).kernels) == KERNELS
    with pytest.raises(NotInRing):
        window_of_steps(tmp_path, KEY, 20, 20)
    assert ring.size == sum(path.stat().st_size for path in segments(tmp_path))
    ring.close()


def test_names_that_came_while_the_disk_was_full_are_known_later(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are sent once a connection: the segment that lacks them is ended."""
    disk = FullDisk()
    monkeypatch.setattr(ring_module.os, "write", disk)
    old = Producer(ring)
    old.step()
    ring.flush()
    disk.full = True
    new = Producer(ring, begin=old.begin + STEP_NS)
    new.step()
    assert ring.flush()
    disk.full = False
    new.step()
    ring.flush()
    window = window_of_time(ring.folder, KEY, new.begin, new.begin + 2 * STEP_NS)
    assert {window.texts[name] for name in window.kernels["name_id"].tolist()} == {"gemm"}


def test_a_disk_that_hangs_costs_records_and_no_memory(tmp_path: Path) -> None:
    """The backlog is bounded; what is beyond is counted."""
    ring = Ring(tmp_path, budget_bytes=1 << 30, age_s=3600)  # not opened: nobody writes
    producer = Producer(ring)
    payload = np.zeros(1600 * 40, np.uint8).tobytes()
    for _ in range(1000):
        producer.message(wire.MessageType.KERNELS, payload, 1600)
    assert ring.dropped_bytes["backlog"] == 1000 * len(payload) - (16 << 20) // len(payload) * len(payload)


def test_two_exporters_do_not_share_a_ring(ring: Ring) -> None:
    """The second is told."""
    with pytest.raises(RingTaken, match="in use by another exporter"):
        Ring(ring.folder, budget_bytes=1 << 30, age_s=3600).open()
