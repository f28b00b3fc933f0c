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
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KernelArray

_NEVER: Final = -(2**62)


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
    start, end, issue = _running(records, device)
    if not len(start):
        return Voids(0.0, 0.0)
    launch = np.where(issue >= 0, start - issue, start)
    first = int(start.min())
    before = first if previous_end_ns is None else previous_end_ns

    order = np.argsort(start, kind="stable")
    busy_until = np.maximum(np.maximum.accumulate(end[order]), before)
    idle = int(np.maximum(start[order][1:] - busy_until[:-1], 0).sum()) + max(first - before, 0)

    # By the step that launched them: when the last kernel of each ended, and the first one started.
    step_of = np.searchsorted(step_ends_ns, launch, side="left")
    last_end = np.full(len(step_ends_ns) + 1, _NEVER)
    np.maximum.at(last_end, step_of, end)
    next_start = np.full(len(step_ends_ns) + 1, -_NEVER)
    np.minimum.at(next_start, step_of, start)
    last_end[0] = max(last_end[0], before if previous_end_ns is not None else _NEVER)
    gap_begins = np.maximum.accumulate(last_end)[:-1]
    gap_ends = np.minimum.accumulate(next_start[::-1])[::-1][1:]
    # Before the first kernel ever seen there is no gap, and the one after the last is not over.
    known = (gap_begins > _NEVER) & (gap_ends < -_NEVER) & (gap_ends > gap_begins)
    # Steps without a kernel between their ends share one gap.
    gaps = np.unique(np.stack((gap_begins[known], gap_ends[known])), axis=1)
    inter_step = int((gaps[1] - gaps[0]).sum())
    return Voids(inter_step / 1e9, max(idle - inter_step, 0) / 1e9)


def last_kernel_end(records: KernelArray, device: int) -> int | None:
    """When the last kernel of a device ended, Unix ns; None where there is none."""
    _, end, _ = _running(records, device)
    return int(end.max()) if len(end) else None


def _running(
    records: KernelArray, device: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Start, end and issue latency of the kernels of a device, ns."""
    kept = (records["device"] == device) & (records["operation"] == wire.Operation.KERNEL)
    start = records["start_ns"][kept].astype(np.int64)
    return start, start + records["duration_ns"][kept].astype(np.int64), records["issue_ns"][kept]
