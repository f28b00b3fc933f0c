"""What kernels of NCCL do, as text: `AllGather 12, ReduceScatter 8`, or `Send to 1 (rank 5)`.

Of kernels that do several operations, or send or receive; of one collective the kernel's own word says all.
What did not come whole is not told: then how many operations there are stays all that is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KernelArray
from argus_core.nccl_page import FUNCTIONS
from argus_exporter.kernels.communicator_streams import Members, stream_of_word

OPERATION_DTYPE: Final = np.dtype(
    [
        ("start_ns", "<u8"),
        ("launched_by", "<u4"),
        ("sequence", "<u4"),
        ("peer", "<i4"),
        ("function", "u1"),
        ("place", "u1"),
        ("unused", "<u2"),
    ]
)
"""`wire.NcclOperation` as numpy sees it."""

_NOBODY: Final = Members({}, "")


class _Operation(NamedTuple):
    function: str
    sequence: int
    peer: int

    def text(self, members: Members) -> str:
        if self.peer < 0:
            return f"{self.function} {self.sequence}"
        way = "from" if self.function == "Recv" else "to"
        name = members.name(self.peer)
        return f"{self.function} {way} {self.peer}" + (f" ({name})" if name else "")


@dataclass(frozen=True)
class Lists:
    """Of some kernels, in their order.

    Attributes:
        texts: what each does; empty: it does one collective, or nobody knows.
        sequences: 15 bits of the number of the first operation of a list of collectives; -1: there is none.
    """

    texts: list[str]
    sequences: NDArray[np.int64]


def lists(kernels: KernelArray, operations: NDArray[np.void], members: Mapping[int, Members]) -> Lists:
    """What each kernel does.

    Args:
        operations: OPERATION_DTYPE, any order; also of other kernels.
        members: of communicators, by `stream_of`; may lack some.
    """
    texts, sequences = [""] * len(kernels), np.full(len(kernels), -1, np.int64)
    told = _by_kernel(operations)
    if not told:
        return Lists(texts, sequences)
    words = kernels["kilobytes"]
    of_nccl = (kernels["operation"] == wire.Operation.KERNEL) & (words >= wire.LAUNCHED_BY_NCCL)
    for at in np.flatnonzero(of_nccl).tolist():
        word = int(words[at])
        mine = told.get((int(kernels["start_ns"][at]), word), {})
        count = 0 if word & wire.LAUNCHED_ONE else word % wire.LAUNCHED_ONE
        some = [mine.get(place) for place in range(min(count, wire.LISTED))]
        whole = [one for one in some if one is not None]
        if not whole or len(whole) < len(some):
            continue
        known = members.get(stream_of_word(word), _NOBODY)
        left_out = [f"{count - len(whole)} more"] if count > len(whole) else []
        texts[at] = ", ".join([*(one.text(known) for one in whole), *left_out])
        if all(one.peer < 0 for one in whole):
            sequences[at] = whole[0].sequence % wire.LAUNCHED_ONE
    return Lists(texts, sequences)


def _by_kernel(operations: NDArray[np.void]) -> dict[tuple[int, int], dict[int, _Operation]]:
    """Operations by place, by start and word of their kernel."""
    told: dict[tuple[int, int], dict[int, _Operation]] = defaultdict(dict)
    for start, word, sequence, peer, function, place, _ in operations.tolist():
        name = FUNCTIONS[min(function, len(FUNCTIONS) - 1)]
        told[start, word][place] = _Operation(name, sequence, peer)
    return dict(told)
