"""Bytes as a source of decisions: what a fuzzer hands over, read as small numbers and pieces."""

from __future__ import annotations


class Script:
    """Reads from the front; past the end everything is 0 or empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, limit: int) -> int:
        return self.byte() % limit

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes, filled with zeros."""
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken.ljust(size, b"\0")
