"""What one trace file shows: one rank, one stretch of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_core.store.keys import TraceKey
from argus_exporter.kernels.communicator_streams import Members
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE
from argus_exporter.traces.nccl_lists import OPERATION_DTYPE


@dataclass(frozen=True)
class Pause:
    """The training thread stood still for Python's collector or a compiler.

    `category`: `gc` or `compile`; `name`: what the slice is called.
    """

    category: str
    name: str
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class LayerSample:
    """One sample of the `index`-th layer of a kind, in one micro-batch of a step."""

    kind: str
    index: int
    microbatch: int
    step: int
    source: wire.Source
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class Samples:
    """Stack samples of a stretch of time: (thread, frames from the outermost on) to their number."""

    begin_ns: int
    end_ns: int
    counts: Mapping[tuple[str, tuple[str, ...]], int]


@dataclass(frozen=True)
class TraceWindow:
    """The records of a rank between two times, ready to be encoded.

    Attributes:
        identity: whose they are.
        begin_ns: Unix ns; with steps, the begin of the first one.
        end_ns: Unix ns; with steps, the end of the last one.
        first_step: None (with `last_step`) where there are no iteration marks.
        texts: what the ids in `kernels` and `spans` mean.
        kernels: KERNEL_DTYPE, any order.
        streams: `stream_key` to its label (`compute0`), for every stream in `kernels`.
        operations: OPERATION_DTYPE, any order: what kernels of NCCL do.
        members: who the ranks of NCCL's communicators are, by `stream_of`.
        spans: SPAN_DTYPE, any order.
        groups: comparison group of each span, shape of `spans`.
        iterations: ITERATION_DTYPE.
        drops: (Unix ns, records lost until then since the window's begin), ascending.
    """

    identity: Identity
    begin_ns: int
    end_ns: int
    first_step: int | None = None
    last_step: int | None = None
    texts: Mapping[int, str] = field(default_factory=dict)
    kernels: KernelArray = field(default_factory=lambda: np.empty(0, KERNEL_DTYPE))
    streams: Mapping[int, str] = field(default_factory=dict)
    operations: NDArray[np.void] = field(default_factory=lambda: np.empty(0, OPERATION_DTYPE))
    members: Mapping[int, Members] = field(default_factory=dict)
    spans: NDArray[np.void] = field(default_factory=lambda: np.empty(0, SPAN_DTYPE))
    groups: Sequence[str] = ()
    iterations: NDArray[np.void] = field(default_factory=lambda: np.empty(0, ITERATION_DTYPE))
    pauses: Sequence[Pause] = ()
    layers: Sequence[LayerSample] = ()
    samples: Sequence[Samples] = ()
    drops: Sequence[tuple[int, int]] = ()

    @property
    def key(self) -> TraceKey:
        """Where the store keeps it."""
        identity = self.identity
        return TraceKey(identity.training_job, identity.rank, self.first_step, self.last_step, self.begin_ns)

    @property
    def dropped(self) -> int:
        """Records of the window that were lost on the way."""
        return self.drops[-1][1] if self.drops else 0

    @property
    def events(self) -> int:
        """How many things happened in it."""
        return sum(map(len, (self.kernels, self.spans, self.iterations, self.pauses, self.layers)))
