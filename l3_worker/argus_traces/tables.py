"""One rank's trace as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

SLICE: Final = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("name", "<i4"),
        ("track", "<i4"),
        ("category", "<i4"),
        ("kind", "<i4"),
        ("group", "<i4"),
        ("source", "<i4"),
        ("kernel", "<i4"),
        ("list", "<i4"),
        ("step", "<i8"),
        ("microbatch", "<i8"),
        ("bytes", "<i8"),
        ("communicator", "<i4"),
        ("sequence", "<i4"),
        ("flow", "<u8"),
    ]
)
"""A slice. `name` to `list` are positions in `RankTrace.strings`, -1: none. Steps, bytes and what
follows them: -1 where unknown. `communicator`: of NCCL, a number of its own within the rank; `sequence`: 15
bits of the number of the one operation that a kernel does, or the first of several collectives, which NCCL
counts by communicator and function; `list`: what a kernel with several does, equal for those of one exchange.
`flow`: the first flow that begins or ends here, 0: none. Times are Unix ns of the host's own clock."""

SAMPLE: Final = np.dtype([("time_ns", "<i8"), ("track", "<i4"), ("stack", "<i4"), ("weight", "<f8")])
"""A folded stack seen `weight` times; `stack`: frames from the outermost on, joined by `;`."""

Slices = NDArray[np.void]
"""Records of `SLICE`, shape (n,)."""
Times = NDArray[np.int64]
Spans = NDArray[np.int64]
"""Intervals in ns, shape (n, 2): begin and end."""


@dataclass(frozen=True)
class Window:
    """Whose trace it is, from the `window` event; what an older writer left out is empty or -1."""

    training_job: str = ""
    rank: int = -1
    node: str = ""
    gpu_uuid: str = ""
    role: str = ""
    world_size: int = -1
    coordinates: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    first_step: int = -1
    last_step: int = -1
    start_ns: int = 0
    end_ns: int = 0
    dropped: int = 0

    @property
    def name(self) -> str:
        """As the process is called: `rank 3 (dp1 tp0 pp2)`."""
        place = " ".join(f"{name}{index}" for name, index in self.coordinates.items())
        return f"rank {self.rank} ({place})" if place else f"rank {self.rank}"


@dataclass(frozen=True)
class RankTrace:
    """What one file says.

    Attributes:
        source: the key or path, for messages.
        tracks: thread names.
        slices: sorted by start.
        unfinished: slices that the window cut: they end at the window's end.
    """

    source: str
    window: Window
    strings: tuple[str, ...]
    tracks: tuple[str, ...]
    slices: Slices
    samples: NDArray[np.void]
    unfinished: int = 0

    def of(self, *categories: str) -> Slices:
        """Slices of some categories, sorted by start."""
        wanted = [position for position, text in enumerate(self.strings) if text in categories]
        found: Slices = self.slices[np.isin(self.slices["category"], wanted)]
        return found

    def text(self, position: int) -> str:
        """The string at a position; empty for -1."""
        return self.strings[position] if position >= 0 else ""
