"""The sending end: it never blocks, never raises, counts what it loses, and comes back by itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.link import Link
from stranger import PLACES, as_root, stranger_listening


class Reader:
    """A bare exporter: accepts one connection at a time and keeps the packets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(5)
        self.peer: socket.socket | None = None

    def accept(self) -> None:
        self.peer, _ = self._listener.accept()
        self.peer.settimeout(5)

    def packet(self) -> tuple[wire.Header, bytes]:
        assert self.peer is not None
        packet = self.peer.recv(wire.MAX_MESSAGE_BYTES + 1)
        return wire.parse_header(packet), packet[wire.HEADER.size :]

    def close(self) -> None:
        if self.peer is not None:
            self.peer.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path / "exporter.sock")
    yield reader
    reader.close()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def greeting() -> wire.Hello:
    return wire.hello(pid=os.getpid(), rank=3, training_job="job", monotonic_ns=1, realtime_ns=2)


def span(link: Link, phase: str = "forward") -> wire.Span:
    return wire.Span(1, 2, 3, link.name_id(phase), 0, 0, 1, 0)


def test_a_connection_begins_with_hello_then_names_then_records(reader: Reader):
    """The reader can resolve every id it meets."""
    link = Link(reader.path, greeting)
    link.add(span(link))
    link.flush()
    reader.accept()
    header, payload = reader.packet()
    assert header.type is wire.MessageType.HELLO
    assert next(wire.Hello.unpack_all(payload)).rank == 3
    header, payload = reader.packet()
    assert header.type is wire.MessageType.NAMES
    assert wire.decode_text(next(wire.Name.unpack_all(payload)).text) == "forward"
    assert reader.packet()[0].type is wire.MessageType.SPANS


def test_bye_carries_the_exit_status(reader: Reader):
    """The exporter must tell a rank that ended from one that was lost."""
    link = Link(reader.path, greeting)
    link.close(exit_status=7)
    reader.accept()
    assert reader.packet()[0].type is wire.MessageType.HELLO
    header, payload = reader.packet()
    assert header.type is wire.MessageType.BYE
    assert next(wire.Bye.unpack_all(payload)).exit_status == 7


def test_without_an_exporter_records_are_dropped_and_counted(tmp_path: Path):
    """Training goes on; the loss is known."""
    link = Link(tmp_path / "absent.sock", greeting)
    for _ in range(3):
        link.add(span(link))
        link.flush()
    assert link.dropped == 3
    assert not link.connected


def test_it_waits_before_it_tries_again(tmp_path: Path):
    """A missing exporter costs no connect a step."""
    clock, attempts = Clock(), []

    def counted() -> wire.Hello:
        attempts.append(clock.now)
        return greeting()

    path = tmp_path / "exporter.sock"
    link = Link(path, counted, clock=clock)
    link.flush()
    reader = Reader(path)
    clock.now = 0.1
    link.flush()
    assert not link.connected
    clock.now = 0.6
    link.flush()
    assert link.connected
    assert attempts == [0.6]
    reader.close()


def test_after_the_exporter_restarts_names_are_sent_again(tmp_path: Path):
    """Ids belong to a connection; the totals that were lost are counted in the next header."""
    clock = Clock()
    path = tmp_path / "exporter.sock"
    first = Reader(path)
    link = Link(path, greeting, clock=clock)
    link.add(span(link, "forward"))
    link.flush()
    first.accept()
    first.close()
    second = Reader(path)
    link.add(span(link, "backward"))
    link.flush()  # notices that the peer has gone
    clock.now = 1.0
    link.add(span(link, "backward"))
    link.flush()
    second.accept()
    assert second.packet()[0].type is wire.MessageType.HELLO
    header, payload = second.packet()
    assert header.type is wire.MessageType.NAMES
    assert [wire.decode_text(n.text) for n in wire.Name.unpack_all(payload)] == ["forward", "backward"]
    header, _ = second.packet()
    assert (header.type, header.dropped) == (wire.MessageType.SPANS, link.dropped)
    assert link.dropped >= 1
    second.close()


def test_a_stuck_exporter_never_blocks_the_sender(reader: Reader):
    """A reader that stops reading fills the socket; the rest is dropped at once and counted."""
    link = Link(reader.path, greeting)
    link.flush()
    reader.accept()
    kernel = wire.Kernel(1, 2, -1, link.name_id("k"), 7, 0, 0, 0).pack()
    total = 100_000
    for _ in range(total):
        link.add_packed(wire.MessageType.KERNELS, kernel)
    link.flush()
    assert 0 < link.dropped < total


def test_a_forked_child_does_not_speak_for_its_parent(reader: Reader):
    """DataLoader workers inherit the link; their copies stay silent."""
    link = Link(reader.path, greeting)
    link.flush()
    reader.accept()
    reader.packet()
    child = os.fork()
    if child == 0:
        link.add(span(link))
        link.flush()
        link.close(0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    link.close(5)
    types = [reader.packet()[0].type]
    assert types == [wire.MessageType.BYE]


def test_all_that_waits_travels_in_one_packet(reader: Reader):
    """A flush is one system call: spans and iterations share a packet, iterations last."""
    link = Link(reader.path, greeting)
    record = span(link)
    link.flush()
    reader.accept()
    assert reader.peer is not None
    reader.packet(), reader.packet()
    link.add(wire.Iteration(1, 2, 3, 1, 1.0, 1.0))
    for _ in range(2):
        link.add(record)
    link.flush()
    packet = reader.peer.recv(wire.MAX_MESSAGE_BYTES + 1)
    found = [(header.type, header.count, header.sequence) for header, _ in wire.messages(packet)]
    assert found == [(wire.MessageType.SPANS, 2, 3), (wire.MessageType.ITERATIONS, 1, 4)]


def test_what_exceeds_a_packet_is_split(reader: Reader):
    """No packet is longer than the limit, and nothing is lost."""
    link = Link(reader.path, greeting)
    record = span(link).pack()
    kernel = wire.Kernel(1, 2, -1, link.name_id("k"), 7, 0, 0, 0).pack()
    link.flush()
    reader.accept()
    assert reader.peer is not None
    reader.packet(), reader.packet()
    for _ in range(1000):
        link.add_packed(wire.MessageType.SPANS, record)
        link.add_packed(wire.MessageType.KERNELS, kernel)
    link.flush()
    counts = {wire.MessageType.SPANS: 0, wire.MessageType.KERNELS: 0}
    while min(counts.values()) < 1000:
        packet = reader.peer.recv(wire.MAX_MESSAGE_BYTES + 1)
        assert len(packet) <= wire.MAX_MESSAGE_BYTES
        for header, _ in wire.messages(packet):
            counts[header.type] += header.count
    assert link.dropped == 0


def test_the_record_that_fills_a_packet_is_not_lost(reader: Reader):
    """A full packet goes out by itself; the record that did not fit is in the next one."""
    link = Link(reader.path, greeting)
    kernel = wire.Kernel(1, 2, -1, link.name_id("k"), 7, 0, 0, 0).pack()
    link.flush()
    reader.accept()
    assert reader.peer is not None
    reader.packet(), reader.packet()
    link.add_packed(wire.MessageType.KERNELS, kernel * 1024)
    link.add_packed(wire.MessageType.KERNELS, kernel * 1023)
    assert reader.packet()[0].count == 1024
    link.flush()
    assert reader.packet()[0].count == 1023


def test_renewed_link_says_hello_again(reader: Reader):
    """What HELLO tells has changed: the next flush makes a new connection."""
    link = Link(reader.path, greeting)
    link.flush()
    reader.accept()
    reader.packet()
    link.renew()
    link.flush()
    reader.accept()
    assert reader.packet()[0].type is wire.MessageType.HELLO
    assert link.connects == 2


@as_root
@pytest.mark.parametrize(("parent", "folder", "believed"), PLACES)
def test_it_reports_to_nobody_who_slipped_in_a_socket(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    parent: tuple[int, int],
    folder: tuple[int, int],
    believed: bool,
):
    """To another user only where no third one could have put the folder, or the socket into it; said once."""
    clock = Clock()
    with stranger_listening(tmp_path, parent, folder) as path:
        link = Link(path, greeting, clock=clock)
        for _ in range(2):
            link.flush()
            clock.now += 60
        assert link.connected is believed
    said = capfd.readouterr().err.splitlines()
    assert len(said) == (0 if believed else 1)
    assert believed or f"not reporting to {path}: user 4242 listens there" in said[0]
