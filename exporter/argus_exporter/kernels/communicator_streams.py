"""Kernels of NCCL by the communicator that launched them, where the producer says so.

What counts kernels counts them by stream. PyTorch gives a communicator a stream of its own, or runs its
collectives on the stream of the computation; so a kernel that carries its communicator counts as of a stream
that is the communicator's alone, whichever it ran on. Such streams have numbers that CUDA gives to none.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KernelArray

_FIRST: Final = 0xFFFF_0000
"""CUPTI numbers streams from 1 on, in the order in which they are made."""


def stream_of(slot: int, generation: int) -> int:
    """The stream of a communicator, by its place in NCCL's memory."""
    return _FIRST | wire.launched_by(slot, generation) >> wire.LAUNCHED_GENERATION


def is_communicator(key: int) -> bool:
    """Whether a `stream_key` is of such a stream."""
    return key & 0xFFFF_FFFF >= _FIRST


def by_communicator(records: KernelArray) -> KernelArray:
    """The records, those of known communicators on their streams; a copy where there are any."""
    word = records["kilobytes"]
    launched = (word >= wire.LAUNCHED_BY_NCCL) & (records["operation"] == wire.Operation.KERNEL)
    if not launched.any():
        return records
    records = records.copy()
    records["stream"][launched] = np.uint32(_FIRST) | word[launched] >> np.uint32(wire.LAUNCHED_GENERATION)
    return records
