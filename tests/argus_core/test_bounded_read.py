"""Messages of bounded size, from streams that hand them out in pieces."""

from __future__ import annotations

import asyncio

import pytest

from argus_core.bounded_read import read_bounded


class Pieces:
    """Hands out at most `size` bytes at a time, as a socket would."""

    def __init__(self, content: bytes, size: int) -> None:
        self._content, self._size = content, size

    async def read(self, n: int, /) -> bytes:
        length = min(n, self._size)
        piece, self._content = self._content[:length], self._content[length:]
        return piece


@pytest.mark.parametrize("size", [1, 3, 10, 100])
@pytest.mark.parametrize(("length", "read"), [(0, 0), (9, 9), (10, 10), (11, 11), (50, 11)])
def test_the_whole_is_read_or_one_byte_more_than_allowed(size: int, length: int, read: int) -> None:
    """However it arrives: one byte beyond the limit tells that it is too long."""
    content = bytes(range(length))
    assert asyncio.run(read_bounded(Pieces(content, size), 10)) == content[:read]
