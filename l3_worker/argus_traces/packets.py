"""The packets of a Perfetto file, in batches of bounded size. A file that is not whole is refused.

Source: perfetto/trace/trace.proto: a Trace is nothing but `repeated TracePacket packet = 1`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from argus_traces.errors import TraceDamaged, TraceError

_PACKET_TAG: Final = 0x0A
_BATCH_BYTES: Final = 1 << 20
_PACKET_LIMIT: Final = 64 << 20
"""Bytes of one packet, and of what a compressed one may grow to."""


def packet_batches(chunks: Iterable[bytes], source: str) -> Iterator[Any]:
    """Parsed `Trace` messages of about 1 MiB that together are the file; what was compressed is unpacked.

    Raises:
        TraceDamaged: a packet is cut off or does not decode; the message names `source` and the byte.
        TraceError: the `perfetto` package is missing.
    """
    message, decode_error = _protobuf()
    pending, offset = b"", 0
    for chunk in chunks:
        pending += chunk
        if len(pending) < _BATCH_BYTES:
            continue
        whole = _whole_packets(pending, offset, source)
        if whole:
            yield from _inflated(message, decode_error, pending[:whole], offset, source)
            pending, offset = pending[whole:], offset + whole
    if offset == 0 and not pending:
        raise TraceDamaged(f"{source} is empty: it is no trace")
    whole = _whole_packets(pending, offset, source)
    if whole != len(pending):
        raise TraceDamaged(
            f"{source} is cut off: its last packet begins at byte {offset + whole} and should go on beyond "
            f"the end at byte {offset + len(pending)}; fetch it again"
        )
    if pending:
        yield from _inflated(message, decode_error, pending, offset, source)


def _protobuf() -> tuple[Any, type[Exception]]:
    try:
        from google.protobuf.message import DecodeError
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise TraceError(
            "the package perfetto is missing, so traces cannot be read: "
            "pip install 'argus-for-prometheus[l3,trace]'"
        ) from error
    return perfetto_trace_pb2.Trace, DecodeError


def _whole_packets(data: bytes, offset: int, source: str) -> int:
    """Length of the longest prefix that is whole packets."""
    position, size = 0, len(data)
    while position < size:
        if data[position] != _PACKET_TAG:
            raise TraceDamaged(
                f"{source} is damaged: byte {offset + position} should begin a packet and is "
                f"{data[position]:#04x}; it is no Perfetto trace, or was changed"
            )
        cursor, length, shift = position + 1, 0, 0
        while True:
            if cursor >= size:
                return position
            byte = data[cursor]
            cursor += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if length > _PACKET_LIMIT:
            raise TraceDamaged(
                f"{source} is damaged: the packet at byte {offset + position} claims {length} bytes; "
                f"allowed: {_PACKET_LIMIT}"
            )
        if cursor + length > size:
            return position
        position = cursor + length
    return position


def _inflated(
    message: Any, decode_error: type[Exception], data: bytes, offset: int, source: str
) -> Iterator[Any]:
    """The packets, and in place of those that hold compressed packets what is in them."""
    batch = _parse(message, decode_error, data, offset, source)
    if not any(packet.HasField("compressed_packets") for packet in batch.packet):
        yield batch
        return
    plain = message()
    for packet in batch.packet:
        if not packet.HasField("compressed_packets"):
            plain.packet.append(packet)
            continue
        if plain.packet:
            yield plain
            plain = message()
        inflater = zlib.decompressobj()
        try:
            inner = inflater.decompress(packet.compressed_packets, _PACKET_LIMIT)
        except zlib.error as error:
            raise TraceDamaged(
                f"{source} is damaged between bytes {offset} and {offset + len(data)}: {error}"
            ) from error
        if not inflater.eof:
            raise TraceDamaged(
                f"{source} is damaged between bytes {offset} and {offset + len(data)}: compressed packets "
                f"that do not end within {_PACKET_LIMIT} bytes"
            )
        yield _parse(message, decode_error, inner, offset, source)
    if plain.packet:
        yield plain


def _parse(message: Any, decode_error: type[Exception], data: bytes, offset: int, source: str) -> Any:
    try:
        return message.FromString(data)
    except decode_error as error:
        raise TraceDamaged(
            f"{source} is damaged between bytes {offset} and {offset + len(data)}: {error}"
        ) from error
