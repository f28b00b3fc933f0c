"""Remote write: bytes against Google's protobuf."""

from __future__ import annotations

import struct
import sys

import cramjam
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

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

LABELS = labels_of("argus_l3_anomaly", training_job="llm", rank="3", kernel='naïve "k"\n', team="")


def write_request() -> type[Message]:
    """prompb.WriteRequest as Google's library builds it from the published field numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="argus_test.proto", package="prompb", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto
    for name, fields in {
        "Label": [("name", 1, kind.TYPE_STRING, ""), ("value", 2, kind.TYPE_STRING, "")],
        "Sample": [("value", 1, kind.TYPE_DOUBLE, ""), ("timestamp", 2, kind.TYPE_INT64, "")],
        "TimeSeries": [
            ("labels", 1, kind.TYPE_MESSAGE, "Label"),
            ("samples", 2, kind.TYPE_MESSAGE, "Sample"),
        ],
        "WriteRequest": [("timeseries", 1, kind.TYPE_MESSAGE, "TimeSeries")],
    }.items():
        message = file.message_type.add(name=name)
        for field, number, type_, of in fields:
            message.field.add(
                name=field,
                number=number,
                type=type_,
                label=kind.LABEL_REPEATED if of else kind.LABEL_OPTIONAL,
                type_name=f".prompb.{of}" if of else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName("prompb.WriteRequest"))
    assert isinstance(found, type)
    return found


def test_a_request_decodes_to_what_was_encoded() -> None:
    """Labels sorted, empty ones left out, value and milliseconds whole: as Google's protobuf reads it."""
    body = pack([encode_series(LABELS, -0.125, 1_700_000_000_123)] * 2)
    request = write_request()()
    request.ParseFromString(bytes(cramjam.snappy.decompress_raw(body)))
    series = request.timeseries
    assert len(series) == 2
    assert [(label.name, label.value) for label in series[0].labels] == [
        ("__name__", "argus_l3_anomaly"),
        ("kernel", 'naïve "k"\n'),
        ("rank", "3"),
        ("training_job", "llm"),
    ]
    assert [(sample.value, sample.timestamp) for sample in series[0].samples] == [(-0.125, 1_700_000_000_123)]


def test_stale_marker_keeps_its_bits() -> None:
    """0x7ff0000000000002, which any arithmetic would make an ordinary NaN."""
    request = write_request()()
    request.ParseFromString(bytes(cramjam.snappy.decompress_raw(pack([encode_stale_marker(LABELS, 1)]))))
    value = request.timeseries[0].samples[0].value
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
