"""Voids: time in which no kernel runs on the rank's GPU, split by what it says.

    inter_step(b) = max(0, first start of the kernels launched after b - last end of those launched before b)
    minority      = all time without a running kernel - sum of inter_step(b) over the steps' ends b

`inter_step` is FLARE's T_inter: what the host does between two steps (data loading, logging, checkpoints).
`minority` is FLARE's T_minority: empty slots within a step. FLARE instruments chosen kernels, so its slots
may hold others; CUPTI sees every kernel, so here they are idle time: launches that come late, or waits.
As shares of the step: V_inter = inter_step / step, V_minority = minority / (step - inter_step).

Copies and memory sets do not count as running: they occupy no multiprocessor. Where a launch time is unknown
the kernel's start stands for it.

Source: FLARE section 5.2.2, equations 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KernelArray


@dataclass(frozen=True)
class Voids:
    """Idle time of one window, seconds."""

    inter_step: float
    minority: float


def find_voids(
    records: KernelArray, step_ends_ns: NDArray[np.int64], previous_end_ns: int | None, device: int
) -> Voids:
    """Voids of one window.

    Args:
        records: kernel records, in any order, shape (n,).
        step_ends_ns: ends of iterations (host clock), ascending: those inside the window, and before them the
            one that opened it where the window before is known. The one that closes it is left to the next
            window, which knows the kernel that ends the gap.
        previous_end_ns: when the last kernel of the window before ended; None where that is not known.
        device: the device looked at.
    """
    own = records[(records["device"] == device) & (records["operation"] == wire.Operation.KERNEL)]
    if not len(own):
        return Voids(0.0, 0.0)
    start = own["start_ns"].astype(np.int64)
    end = start + own["duration_ns"].astype(np.int64)
    launch = np.where(own["issue_ns"] >= 0, start - own["issue_ns"], start)
    first = int(start.min())
    before = first if previous_end_ns is None else previous_end_ns

    order = np.argsort(start, kind="stable")
    busy_until = np.maximum(np.maximum.accumulate(end[order]), before)
    idle = int(np.maximum(start[order][1:] - busy_until[:-1], 0).sum()) + max(first - before, 0)

    order = np.argsort(launch, kind="stable")
    last_end = np.concatenate(([before], np.maximum(np.maximum.accumulate(end[order]), before)))
    next_start = np.minimum.accumulate(start[order][::-1])[::-1]
    # Steps without a kernel between their ends share one gap.
    place = np.unique(np.searchsorted(launch[order], step_ends_ns, side="right"))
    # Before the first kernel ever seen there is no gap, and the one after the last is not over.
    place = place[(place < len(own)) & ((place > 0) | (previous_end_ns is not None))]
    inter_step = int(np.maximum(next_start[place] - last_end[place], 0).sum())
    return Voids(inter_step / 1e9, max(idle - inter_step, 0) / 1e9)


def last_kernel_end(records: KernelArray, device: int) -> int | None:
    """When the last kernel of a device ended, Unix ns; None where there is none."""
    own = records[(records["device"] == device) & (records["operation"] == wire.Operation.KERNEL)]
    return int((own["start_ns"] + own["duration_ns"]).max()) if len(own) else None
