"""Prometheus remote write 2.0: series encoded for 1.0, as the message with a table of symbols. No I/O.

Source: prometheus/prompb/io/prometheus/write/v2/types.proto:
    Request    { repeated string symbols = 4; repeated TimeSeries timeseries = 5 }   // symbols[0] is ""
    TimeSeries { repeated uint32 labels_refs = 1; repeated Sample samples = 2; Metadata metadata = 5 }
    Metadata   { MetricType type = 1; uint32 help_ref = 3; uint32 unit_ref = 4 }
A sample is the same message as in 1.0. What is kept for a receiver that is away is encoded for 1.0, and can
be sent to either kind when it is back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from argus_core import catalogue
from argus_core.remote_write import Damaged, delimited, fields, snappy
from argus_core.varint import read_varint, varint

HEADERS: Final = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    "X-Prometheus-Remote-Write-Version": "2.0.0",
}
WRITTEN_SAMPLES: Final = "X-Prometheus-Remote-Write-Samples-Written"
WRITTEN: Final = (
    WRITTEN_SAMPLES,
    "X-Prometheus-Remote-Write-Histograms-Written",
    "X-Prometheus-Remote-Write-Exemplars-Written",
)
"""Headers of an answer: how many of each the receiver has stored. One that is missing means none, but all
missing is a receiver of 1.0 that took our message for an empty one of its own."""

_METRIC_TYPES: Final = {"counter": 1, "gauge": 2, "summary": 5}
_NAME: Final = b"__name__"
_LABEL: Final = 1 << 3 | 2
_SAMPLE: Final = 2 << 3 | 2
"""Keys of the fields of a series in 1.0."""


def pack(series: Iterable[bytes]) -> bytes:
    """Body of one request: series as `remote_write.encode_series` makes them, as one Request in one block.

    Families of the catalogue get its type and help, as they would have when scraped.

    Raises:
        SnappyMissing: as `remote_write.snappy`.
        Damaged: what is no encoded series.
    """
    symbols = _Symbols()
    body = b"".join([delimited(5, _time_series(one, symbols)) for one in series])
    return bytes(snappy().compress_raw(symbols.encoded() + body))


class _Symbols:
    """Each string of a request once; references to them as they are written."""

    def __init__(self) -> None:
        self._references = {b"": b"\x00"}
        self.labels: dict[bytes, tuple[bytes, bytes]] = {}
        """Encoded label: its two references, and the metadata where it is the name of a family."""

    def reference(self, text: bytes) -> bytes:
        known = self._references.get(text)
        if known is None:
            known = self._references[text] = varint(len(self._references))
        return known

    def encoded(self) -> bytes:
        return b"".join([delimited(4, text) for text in self._references])


def _time_series(series: bytes, symbols: _Symbols) -> bytes:
    references: list[bytes] = []
    samples = metadata = b""
    position, end, labels = 0, len(series), symbols.labels
    try:
        while position < end:  # as `fields`, in half of its time: a worker sends 100,000 series a cycle
            key, length = series[position], series[position + 1]
            begin = position + 2
            if length > 0x7F:
                length, begin = read_varint(series, position + 1)
            position = begin + length
            field = series[begin:position]
            if key == _LABEL:
                known = labels.get(field)
                if known is None:
                    known = labels[field] = _label(field, symbols)
                references.append(known[0])
                metadata = known[1] or metadata
            elif key == _SAMPLE:
                samples += delimited(2, field)
            else:
                raise ValueError(f"key {key}")
    except (IndexError, ValueError) as error:
        raise Damaged(f"{len(series)} bytes that are no series: {error}") from error
    if position > end or not samples:
        raise Damaged(f"{len(series)} bytes that end within a series")
    return delimited(1, b"".join(references)) + samples + metadata


def _label(label: bytes, symbols: _Symbols) -> tuple[bytes, bytes]:
    name, value = (_message(text) for _, text in fields(label))
    pair = symbols.reference(name) + symbols.reference(value)
    family = _families().get(value) if name == _NAME else None
    if family is None:
        return pair, b""
    kind, help_ = _METRIC_TYPES[family.type], symbols.reference(family.help.encode())
    return pair, delimited(5, b"\x08" + varint(kind) + b"\x18" + help_)


def _message(field: bytes | int) -> bytes:
    if isinstance(field, int):
        raise ValueError("a number where bytes belong")
    return field


@cache
def _families() -> dict[bytes, catalogue.Family]:
    return {name.encode(): family for family in catalogue.CATALOGUE for name in family.sample_names}
