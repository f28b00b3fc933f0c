"""Keys of kernel records: which kernel on which stream of which device, as one number a record.

A raw stream id means something on its device only: two devices of one process both have a stream 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_records import KernelArray

_DEVICE_BITS: Final = 8
_STREAM_BITS: Final = 32
_PLACE_BITS: Final = _DEVICE_BITS + _STREAM_BITS

Keys = NDArray[np.int64]


def stream_key(device: int, stream: int) -> int:
    """A stream of a device as one number; on device 0 the raw stream id."""
    return device << _STREAM_BITS | stream


def device_of(key: int) -> int:
    """The device of a `stream_key`."""
    return key >> _STREAM_BITS


def stream_keys(records: KernelArray) -> Keys:
    """`stream_key` of each record, shape (n,)."""
    device = records["device"].astype(np.int64)
    return np.asarray(device << _STREAM_BITS | records["stream"])


@dataclass(frozen=True)
class Pairs:
    """The distinct (kernel name, stream) pairs among some records, by ascending key.

    What is known of a pair costs nothing a record: functions look at pairs first.

    Attributes:
        key: name and stream as one number, shape (p,).
        name_id: of each pair, shape (p,).
        stream: `stream_key` of each pair, shape (p,).
        index: pair of each record, shape (n,).
        count: records of each pair, shape (p,).
        seconds: their durations summed, shape (p,).
        operation: `wire.Operation` of each pair, shape (p,).
    """

    key: Keys
    name_id: Keys
    stream: Keys
    index: NDArray[np.intp]
    count: NDArray[np.intp]
    seconds: NDArray[np.float64]
    operation: NDArray[np.uint8]


def find_pairs(records: KernelArray) -> Pairs:
    """Group records by name and stream. `name_id` must be below 2^23 (a rank interns at most 16,384)."""
    key = records["name_id"].astype(np.int64) << _PLACE_BITS | stream_keys(records)
    distinct, index, count = np.unique(key, return_inverse=True, return_counts=True)
    nanoseconds = np.bincount(index, weights=records["duration_ns"], minlength=len(distinct))
    one = np.empty(len(distinct), np.intp)
    one[index] = np.arange(len(records))  # all records of a name do the same
    return Pairs(
        key=distinct,
        name_id=distinct >> _PLACE_BITS,
        stream=distinct & ((1 << _PLACE_BITS) - 1),
        index=index,
        count=count,
        seconds=nanoseconds / 1e9,
        operation=records["operation"][one],
    )
