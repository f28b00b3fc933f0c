"""The shared page: what a producer marks is what the exporter reads, whatever the peer hands over."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import tempfile
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core import wire
from argus_core.link import Link
from argus_core.shared_page import (
    DUMP_BYTES,
    GROUP_SLOTS,
    OPERATIONS,
    PAGE,
    PHASE_SLOTS,
    RECORDERS,
    SIZE,
    SPARE_WORD,
    CollectiveSequence,
    PageError,
    PageReader,
    PageWriter,
    pack_recorded,
    recorded_word,
)


@pytest.fixture
def writer():
    page = PageWriter()
    yield page
    page.close()


@pytest.fixture
def reader(writer):
    page = PageReader(os.dup(writer.fd))
    yield page
    page.close()


def test_an_open_span_is_seen_until_it_ends(writer, reader):
    slot = writer.phase("forward", wire.Kind.COMPUTE)
    writer.words[slot] = 123
    (span,) = reader.read().open_spans
    assert (span.phase, span.kind, span.start_monotonic_ns) == ("forward", wire.Kind.COMPUTE, 123)
    writer.words[slot] = 0
    assert reader.read().open_spans == ()


def test_collectives_are_counted_a_group(writer, reader):
    before = time.monotonic_ns()
    for _ in range(3):
        writer.enter_collective("dp:tp0")
    writer.enter_collective("tp:dp0")
    first, second = reader.read().collectives
    assert (first.group, first.number) == ("dp:tp0", 3)
    assert (second.group, second.number) == ("tp:dp0", 1)
    assert before <= first.entered_monotonic_ns <= second.entered_monotonic_ns <= time.monotonic_ns()


def entered(writer: PageWriter, group: str, number: int) -> int:
    """Claim a group that has entered so many; the word of its flight recorder."""
    slot = writer.group(group)
    assert slot is not None
    writer.words[slot] = number
    return recorded_word(slot)


def recorded(found: CollectiveSequence) -> tuple[str, int | None, int | None]:
    return found.operation, found.started, found.completed


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_the_flight_recorder_says_of_the_last_collective(writer, reader, operation):
    """Numbers are those of the group's collectives."""
    word = entered(writer, "dp", 70_000)
    writer.words[word] = pack_recorded(70_000, operation, 1, 3)
    assert recorded(reader.read().collectives[0]) == (operation, 69_999, 69_997)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (("", None, 0), ("", None, 8)),
        (("barrier", None, None), ("barrier", None, None)),
        (("new_in_torch_3", 0, None), ("other", 8, None)),
        (("", None, 1 << 40), ("", None, None)),  # more than there were
        (("", None, -3), ("", None, 8)),
    ],
)
def test_what_the_flight_recorder_does_not_say(writer, reader, said, read):
    """gloo starts nothing; a recorder without the entry has no name."""
    writer.words[entered(writer, "dp", 8)] = pack_recorded(8, *said)
    assert recorded(reader.read().collectives[0]) == read


def test_a_rank_that_has_gone_on_voids_what_the_flight_recorder_said(writer, reader):
    """Hooks count in the training thread and know nothing of that word."""
    writer.words[entered(writer, "dp", 8)] = pack_recorded(8, "barrier", 0, 1)
    writer.enter_collective("dp")
    assert recorded(reader.read().collectives[0]) == ("", None, None)


def test_each_group_has_a_word_of_its_own(writer, reader):
    """The last one ends within the page; a group without a slot shares the spare word."""
    words = [entered(writer, f"group{n}", n + 1) for n in range(GROUP_SLOTS)]
    for number, word in enumerate(words):
        writer.words[word] = pack_recorded(number + 1, "all_reduce", None, number % 2)
    assert writer.group("one more") is None
    assert recorded_word(SPARE_WORD) == SPARE_WORD
    page = reader.read()
    assert page.open_spans == ()
    assert [one.number for one in page.collectives] == list(range(1, GROUP_SLOTS + 1))
    assert [one.completed for one in page.collectives] == [n + 1 - n % 2 for n in range(GROUP_SLOTS)]


def test_the_step_and_its_start(writer, reader):
    writer.step(17)
    page = reader.read()
    assert page.step == 17
    assert 0 < page.step_monotonic_ns <= time.monotonic_ns()


def test_a_phase_keeps_its_slot_and_slots_end(writer, reader):
    slots = [writer.phase(f"phase{n}", wire.Kind.HOST) for n in range(PHASE_SLOTS)]
    assert len(set(slots)) == PHASE_SLOTS
    assert writer.phase("phase7", wire.Kind.HOST) == slots[7]
    assert writer.phase("one more", wire.Kind.HOST) is None
    writer.enter_collective("dp")
    assert [collective.group for collective in reader.read().collectives] == ["dp"]


def test_a_long_name_is_cut_at_a_character(writer, reader):
    writer.words[writer.phase("é" * 40, wire.Kind.COMM)] = 1
    assert reader.read().open_spans[0].phase == "é" * 23


def test_what_is_no_memfd_is_refused_and_closed():
    read_end, write_end = os.pipe()
    with pytest.raises(PageError):
        PageReader(read_end)
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(read_end)
    os.close(write_end)
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        with pytest.raises(PageError):
            PageReader(os.dup(file.fileno()))


def test_a_memfd_that_may_shrink_is_refused():
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    with pytest.raises(PageError, match="seals"):
        PageReader(fd)


def test_rubbish_in_a_page_is_an_error_not_a_crash(writer, reader):
    writer.words[0] = 0xDEAD
    with pytest.raises(PageError, match="magic"):
        reader.read()


def test_a_page_alone_is_read_too(writer):
    """Of a process that trains on after the exporter was upgraded: older ones had no room for dumps."""
    writer.step(5)
    fd = os.memfd_create("older", os.MFD_ALLOW_SEALING)
    os.pwrite(fd, os.pread(writer.fd, PAGE, 0), 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    older = PageReader(fd)
    assert older.read().step == 5
    assert older.dump(0) is None
    older.close()


def test_a_dump_is_read_once_and_the_next_one_anew(writer, reader):
    assert reader.dump(0) is None
    assert writer.dump(7, 123, {"nccl": b"of nccl", "gloo": b"of gloo"})
    first = reader.dump(0)
    assert (first.step, first.made_ns) == (7, 123)
    assert first.recorders == {"nccl": b"of nccl", "gloo": b"of gloo"}
    assert reader.dump(first.number) is None
    assert writer.dump(9, 456, {"nccl": b"n"})
    assert reader.dump(first.number).recorders == {"nccl": b"n"}
    assert reader.read().step == 0, "the page is as it was"


def test_a_dump_without_room_leaves_the_one_before(writer, reader):
    most = DUMP_BYTES - 100
    assert writer.dump(1, 1, {"nccl": bytes(most)})
    assert not writer.dump(2, 2, {"nccl": bytes(most), "gloo": bytes(100)})
    assert len(reader.dump(0).recorders["nccl"]) == most


def test_a_process_that_dies_as_it_writes_leaves_no_dump(writer, reader):
    writer.dump(1, 1, {"nccl": b"n"})
    os.pwrite(writer.fd, struct.pack("<Q", 3), PAGE)
    assert reader.dump(0) is None


def test_a_page_takes_no_memory_for_dumps_until_there_is_one(writer):
    assert os.fstat(writer.fd).st_blocks * 512 <= 2 * PAGE
    writer.dump(1, 1, {"nccl": bytes(100_000)})
    assert os.fstat(writer.fd).st_blocks * 512 <= 2 * PAGE + 110_000


@given(content=st.binary(max_size=200), size=st.integers(0, 300) | st.integers(0, 2**64 - 1))
def test_rubbish_in_a_dump_is_no_dump_or_less_of_one(content, size):
    """A length that leads beyond, a recorder that nobody knows, parts cut off."""
    page = PageWriter()
    reader = PageReader(os.dup(page.fd))
    os.pwrite(page.fd, struct.pack("<QQQQ", 2, 2**64 - 1, 2**64 - 1, size) + content, PAGE)
    dump = reader.dump(0)
    if dump is not None:
        assert set(dump.recorders) <= set(RECORDERS)
        assert sum(map(len, dump.recorders.values())) <= size
    reader.close()
    page.close()


def test_the_page_travels_with_hello(tmp_path, writer):
    path = tmp_path / "exporter.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        hello = wire.hello(pid=1, rank=0, training_job="j", monotonic_ns=1, realtime_ns=2, shares_page=True)
        link = Link(path, lambda: hello, page_fd=writer.fd)
        writer.step(5)
        link.flush()
        peer, _ = listener.accept()
        packet, fds, _, _ = socket.recv_fds(peer, wire.MAX_MESSAGE_BYTES, 1)
        link.close()
        peer.close()
    assert wire.parse_header(packet).type is wire.MessageType.HELLO
    received = PageReader(fds[0])
    assert received.read().step == 5
    received.close()
