"""What a rank of a fleet runs on its GPU in a step: (kernel, stream) pairs with one to three duration modes.

The table is shaped after a dense transformer block in bf16. A kernel's modes stand for the shapes it is
called with, in a fixed order, so that a window of whole steps holds exact counts in each mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from argus_simulator import kernel_symbols as symbol

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KernelKind:
    """One (kernel, stream) pair of a phase.

    `share` of the phase's GPU time goes to it, spread over `launches` a step. Launch i has mode
    i modulo len(modes); `modes` are relative durations.
    """

    name: str
    share: float
    launches: int
    modes: tuple[float, ...] = (1.0,)
    stream: str = "compute0"
    """As an exporter names it."""


FORWARD: tuple[KernelKind, ...] = (
    KernelKind(symbol.GEMM_WIDE, 0.34, 6, (1.0, 2.7)),
    KernelKind(symbol.GEMM_NARROW, 0.16, 6, (1.0, 1.6, 3.1)),
    KernelKind(symbol.FLASH, 0.24, 4),
    KernelKind(symbol.NORM, 0.06, 4),
    KernelKind(symbol.ROPE, 0.03, 4, (1.0, 1.3)),
    KernelKind(symbol.GELU, 0.07, 4),
    KernelKind(symbol.ADD, 0.05, 8, (1.0, 2.0)),
    KernelKind(symbol.DROPOUT, 0.03, 4),
    KernelKind(symbol.CROSS_ENTROPY, 0.02, 2),
)
BACKWARD: tuple[KernelKind, ...] = (
    KernelKind(symbol.GEMM_WEIGHTS, 0.27, 6, (1.0, 2.7)),
    KernelKind(symbol.GEMM_INPUTS, 0.23, 6, (1.0, 2.4)),
    KernelKind(symbol.FLASH_BACKWARD, 0.26, 4),
    KernelKind(symbol.NORM_BACKWARD, 0.06, 4),
    KernelKind(symbol.NORM_BACKWARD_FINALIZE, 0.02, 4),
    KernelKind(symbol.ROPE_BACKWARD, 0.03, 4),
    KernelKind(symbol.GELU_BACKWARD, 0.06, 4),
    KernelKind(symbol.REDUCE, 0.04, 6, (1.0, 1.9, 3.4)),
    KernelKind(symbol.CROSS_ENTROPY_BACKWARD, 0.03, 2),
)
OPTIMIZER: tuple[KernelKind, ...] = (
    KernelKind(symbol.ADAM, 0.80, 8, (1.0, 1.4)),
    KernelKind(symbol.L2_NORM, 0.12, 4),
    KernelKind(symbol.MEMSET, 0.08, 4),
)
DATA: tuple[KernelKind, ...] = (
    KernelKind(symbol.COPY_TO_DEVICE, 0.9, 2, stream="copy0"),
    KernelKind(symbol.COPY_ON_DEVICE, 0.1, 2, stream="copy0"),
)
COLLECTIVES = {
    "dp-all-reduce": symbol.ALL_REDUCE,
    "tp-all-reduce": symbol.ALL_REDUCE_TREE,
    "ep-dispatch": symbol.SEND_RECV,
    "pp-forward-recv": symbol.SEND_RECV,
}
"""The kernel of each communication phase; it runs on its communicator's stream."""


@dataclass(frozen=True)
class KernelPlan:
    """The launches of one phase in a step, in launch order: layers interleave the kinds."""

    kinds: tuple[KernelKind, ...]

    @cached_property
    def kind_of_launch(self) -> NDArray[np.intp]:
        return np.array([kind for kind, _ in self._launches], dtype=np.intp)

    @cached_property
    def relative_seconds(self) -> Floats:
        """Share of the phase's GPU time that each launch takes; sums to 1 for shares that do."""
        shares = [self.kinds[kind].share * self._mode_share(kind, launch) for kind, launch in self._launches]
        total = sum(kind.share for kind in self.kinds)
        return np.array(shares) / total

    def matching(self, pattern: str) -> NDArray[np.bool_]:
        """Launches of kernels whose name matches the glob, shape (launches,)."""
        hit = np.array([fnmatchcase(kind.name, pattern) for kind in self.kinds], dtype=bool)
        chosen: NDArray[np.bool_] = hit[self.kind_of_launch]
        return chosen

    @cached_property
    def _launches(self) -> list[tuple[int, int]]:
        """(kind, launch number) sorted by where in the phase the launch falls."""
        every = [
            ((launch + 0.5) / kind.launches, index, launch)
            for index, kind in enumerate(self.kinds)
            for launch in range(kind.launches)
        ]
        return [(index, launch) for _, index, launch in sorted(every)]

    def _mode_share(self, kind: int, launch: int) -> float:
        modes, launches = self.kinds[kind].modes, self.kinds[kind].launches
        total = sum(modes[index % len(modes)] for index in range(launches))
        return modes[launch % len(modes)] / total


PLANS: dict[str, KernelPlan] = {
    "data": KernelPlan(DATA),
    "forward": KernelPlan(FORWARD),
    "backward": KernelPlan(BACKWARD),
    "optimizer": KernelPlan(OPTIMIZER),
}
