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
from argus_exporter.kernels.pairs import Pairs

QUANTILES: Final = (0.1, 0.5, 0.9)
"""A stall shows in the lower half: FLARE's unhealthy distributions rise steeply from 0."""
_CLASSES: Final = ("compute", "comm", "copy")
_COPY: Final = 2
_UNKNOWN: Final = -1
_SAMPLE: Final = 16_384
"""Kernels of a class that the quantiles are taken of, evenly spread: the rank of a quantile to 0.4 %."""


@dataclass(frozen=True)
class IssueLatency:
    """One class of kernels in one window. Seconds; `quantiles` by q, nearest rank below."""

    count: int
    seconds: float
    quantiles: dict[float, float]


def issue_latency(records: KernelArray, pairs: Pairs, names: Mapping[int, str]) -> dict[str, IssueLatency]:
    """By class: `compute`, `comm`, `copy` (and memory sets). Records without a launch time are left out.

    Args:
        records: kernel records of one window, shape (n,).
        pairs: of these records.
        names: kernel names by `name_id`.
    """
    issue = records["issue_ns"].astype(np.int64)
    class_of_pair = np.array(
        [
            _COPY if operation != wire.Operation.KERNEL else int(is_collective(names.get(name_id, "")))
            for name_id, operation in zip(pairs.name_id.tolist(), pairs.operation.tolist(), strict=True)
        ],
        np.int8,
    )
    class_of_record = np.where(issue >= 0, class_of_pair[pairs.index], _UNKNOWN)
    found: dict[str, IssueLatency] = {}
    for number, name in enumerate(_CLASSES):
        latencies = issue[class_of_record == number]
        if len(latencies):
            sample = latencies[:: -(-len(latencies) // _SAMPLE)]
            places = [int(q * (len(sample) - 1)) for q in QUANTILES]
            ordered = np.partition(sample, places)
            quantiles = {q: float(ordered[place]) / 1e9 for q, place in zip(QUANTILES, places, strict=True)}
            found[name] = IssueLatency(
                len(latencies), float(latencies.sum(dtype=np.float64)) / 1e9, quantiles
            )
    return found
