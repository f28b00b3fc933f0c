"""Protobuf's numbers: the examples of its documentation, and there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core.varint import read_varint, varint


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\x00"), (1, b"\x01"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_examples_of_the_specification(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded


@given(st.lists(st.integers(min_value=0, max_value=2**64 - 1), min_size=1))
def test_numbers_come_back_one_after_another(values: list[int]) -> None:
    message, position, read = b"".join(map(varint, values)), 0, []
    while position < len(message):
        value, position = read_varint(message, position)
        read.append(value)
    assert read == values


def test_a_number_that_is_cut_off_is_an_error() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x96", 0)
