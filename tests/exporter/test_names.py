"""Interned names: ids of several connections meet in those of the rank, and nothing grows without bound."""

from __future__ import annotations

import numpy as np
import pytest

from argus_core import wire
from argus_exporter.names import NameTable, Texts


def name(number: int, text: str) -> wire.Name:
    return wire.Name(number, wire.encode_name(text))


def test_two_connections_share_the_texts_of_their_rank():
    """Each has ids of its own for the same kernel."""
    texts = Texts()
    first, second = NameTable(texts), NameTable(texts)
    first.bind(name(1, "gemm"))
    second.bind(name(7, "gemm"))
    assert first.internal_ids(np.array([1, 0, 1], np.uint32)).tolist() == [
        second.internal_ids(np.array([7], np.uint32))[0],
        0,
        second.internal_ids(np.array([7], np.uint32))[0],
    ]


@pytest.mark.parametrize("number", [1, 255, 256, 5_000, 65_535, 65_536, 2**32 - 1])
def test_any_id_may_be_bound_and_bound_again(number: int):
    """Small ids go by a table, others by search; both give the text that was said last."""
    table = NameTable(Texts())
    ids = np.array([number, number], np.uint32)
    table.bind(name(number, "a"))
    before = table.internal_ids(ids)
    table.bind(name(number, "b"))
    assert table.text(number) == "b"
    assert (table.internal_ids(ids) != before).all()


@pytest.mark.parametrize("number", [3, 300, 2**32 - 1])
def test_an_id_that_was_never_bound_is_an_error(number: int):
    """Alone, and among others."""
    table = NameTable(Texts())
    table.bind(name(1, "a"))
    for ids in ([number], [1, number]):
        with pytest.raises(wire.WireError, match=f"name id {number}, which was never bound"):
            table.internal_ids(np.array(ids, np.uint32))


def test_no_records_have_no_names():
    """An empty packet is no error."""
    assert NameTable(Texts()).internal_ids(np.empty(0, np.uint32)).tolist() == []


def test_names_beyond_the_limit_are_called_other():
    """A job that makes ever new kernels keeps the old ones and its connection."""
    table = NameTable(Texts())
    kept = [table.bind(name(number, f"kernel{number}")) for number in range(1, 20_000)]
    assert 16_000 < sum(kept) < 16_500
    assert (table.text(1), table.text(19_999)) == ("kernel1", "other")
    assert table.internal_ids(np.array([19_999, 19_998], np.uint32)).tolist() == [1, 1]
