"""Numbers as protobuf writes them, for the two formats of it that are written without a library.

Source: https://protobuf.dev/programming-guides/encoding/#varints
"""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Base-128 with the lowest seven bits first. `value`: 0 or more."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(message: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it.

    Raises:
        IndexError: the message ends within the number.
    """
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
