"""Kernels of NCCL by the communicator that launched them, where the producer says so.

What counts kernels counts them by stream. PyTorch gives a communicator a stream of its own, or runs its
collectives on the stream of the computation; so a kernel that carries its communicator counts as of a stream
that is the communicator's alone, whichever it ran on. Such streams have numbers that CUDA gives to none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KernelArray

_FIRST: Final = 0xFFFF_0000
"""CUPTI numbers streams from 1 on, in the order in which they are made."""


def stream_of(slot: int, generation: int) -> int:
    """The stream of a communicator, by its place in NCCL's memory."""
    return _FIRST | wire.launched_by(slot, generation) >> wire.LAUNCHED_GENERATION


def stream_of_word(word: int) -> int:
    """The same, by the word of one of its kernels (`wire.launched_by`)."""
    return _FIRST | word >> wire.LAUNCHED_GENERATION


@dataclass(frozen=True)
class Members:
    """Who the ranks of a communicator are.

    Attributes:
        ranks: of the job, by rank in the communicator: those that are on this host.
        dimension: whose index the rank in the communicator is; `world`: it is the job's rank; empty: unknown.
    """

    ranks: Mapping[int, int]
    dimension: str

    def name(self, member: int) -> str:
        """`rank 5`, or its place `pp1` where only that is known; empty where nothing is."""
        rank = member if self.dimension == "world" else self.ranks.get(member)
        if rank is not None:
            return f"rank {rank}"
        return f"{self.dimension}{member}" if self.dimension else ""


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
