"""Kernel records as numpy sees them: the bulk path of the wire."""

from __future__ import annotations

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
        ("reserved", "<u2"),
    ]
)
"""`wire.Kernel`, field by field."""

KernelArray = NDArray[np.void]
"""Records of `KERNEL_DTYPE`, shape (n,)."""
