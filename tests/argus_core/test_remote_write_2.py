"""Remote write 2.0: the series of 1.0 with a table of symbols, as Google's protobuf reads them."""

from __future__ import annotations

import struct

import cramjam
import pytest

from argus_core import catalogue, remote_write, remote_write_2
from argus_core.remote_write import Damaged, encode_series, encode_stale_marker, labels_of
from remote_write_messages import read_1, read_2

GAUGE = 2


def test_a_request_says_what_its_series_say() -> None:
    """Labels sorted and whole, value and milliseconds kept, each string once; type and help as declared."""
    name = catalogue.L3_ANOMALY.name
    labels = labels_of(name, training_job="llm", rank="3", kernel='naïve "k"\n' + 300 * "x", team="")
    series = [encode_series(labels, -0.125, 1_700_000_000_123), encode_series(labels_of("other"), 0.0, 0)]
    first, second = read_2(remote_write_2.pack(series))
    assert first.labels == labels
    assert first.samples == ((-0.125, 1_700_000_000_123),)
    assert (first.type, first.help) == (GAUGE, catalogue.L3_ANOMALY.help)
    assert (second.labels, second.samples) == ((("__name__", "other"),), ((0.0, 0),))
    assert (second.type, second.help) == (0, "")


def test_references_of_every_length_are_read() -> None:
    """More than 128 and than 16,384 of them, so that references of one, two and three bytes are read."""
    series = [encode_series(labels_of("a", rank=str(rank)), rank, 1) for rank in range(20_000)]
    assert [int(dict(one.labels)["rank"]) for one in read_2(remote_write_2.pack(series))] == [*range(20_000)]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 0.1, -0.0, 5e-324])
def test_every_value_keeps_its_bits(value: float) -> None:
    """As IEEE 754 has it, beside the stale marker, which is a NaN of its own."""
    body = remote_write_2.pack(
        [encode_series(labels_of("a"), value, 1), encode_stale_marker(labels_of("b"), 2)]
    )
    found = [struct.pack("<d", one.samples[0][0]).hex() for one in read_2(body)]
    assert found == [struct.pack("<d", value).hex(), "020000000000f07f"]


def test_a_receiver_of_the_other_version_sees_an_empty_request() -> None:
    """Its fields have other numbers: nobody stores half of what was meant."""
    series = [encode_series(labels_of("a"), 1.0, 1)]
    assert read_1(remote_write_2.pack(series)) == []
    assert len(read_1(remote_write.pack(series))) == 1


@pytest.mark.parametrize("noise", [b"\n\x7f", b"\x12", b"\n\x02\n\x00", b"\x08\x01", b""])
def test_what_is_no_series_is_refused(noise: bytes) -> None:
    """Bytes that a torn file left: said here, as no receiver could name them."""
    with pytest.raises(Damaged, match=r"no series|within a series"):
        remote_write_2.pack([noise])
    whole = encode_series(labels_of("a", rank="1"), 1.0, 10**12)
    for length in range(1, len(whole)):
        with pytest.raises(Damaged):
            remote_write_2.pack([whole[:length]])


def test_the_block_is_snappys_own_format() -> None:
    """Without the frames that some libraries write."""
    assert bytes(cramjam.snappy.decompress_raw(remote_write_2.pack([]))) == b"\x22\x00"
