"""Issue latency: how long launched kernels wait before they start.

    latency = start of the kernel on the GPU - its launch on the host

In a healthy job the host runs ahead and kernels queue. When the host stalls (garbage collection, a
synchronisation that someone added) the queue runs dry and the latencies become short: compare with history,
with the sign.

Source: FLARE section 5.2.2, "issue latency distribution".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core import wire
from argus_core.kernel_names import is_collective
from argus_core.kernel_records import KernelArray

QUANTILES: Final = (0.1, 0.5, 0.9)
"""A stall shows in the lower half: FLARE's unhealthy distributions rise steeply from 0."""


@dataclass(frozen=True)
class IssueLatency:
    """One class of kernels in one window. Seconds; `quantiles` by q, nearest rank below."""

    count: int
    seconds: float
    quantiles: dict[float, float]


def issue_latency(records: KernelArray, names: Mapping[int, str]) -> dict[str, IssueLatency]:
    """By class: `compute`, `comm`, `copy` (and memory sets). Records without a launch time are left out.

    Args:
        records: kernel records of one window, shape (n,).
        names: kernel names by `name_id`.
    """
    known = records["issue_ns"] >= 0
    used = np.unique(records["name_id"])
    collective_ids = [name_id for name_id in used.tolist() if is_collective(names.get(name_id, ""))]
    is_kernel = records["operation"] == wire.Operation.KERNEL
    collective = np.isin(records["name_id"], collective_ids) & is_kernel
    classes = (("compute", is_kernel & ~collective), ("comm", collective), ("copy", ~is_kernel))
    found: dict[str, IssueLatency] = {}
    for name, of_class in classes:
        latencies = records["issue_ns"][known & of_class]
        if len(latencies):
            places = [int(q * (len(latencies) - 1)) for q in QUANTILES]
            ordered = np.partition(latencies, places)
            quantiles = {q: float(ordered[place]) / 1e9 for q, place in zip(QUANTILES, places, strict=True)}
            found[name] = IssueLatency(
                len(latencies), float(latencies.sum(dtype=np.float64)) / 1e9, quantiles
            )
    return found
