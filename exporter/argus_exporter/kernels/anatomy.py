"""What a GPU did in some stretches of time: the arithmetic of an anatomy.

At each instant exactly one part: a kernel of the job's own work runs (`compute`); else a communication
kernel does (`exposed`: nothing hides it); else a copy or memory set (`copy`); else nothing (`idle`). Streams
overlap, so each part is a union of intervals over all streams of a device. Exposed time belongs to the
communication kernel that started first of those that run.

Times are Unix ns as 64-bit integers: the parts of a stretch add up to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

PARTS: Final = ("compute", "exposed", "copy", "idle")
COMPUTE: Final = 0
COMMUNICATION: Final = 1
COPY: Final = 2

SNAP_NS: Final = 30_000
"""CUPTI's clock and that of CUDA events differ by some 10 us. A boundary of a span is a point between two
kernels of its stream: one that seems to lie inside a kernel, by less than this, lies at its nearer edge."""


@dataclass(frozen=True)
class Ran:
    """Kernels, copies and memory sets of one device, ascending by start; arrays of shape (n,).

    Attributes:
        start, end: ns.
        part: COMPUTE, COMMUNICATION or COPY.
        stream: of each, as `pairs.stream_keys` numbers them.
    """

    start: Times
    end: Times
    part: NDArray[np.int8]
    stream: Times


@dataclass(frozen=True)
class Slices:
    """Disjoint stretches of time, ascending; `owner`: whose each is. Arrays of shape (m,)."""

    begin: Times
    end: Times
    owner: NDArray[np.intp]


class Timeline:
    """What a device did, ready to be asked about stretches of time."""

    def __init__(self, ran: Ran) -> None:
        of_kernels = ran.part != COPY
        self._compute = _Union(ran.start, ran.end, ran.part == COMPUTE)
        self._busy = (
            self._compute,
            _Union(ran.start, ran.end, of_kernels),
            _Union(ran.start, ran.end, np.ones_like(of_kernels)),
        )
        communicates = ran.part == COMMUNICATION
        self._communication = _Union(ran.start, ran.end, communicates)
        self._stream = ran.stream[communicates]

    def parts(self, slices: Slices, owners: int) -> Times:
        """Nanoseconds by owner and `PARTS`, shape (owners, 4): every one of a slice is in one part."""
        edges = np.stack((slices.begin, slices.end))
        until = np.stack((*(union.until(edges) for union in self._busy), edges))
        of_slice = np.diff(until[:, 1] - until[:, 0], axis=0, prepend=0)
        parts = np.zeros((owners, len(PARTS)), np.int64)
        np.add.at(parts, slices.owner, of_slice.T)
        return parts

    def exposed(self, slices: Slices) -> dict[tuple[int, int], int]:
        """The nanoseconds of `exposed` by owner and by the stream whose kernel is waited for.

        A kernel is the one that started first in what it adds to the union of those that started before it.
        """
        pieces = self._communication
        adds = pieces.length > 0
        begin, end, stream = pieces.begin[adds], (pieces.begin + pieces.length)[adds], self._stream[adds]
        # Between two neighbouring edges there is one slice, or none, and one piece, or none.
        edges = np.sort(np.concatenate((slices.begin, slices.end, begin, end)), kind="stable")
        free = np.diff(edges - self._compute.until(edges))
        used = free > 0
        at, free = edges[:-1][used], free[used]
        slice_, piece = _holding(slices.begin, slices.end, at), _holding(begin, end, at)
        both = (slice_ >= 0) & (piece >= 0)
        owners, streams = slices.owner[slice_[both]], stream[piece[both]]
        found: dict[tuple[int, int], int] = {}
        for one in np.unique(streams).tolist():
            of_stream = streams == one
            sums = np.zeros(int(owners.max()) + 1, np.int64)
            np.add.at(sums, owners[of_stream], free[both][of_stream])
            found |= {(owner, one): int(sums[owner]) for owner in np.flatnonzero(sums).tolist()}
        return found


def innermost(begin: Times, end: Times) -> Slices:
    """Which span owns each instant: of those that are open, the one that began last.

    Args:
        begin, end: of the spans, in any order; one that began with another and ends sooner lies within it.

    Returns:
        Slices whose owners are places in the arguments.
    """
    found: list[tuple[int, int, int]] = []
    open_: list[tuple[int, int]] = []  # end and place, innermost last
    at = 0

    def own(until: int) -> None:
        nonlocal at
        if until > at:
            found.append((at, until, open_[-1][1]))
            at = until

    order = np.lexsort((-end, begin))
    for place, first, last in zip(order.tolist(), begin[order].tolist(), end[order].tolist(), strict=True):
        while open_ and open_[-1][0] <= first:
            own(open_[-1][0])
            open_.pop()
        if open_:
            own(first)
        at = max(at, first)
        open_.append((last, place))
    while open_:
        own(open_[-1][0])
        open_.pop()
    table = np.array(found, np.int64).reshape(-1, 3)
    return Slices(table[:, 0], table[:, 1], table[:, 2].astype(np.intp))


def snap(times: Times, start: Times, end: Times) -> Times:
    """Boundaries of spans, moved out of the kernels of their own stream where they are just inside.

    Args:
        times: ns.
        start, end: of the kernels of that stream, ascending by start.
    """
    if not len(start):
        return times
    place = np.searchsorted(start, times, side="right") - 1
    of = np.maximum(place, 0)
    since, left = times - start[of], end[of] - times
    just_inside = (place >= 0) & (left > 0) & (np.minimum(since, left) < SNAP_NS)
    return np.where(just_inside, np.where(since <= left, start[of], end[of]), times)


class _Union:
    """The union of the chosen of some intervals that ascend by start, as pieces that each adds to it."""

    def __init__(self, start: Times, end: Times, chosen: NDArray[np.bool_]) -> None:
        start, end = start[chosen], end[chosen]
        upto = np.maximum.accumulate(end)
        np.maximum(start[1:], upto[:-1], out=start[1:])
        self.begin = start
        self.length = np.maximum(end - start, 0)
        self._before = np.cumsum(self.length) - self.length

    def until(self, times: Times) -> Times:
        """How much of the union lies before each time."""
        if not len(self.begin):
            return np.zeros_like(times)
        place = np.maximum(np.searchsorted(self.begin, times, side="right") - 1, 0)
        inside = np.clip(times - self.begin[place], 0, self.length[place])
        return np.asarray(self._before[place] + inside)


def _holding(begin: Times, end: Times, times: Times) -> NDArray[np.intp]:
    """Which of some disjoint stretches each time lies in; -1: none."""
    if not len(begin):
        return np.full(len(times), -1, np.intp)
    place = np.searchsorted(begin, times, side="right") - 1
    return np.where((place >= 0) & (times < end[np.maximum(place, 0)]), place, -1)
