"""Semantic names for CUDA streams: raw ids are not comparable across ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_names import is_collective
from argus_core.kernel_records import KernelArray
from argus_exporter.kernels.communicator_streams import is_communicator
from argus_exporter.kernels.pairs import Pairs, device_of, find_pairs

_LABELS_A_KIND: Final = 32
"""Labels of one kind; the streams beyond share one. PyTorch's pool has 32 streams a priority."""
_RETIRE_AFTER_WINDOWS: Final = 10
_REST: Final = "_rest"

DimensionOf = Callable[[int], str | None]
"""Stream key to the parallel dimension of the communicator that runs there; None: not known."""


def _no_dimension(key: int) -> str | None:  # noqa: ARG001
    return None


@dataclass
class _Stream:
    kind: str
    label: str
    idle: int = 0


class StreamLabels:
    """Labels of one rank's streams, kept from window to window.

    A stream is called after what takes most of its time when it is first seen: `compute0`, `copy0`, `nccl0`,
    numbered by raw id, which is the order in which a program creates them, the same on every rank. The stream
    of a communicator whose dimension is known is `nccl:dp`, a second one `nccl:dp.1`. Streams of another
    device than the rank's own carry it: `compute0:gpu1`. A label whose stream was idle for ten windows may
    name another stream.
    """

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._main_device: int | None = None

    @property
    def main_device(self) -> int | None:
        """The rank's own: the lowest device with at least half the time of the busiest; None at first."""
        return self._main_device

    def update(
        self, pairs: Pairs, names: Mapping[int, str], dimension_of: DimensionOf = _no_dimension
    ) -> dict[int, str]:
        """Label by stream key, after one more window.

        Args:
            pairs: kernels of the window.
            names: kernel names by `name_id`.
            dimension_of: asked for streams of collectives that have no dimension yet.
        """
        keys, index = np.unique(pairs.stream, return_inverse=True)
        total = _sum(index, pairs.seconds)
        if self._main_device is None and len(keys):
            self._main_device = _main_device(keys, total)
        collective = [is_collective(names.get(name_id, "")) for name_id in pairs.name_id.tolist()]
        collectives = _sum(index, pairs.seconds * collective)
        copies = _sum(index, pairs.seconds * (pairs.operation != wire.Operation.KERNEL))
        for stream in self._streams.values():
            stream.idle += 1
        for place, key in enumerate(keys.tolist()):
            known = self._streams.get(key)
            if known is not None:
                known.idle = 0
                # The one change of a label: the dimension of its communicator has become known.
                if known.kind != "nccl" and not is_communicator(key):
                    continue
            kind = "copy" if copies[place] * 2 > total[place] else "compute"
            if known is not None or is_communicator(key) or collectives[place] * 2 > total[place]:
                dimension = dimension_of(key)
                kind = f"nccl:{dimension}" if dimension else "nccl"
            if known is None or kind != known.kind:
                self._streams.pop(key, None)
                self._streams[key] = _Stream(kind, self._new_label(kind, device_of(key)))
        return self._labels()

    def _labels(self) -> dict[int, str]:
        return {key: stream.label for key, stream in self._streams.items()}

    def _new_label(self, kind: str, device: int) -> str:
        suffix = "" if device == self._main_device else f":gpu{device}"
        for key, stream in list(self._streams.items()):
            if stream.idle >= _RETIRE_AFTER_WINDOWS and stream.kind == kind:
                del self._streams[key]
        taken = {stream.label for stream in self._streams.values()}
        known_dimension = ":" in kind
        for number in count():
            if number >= _LABELS_A_KIND:
                return f"{kind}{_REST}{suffix}"
            spelled = (f".{number}" if number else "") if known_dimension else str(number)
            label = f"{kind}{spelled}{suffix}"
            if label not in taken:
                return label
        raise AssertionError("count() does not end")


def label_streams(records: KernelArray, names: Mapping[int, str]) -> dict[int, str]:
    """Label by stream key for the kernel records of one recording, without what went before."""
    return StreamLabels().update(find_pairs(records), names)


def _sum(index: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(index, weights=values).astype(np.float64)


def _main_device(keys: NDArray[np.int64], total: NDArray[np.float64]) -> int:
    seconds: dict[int, float] = {}
    for key, value in zip(keys.tolist(), total.tolist(), strict=True):
        seconds[device_of(key)] = seconds.get(device_of(key), 0.0) + value
    busiest = max(seconds.values())
    return min(device for device, value in seconds.items() if 2 * value >= busiest)
