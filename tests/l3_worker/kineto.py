"""The smallest Kineto reader that the tests need: GPU durations by (kernel, stream)."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_names import kernel_id

Floats = NDArray[np.float64]
_GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}


def durations(trace: Path) -> dict[tuple[str, str], Floats]:
    """Durations in seconds by (kernel id, stream); zero durations stay, the clock ticks in microseconds."""
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat", "")).lower() in _GPU_CATEGORIES:
            stream = str(event.get("args", {}).get("stream", event.get("tid")))
            found[kernel_id(event["name"]), stream].append(float(event["dur"]) * 1e-6)
    return {pair: np.array(values) for pair, values in found.items()}
