"""Remote write: bytes against Google's protobuf."""

from __future__ import annotations

import struct
import sys

import pytest

from argus_core.remote_write import (
    STALE_BITS,
    SnappyMissing,
    decode_labels,
    describe,
    encode_series,
    encode_stale_marker,
    labels_of,
    pack,
    unpack,
)
from remote_write_messages import read_1

LABELS = labels_of("argus_l3_anomaly", training_job="llm", rank="3", kernel='naïve "k"\n', team="")


def test_a_request_decodes_to_what_was_encoded() -> None:
    """Labels sorted, empty ones left out, value and milliseconds whole: as Google's protobuf reads it."""
    series = read_1(pack([encode_series(LABELS, -0.125, 1_700_000_000_123)] * 2))
    assert len(series) == 2
    assert series[0].labels == (
        ("__name__", "argus_l3_anomaly"),
        ("kernel", 'naïve "k"\n'),
        ("rank", "3"),
        ("training_job", "llm"),
    )
    assert series[0].samples == ((-0.125, 1_700_000_000_123),)


def test_stale_marker_keeps_its_bits() -> None:
    """0x7ff0000000000002, which any arithmetic would make an ordinary NaN."""
    ((value, _),) = read_1(pack([encode_stale_marker(LABELS, 1)]))[0].samples
    assert struct.pack("<d", value).hex() == "020000000000f07f"
    assert struct.unpack("<Q", struct.pack("<d", value)) == (STALE_BITS,)


def test_a_packed_request_comes_apart_into_its_series() -> None:
    """unpack undoes pack, and a series names itself."""
    series = [encode_series(labels_of("a", rank=str(rank)), rank, 10**12) for rank in range(300)]
    assert unpack(pack(series)) == series
    assert describe(decode_labels(series[7])) == 'a{rank="7"}'


def test_without_snappy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who writes remotely needs it; the message says what to install."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(SnappyMissing, match=r"pip install 'argus-for-prometheus\[remote-write\]'"):
        pack([])
