"""Wire records: what is packed is read back; a packet that is not ours is refused with a bounded reason."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core import wire

SPAN = wire.Span(start_ns=1, duration_ns=2, step=3, phase_id=4, group_id=5, kind=1, source=2, microbatch=7)


@pytest.mark.parametrize("record", wire.RECORDS.values(), ids=lambda record: record.__name__)
def test_a_record_fits_many_times_into_a_packet(record: type[wire.Record]):
    """Every type has a packet size that holds at least a hundred."""
    assert wire.records_per_message(record) >= 100


def test_records_read_back_as_they_were_packed():
    """A message of two spans gives the two spans."""
    message = wire.pack_message(wire.MessageType.SPANS, SPAN.pack() * 2, 2, sequence=9, dropped=1)
    header = wire.parse_header(message)
    assert (header.type, header.count, header.sequence, header.dropped) == (wire.MessageType.SPANS, 2, 9, 1)
    assert list(wire.Span.unpack_all(message[wire.HEADER.size :])) == [SPAN, SPAN]


def test_the_gpu_record_has_the_size_that_the_ring_budgets_for():
    """40 bytes, as docs/traces.md counts them."""
    assert wire.Kernel.FORMAT.size == wire.Span.FORMAT.size == 40


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "length"),
        (b"x" * 10, "length"),
        (wire.HEADER.pack(0xDEAD, 1, 3, 0, 0, 0), "magic"),
        (wire.HEADER.pack(wire.MAGIC, 99, 3, 0, 0, 0), "version"),
        (wire.HEADER.pack(wire.MAGIC, wire.VERSION, 99, 0, 0, 0), "type"),
        (wire.HEADER.pack(wire.MAGIC, wire.VERSION, 3, 2, 0, 0) + SPAN.pack(), "length"),
        (wire.HEADER.pack(wire.MAGIC, wire.VERSION, 3, 0xFFFFFFFF, 0, 0), "length"),
    ],
)
def test_a_packet_that_is_not_ours_is_refused_with_its_reason(packet: bytes, reason: str):
    """The reason is a label value, so it comes from a bounded set."""
    with pytest.raises(wire.WireError) as caught:
        wire.parse_header(packet)
    assert caught.value.reason == reason


@given(st.binary(max_size=200))
def test_no_packet_raises_anything_but_a_wire_error(packet: bytes):
    """Hostile bytes are an expected input."""
    try:
        header = wire.parse_header(packet)
    except wire.WireError:
        return
    assert len(packet) == wire.HEADER.size + header.count * wire.RECORDS[header.type].FORMAT.size


@given(st.text(max_size=80), st.integers(1, 64))
def test_a_text_is_cut_at_a_character(text: str, size: int):
    """A name that is too long loses whole characters, never half of one."""
    raw = wire.encode_text(text, size)
    assert len(raw) <= size
    assert text.encode("utf-8", "replace").startswith(raw)
    raw.decode()


def test_names_that_differ_only_near_their_end_stay_different():
    """CUTLASS instantiations share their first kilobyte."""
    first, second = (wire.encode_name("k" * 2000 + end) for end in "ab")
    assert len(first) == len(second) == 256
    assert first != second
    assert first.startswith(b"k" * 247 + b"~")


def test_control_characters_do_not_reach_a_label():
    """A name with a newline or an escape sequence loses it."""
    assert wire.decode_text(b"a\nb\x1b[31m\0junk") == "ab[31m"


def test_bytes_that_are_not_utf8_are_replaced():
    """A label value is always valid text."""
    assert wire.decode_text(struct.pack("4s", b"\xff\xfe")) == "\ufffd\ufffd"


def test_a_packet_of_two_messages_is_read_in_order() -> None:
    """What follows the first message's records is the next message."""
    work = wire.Work(1.0, 2).pack()
    bye = wire.Bye(0).pack()
    packet = wire.pack_message(wire.MessageType.WORK, work, 1, 1, 0)
    packet += wire.pack_message(wire.MessageType.BYE, bye, 1, 2, 0)
    found = [(header.type, bytes(payload)) for header, payload in wire.messages(packet)]
    assert found == [(wire.MessageType.WORK, work), (wire.MessageType.BYE, bye)]


@pytest.mark.parametrize("tail", [b"x", b"x" * wire.HEADER.size])
def test_a_packet_with_a_torn_tail_is_refused(tail: bytes) -> None:
    """Bytes behind a message are a message or an error."""
    packet = wire.pack_message(wire.MessageType.BYE, wire.Bye(0).pack(), 1, 1, 0) + tail
    with pytest.raises(wire.WireError):
        list(wire.messages(packet))
