"""Mutants of seeds by a seeded generator: bytes, and for texts the words that matter in them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Final

_INTERESTING: Final = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
_VALUES: Final = tuple(
    rb'null|true|-1|0|1e999|-1e-999|NaN|Infinity|9223372036854775808|1e18|"x"|[]|{}|[[[[]]]]|""|0.1|"\ud800"'
    rb'|18446744073709551616|"\u0000"|1.5e300|"kernel"|"Kernel"|"memcpy"|4611686018427387904'.split(b"|")
)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')
_DIGIT: Final = re.compile(rb"[0-9]")
_LONGEST: Final = 1 << 16


class Mutator:
    """Makes inputs from seeds: one to six changes each."""

    def __init__(self, seeds: Sequence[bytes], seed: int, *, is_text: bool) -> None:
        self._random = random.Random(seed)
        self._seeds = list(seeds)
        self._changes: list[Callable[[bytearray], bytearray]] = [
            self._set,
            self._flip,
            self._insert,
            self._delete,
            self._copy,
            self._join,
            self._cut,
        ]
        if is_text:
            self._changes += [self._replace_token] * 6 + [self._drop_token] * 2
            self._changes += [self._change_digit] * 6 + [self._move_line] * 3

    def next(self) -> bytes:
        data = bytearray(self._random.choice(self._seeds))
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 6))):
            if not data:
                break
            data = self._random.choice(self._changes)(data)
        return bytes(data[:_LONGEST])

    def _place(self, data: bytearray) -> int:
        return self._random.randrange(len(data))

    def _set(self, data: bytearray) -> bytearray:
        random_byte = self._random.randrange(256)
        data[self._place(data)] = self._random.choice((*_INTERESTING, random_byte, random_byte, random_byte))
        return data

    def _flip(self, data: bytearray) -> bytearray:
        data[self._place(data)] ^= 1 << self._random.randrange(8)
        return data

    def _insert(self, data: bytearray) -> bytearray:
        at = self._place(data)
        data[at:at] = self._random.randbytes(self._random.randrange(1, 9))
        return data

    def _delete(self, data: bytearray) -> bytearray:
        at = self._place(data)
        del data[at : at + self._random.randrange(1, 1 + max(1, len(data) // 8))]
        return data

    def _copy(self, data: bytearray) -> bytearray:
        """A piece again at another place: doubled keys, repeated pages, longer scripts."""
        begin, at = self._place(data), self._place(data)
        data[at:at] = data[begin : begin + self._random.randrange(1, 513)]
        return data

    def _join(self, data: bytearray) -> bytearray:
        """The head of this with the tail of another seed."""
        other = self._random.choice(self._seeds)
        return data[: self._place(data)] + other[self._random.randrange(len(other)) :]

    def _cut(self, data: bytearray) -> bytearray:
        return data[: self._place(data)]

    def _token(self, data: bytearray) -> re.Match[bytes] | None:
        return _TOKEN.search(data, self._place(data))

    def _replace_token(self, data: bytearray) -> bytearray:
        token = self._token(data)
        if token is not None:
            other = self._token(data)
            swapped = other[0] if other is not None else b"0"
            data[token.start() : token.end()] = self._random.choice((*_VALUES, swapped, swapped, swapped))
        return data

    def _change_digit(self, data: bytearray) -> bytearray:
        """Still a number, so that the input gets past the grammar: times, ids and sizes out of order."""
        digit = _DIGIT.search(data, self._place(data))
        if digit is not None:
            data[digit.start()] = ord("0") + self._random.randrange(10)
        return data

    def _move_line(self, data: bytearray) -> bytearray:
        """A line taken out, or put in a second time elsewhere."""
        lines = data.split(b"\n")
        line = self._random.randrange(len(lines))
        moved = lines[line]
        if self._random.randrange(2):
            del lines[line]
        if self._random.randrange(2):
            lines.insert(self._random.randrange(len(lines) + 1), moved)
        return bytearray(b"\n".join(lines))

    def _drop_token(self, data: bytearray) -> bytearray:
        token = self._token(data)
        if token is not None:
            del data[token.start() : token.end()]
        return data
