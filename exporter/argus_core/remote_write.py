"""Prometheus remote write 1.0: series to bytes and back. No I/O.

Source: prometheus/prompb/remote.proto and types.proto; snappy block format, as the specification asks:
    WriteRequest { repeated TimeSeries timeseries = 1 }
    TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2 }
    Label        { string name = 1; string value = 2 }
    Sample       { double value = 1; int64 timestamp = 2 }   // milliseconds

Snappy comes from cramjam, which is imported at the first use: only who writes remotely needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Final

from argus_core.varint import read_varint, varint

Labels = tuple[tuple[str, str], ...]
"""(name, value) pairs sorted by name, `__name__` among them; no empty values."""

HEADERS: Final = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

# Refusals of who we are, where we ask, how often, or which protocol we speak: good series wait until that is
# mended. Every other 4xx is about what is in the request, such as 409 of Thanos Receive (out of order).
_NOT_ABOUT_CONTENT: Final = frozenset({401, 403, 404, 405, 407, 408, 415, 429})
REFUSALS_UNTIL_ASIDE: Final = 5
"""Content refusals without an end to it, as when the receiver fails on the halves, before others go first."""

STALE_BITS: Final = 0x7FF0000000000002
"""The NaN that ends a series. As bits: arithmetic would make an ordinary NaN of it."""


class Damaged(ValueError):
    """A request body that `pack` did not make, such as a torn file."""


class Refused(Exception):
    """The receiver will never take this request.

    `written` of its samples are stored all the same, where the receiver counts them (2.0).
    """

    def __init__(self, status: int, text: str, written: int = 0, sorted_out: bool = False) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.written = written
        # Whether sending parts of it would change nothing: the receiver has sorted out what it can store, and
        # under a tenant's limit (Cortex, Mimir) what there was room for is stored already.
        self.final = sorted_out or (status == 400 and ("limit of" in text or "exceeded" in text))


class SnappyMissing(Exception):
    """The compression that remote write prescribes is not installed."""


def refused_for_content(status: int) -> bool:
    """Whether this answer will not change however often the request is sent."""
    return 400 <= status < 500 and status not in _NOT_ABOUT_CONTENT


def snappy() -> ModuleType:
    """cramjam's snappy.

    Raises:
        SnappyMissing: with the extra to install.
    """
    try:
        import cramjam
    except ImportError as error:
        raise SnappyMissing(
            "remote write needs cramjam for snappy: pip install 'argus-for-prometheus[remote-write]'"
        ) from error
    module: ModuleType = cramjam.snappy
    return module


def labels_of(name: str, /, **values: str) -> Labels:
    """Sorted labels of the series `name`; empty values are left out, as Prometheus would."""
    pairs = {"__name__": name, **values}
    return tuple(sorted((key, value) for key, value in pairs.items() if value))


def encode_series(labels: Labels, value: float, timestamp_ms: int) -> bytes:
    """One TimeSeries message with one sample."""
    return encode_series_bits(labels, struct.pack("<d", value), timestamp_ms)


def encode_stale_marker(labels: Labels, timestamp_ms: int) -> bytes:
    """One TimeSeries message whose sample ends the series."""
    return encode_series_bits(labels, struct.pack("<Q", STALE_BITS), timestamp_ms)


def encode_series_bits(labels: Labels, value: bytes, timestamp_ms: int) -> bytes:
    """As `encode_series`, with the eight little-endian bytes of the value."""
    parts = bytearray()
    for name, text in labels:
        label = delimited(1, name.encode()) + delimited(2, text.encode())
        parts += delimited(1, label)
    sample = b"\x09" + value + b"\x10" + varint(timestamp_ms & 0xFFFFFFFFFFFFFFFF)
    return bytes(parts + delimited(2, sample))


def pack(series: Iterable[bytes]) -> bytes:
    """Body of one request: encoded series as a WriteRequest, compressed as one snappy block.

    Raises:
        SnappyMissing: as `snappy`.
    """
    request = b"".join(delimited(1, one) for one in series)
    return bytes(snappy().compress_raw(request))


def unpack(body: bytes) -> list[bytes]:
    """The encoded series of a request body that `pack` made.

    Raises:
        SnappyMissing, Damaged.
    """
    decompress = snappy().decompress_raw
    try:
        request = bytes(decompress(body))
        return [field for number, field in fields(request) if number == 1 and isinstance(field, bytes)]
    except Exception as error:  # cramjam has one of its own, which its stubs do not name
        raise Damaged(f"{len(body)} bytes that are no remote write request: {error}") from error


def decode_labels(series: bytes) -> Labels:
    """Labels of an encoded series, to name it in a log line."""
    labels: list[tuple[str, str]] = []
    for number, field in fields(series):
        if number == 1 and isinstance(field, bytes):
            values = [part.decode() for _, part in fields(field) if isinstance(part, bytes)]
            labels.append((values[0], values[1]))
    return tuple(labels)


def describe(labels: Labels) -> str:
    """`name{label="value",...}`."""
    name = next((value for key, value in labels if key == "__name__"), "")
    inner = ",".join(f'{key}="{value}"' for key, value in labels if key != "__name__")
    return f"{name}{{{inner}}}"


def batches(series: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """`series` in runs of at most `size`."""
    for begin in range(0, len(series), size):
        yield series[begin : begin + size]


def delimited(number: int, payload: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + varint(len(payload)) + payload


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """(field number, payload) of a protobuf message of the four kinds above."""
    position = 0
    while position < len(message):
        key, position = read_varint(message, position)
        number, wire = key >> 3, key & 7
        if wire == 2:
            length, position = read_varint(message, position)
            yield number, message[position : position + length]
            position += length
        elif wire == 1:
            yield number, message[position : position + 8]
            position += 8
        else:
            value, position = read_varint(message, position)
            yield number, value
