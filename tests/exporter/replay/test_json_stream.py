"""The streaming JSON cursor against `json.loads`, at every place where a piece may end."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_exporter.replay.json_stream import VALUE_LIMIT, JsonError, JsonStream


class Pieces:
    """Bytes that come in pieces of a given size, whatever is asked for."""

    def __init__(self, raw: bytes, size: int) -> None:
        self._stream = io.BytesIO(raw)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, self._size))


def whole(raw: bytes, size: int = 1 << 20) -> Any:
    """The same as json.loads of an object or list, element by element."""
    stream = JsonStream(Pieces(raw, size))
    value: Any
    if stream.peek() == "[":
        value = list(stream.elements())
    elif stream.peek() == "{":
        value = {key: stream.value() for key in stream.members()}
    else:
        value = stream.value()
    stream.end()
    return value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.integers(1, 9), st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=300, deadline=None)
def test_any_value_in_pieces_is_what_json_reads(value: Any, size: int, ascii_only: bool, indent: int | None):
    """Also where a number, an escape or a character of several bytes is cut in two."""
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    try:
        expected = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return  # lone surrogates become U+FFFD here
    assert whole(raw, size) == expected


@given(st.binary(max_size=40), st.integers(1, 5))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_read_or_refused_with_a_place(raw: bytes, size: int):
    """Nothing but JsonError, however the pieces fall; and pieces make no difference."""

    def outcome(piece: int) -> str:
        try:
            return repr(whole(raw, piece))
        except JsonError as error:
            return str(error)

    assert outcome(size) == outcome(1 << 20)


def test_what_profilers_write_beyond_json_is_read():
    """NaN, infinities, control characters inside texts, a byte-order mark, bytes that are not UTF-8."""
    values = whole(b'\xef\xbb\xbf[NaN, -Infinity, "a\tb", "\xff"]', 3)
    assert math.isnan(values[0])
    assert values[1:] == [-math.inf, "a\tb", "\ufffd"]


@pytest.mark.parametrize(
    ("raw", "message", "truncated"),
    [
        (b"", "the text ends at line 1, column 1", True),
        (b'{"a": 1,\n "b" 2}', "line 2, column 6", False),
        (b'{"a": 1,\n "b"', "the text ends at line 2, column 5", True),
        (b"[1,\n 2", "the text ends at line 2, column 3", True),
        (b'[1, "abc', "Unterminated string starting at at line 1, column 5", True),
        (b"[1, fals", "line 1, column 5", True),
        (b"[1] [2]", "more text after the end of the JSON at line 1, column 5", False),
        (b"{1: 2}", "a key is expected at line 1, column 2", False),
        (b"[" + b"9" * 5000 + b"]", "a number of too many digits at line 1, column 2", False),
        (b"[" * 100_000, "nested too deeply at line 1, column 2", False),
    ],
)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_error_says_where_whatever_the_pieces(raw: bytes, message: str, truncated: bool, size: int):
    """Line and column count from the begin of the file, not of the piece."""
    with pytest.raises(JsonError) as caught:
        whole(raw, size if len(raw) < 10_000 else 1 << 14)
    assert message in str(caught.value)
    assert caught.value.truncated == truncated


def test_endless_value_is_refused_before_it_fills_the_memory():
    """A text that never ends stops at the limit."""

    class Endless:
        def read(self, size: int, /) -> bytes:
            return b"a" * size

    stream = JsonStream(Endless())
    with pytest.raises(JsonError, match=f"more than {VALUE_LIMIT >> 20} Mi characters|line 1, column 1"):
        stream.value()

    class EndlessText(Endless):
        begun = False

        def read(self, size: int, /) -> bytes:
            begin, self.begun = b"" if self.begun else b'"', True
            return begin + super().read(size)

    with pytest.raises(JsonError, match=f"a value of more than {VALUE_LIMIT >> 20} Mi characters begins"):
        JsonStream(EndlessText()).value()
