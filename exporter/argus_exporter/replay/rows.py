"""Rows that an importer appends one by one and reads as a numpy array: no Python object is kept a row."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_records import KERNEL_DTYPE

LAUNCH_DTYPE: Final = np.dtype([("correlation", "<i8"), ("start_ns", "<i8")])
_CODES: Final = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i8": "q", "f4": "f"}


class Rows:
    """A growing packed array. Fields outside of their type raise `struct.error`."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        fields = dtype.fields
        codes = [dtype.str] if fields is None else [fields[name][0].str for name in dtype.names or ()]
        self._packer = struct.Struct("<" + "".join(_CODES[code[1:]] for code in codes))
        self._packed = bytearray()
        self.pack = self._packer.pack

    def add(self, *values: int) -> None:
        self._packed += self.pack(*values)

    def __len__(self) -> int:
        return len(self._packed) // self._packer.size

    def array(self) -> NDArray[Any]:
        """All rows, without a copy: nothing can be added afterwards."""
        if not self._packed:
            return np.empty(0, self._dtype)
        return np.frombuffer(self._packed, self._dtype)


def kernel_rows() -> Rows:
    """Rows of (start, duration, issue, name id, stream, kilobytes, operation, device, 0)."""
    return Rows(KERNEL_DTYPE)


def sort_by_start(rows: NDArray[np.void], *parallel: NDArray[np.int64]) -> None:
    """Sort rows by `start_ns`, stably and in place, and `parallel` with them.

    Field by field: a copy of all kernels of a large trace at once would double the memory it needs.
    """
    starts = rows["start_ns"]
    if np.all(starts[1:] >= starts[:-1]):
        return
    order = np.argsort(starts, kind="stable")
    for name in rows.dtype.names or ():
        rows[name] = rows[name][order]
    for array in parallel:
        array[:] = array[order]
