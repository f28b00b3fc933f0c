"""Semantic names for CUDA streams: raw ids are not comparable across ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_names import is_collective


def label_streams(
    records: NDArray[np.void], names: Mapping[int, str], known: Mapping[int, str]
) -> dict[int, str]:
    """Raw stream id to label: `nccl0`, `copy0` or `compute0`, after what takes most of its time.

    Args:
        records: kernel records (KERNEL_DTYPE), shape (n,).
        names: kernel names by `name_id`.
        known: labels given before, which stay; new streams are numbered after them, by raw id.
    """
    labels = dict(known)
    collective_ids = [
        name_id for name_id in np.unique(records["name_id"]).tolist() if is_collective(names.get(name_id, ""))
    ]
    for raw in np.unique(records["stream"]).tolist():
        if raw in labels:
            continue
        of_stream = records[records["stream"] == raw]
        duration = of_stream["duration_ns"].astype(np.float64)
        total = duration.sum()
        copies = duration[of_stream["operation"] != wire.Operation.KERNEL].sum()
        collectives = duration[np.isin(of_stream["name_id"], collective_ids)].sum()
        kind = "nccl" if collectives * 2 > total else "copy" if copies * 2 > total else "compute"
        labels[raw] = f"{kind}{sum(label.startswith(kind) for label in labels.values())}"
    return labels
