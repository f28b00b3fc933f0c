"""A message of bounded size from a stream that hands it out in pieces."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol


class Stream(Protocol):
    """What aiohttp's streams have."""

    def read(self, n: int, /) -> Awaitable[bytes]:
        """Up to `n` bytes, as soon as there are any; none at the end."""


async def read_bounded(stream: Stream, limit: int) -> bytes:
    """All of a stream, or its first `limit` + 1 bytes where it is longer than `limit`."""
    content = bytearray()
    while len(content) <= limit and (piece := await stream.read(limit + 1 - len(content))):
        content += piece
    return bytes(content)
