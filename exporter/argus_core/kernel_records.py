"""Kernel records as numpy sees them: the bulk path of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

KERNEL_DTYPE: Final = np.dtype(
    [
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("issue_ns", "<i8"),
        ("name_id", "<u4"),
        ("stream", "<u4"),
        ("kilobytes", "<u4"),
        ("operation", "u1"),
        ("device", "u1"),
        ("mark", "<u2"),
    ]
)
"""`wire.Kernel`, field by field."""

KernelArray = NDArray[np.void]
"""Records of `KERNEL_DTYPE`, shape (n,)."""


def join(parts: Sequence[KernelArray]) -> KernelArray:
    """All records in one array; as bytes, because numpy concatenates such records field by field, slowly."""
    if not parts:
        return np.empty(0, KERNEL_DTYPE)
    whole = np.dtype((np.void, KERNEL_DTYPE.itemsize))
    return np.concatenate([np.ascontiguousarray(part).view(whole) for part in parts]).view(KERNEL_DTYPE)


def select(records: KernelArray, chosen: NDArray[np.bool_]) -> KernelArray:
    """The chosen records, copied whole."""
    whole = np.dtype((np.void, KERNEL_DTYPE.itemsize))
    return np.ascontiguousarray(records).view(whole)[chosen].view(KERNEL_DTYPE)
