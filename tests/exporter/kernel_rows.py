"""Kernel records and iteration marks by hand, for tests of windows and what is made of them."""

from __future__ import annotations

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray

NAMES = {
    0: "",
    1: "gemm",
    2: "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    3: "Memcpy HtoD",
    4: "ncclDevKernel_SendRecv",
    5: "softmax",
}


def kernels(*rows: tuple[int, ...], device: int = 0) -> KernelArray:
    """Rows of start_ns, duration_ns, name id, stream and, where known, issue_ns."""
    records = np.zeros(len(rows), KERNEL_DTYPE)
    for place, (start, duration, name_id, stream, *issue) in enumerate(rows):
        operation = wire.Operation.MEMCPY if name_id == 3 else wire.Operation.KERNEL
        known = issue[0] if issue else -1
        records[place] = (start, duration, known, name_id, stream, 0, operation, device, 0)
    return records


def iteration(step: int, end_ns: int, *, seen_before: int = 100, duration_ns: int = 10**9) -> wire.Iteration:
    """A mark; the producer had finished `seen_before` iterations before step 1."""
    return wire.Iteration(step, end_ns, duration_ns, seen_before + step, 0.0, 0.0)
