"""Joining and selecting records as bytes does what numpy does field by field."""

from __future__ import annotations

import numpy as np
import pytest

from argus_core.kernel_records import KERNEL_DTYPE, join, select


def records(count: int, seed: int):
    random = np.random.default_rng(seed).bytes(count * KERNEL_DTYPE.itemsize)
    return np.frombuffer(random, KERNEL_DTYPE)


@pytest.mark.parametrize("counts", [(), (0,), (3,), (5, 0, 7)])
def test_join_is_concatenate(counts):
    """Every byte, in order; nothing joined is an empty array of records."""
    parts = [records(count, seed) for seed, count in enumerate(counts)]
    assert join(parts).tobytes() == b"".join(part.tobytes() for part in parts)
    assert join(parts).dtype == KERNEL_DTYPE


def test_strided_parts_are_joined_too():
    """A view of every second record is not contiguous."""
    every_second = records(10, 1)[::2]
    assert np.array_equal(join([every_second, every_second]), np.concatenate([every_second, every_second]))


def test_select_is_a_mask_and_a_copy():
    """What is selected does not keep the whole alive."""
    whole = records(10, 2).copy()
    chosen = np.arange(10) % 3 == 0
    selected = select(whole, chosen)
    assert np.array_equal(selected, whole[chosen])
    assert not np.shares_memory(selected, whole)
