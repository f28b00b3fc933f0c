"""Sets of time: unions, intersections and how much of an interval a set covers. All in ns, half open."""

from __future__ import annotations

import numpy as np

from argus_traces.tables import Slices, Spans, Times

NOTHING: Spans = np.empty((0, 2), np.int64)


def spans_of(slices: Slices) -> Spans:
    """Begin and end of each slice."""
    spans: Spans = np.stack([slices["start_ns"], slices["end_ns"]], axis=1)
    return spans


def union(spans: Spans) -> Spans:
    """Disjoint intervals, ascending, that cover the same time; empty ones are dropped."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return NOTHING
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate(([True], spans[1:, 0] > reach[:-1]))
    begins = spans[first, 0]
    ends = np.concatenate((reach[np.flatnonzero(first)[1:] - 1], reach[-1:]))
    return np.stack([begins, ends], axis=1)


def length(disjoint: Spans) -> int:
    """Time covered by disjoint intervals, ns."""
    return int((disjoint[:, 1] - disjoint[:, 0]).sum())


def covered(disjoint: Spans, spans: Spans) -> Times:
    """How much of each of `spans` the disjoint, ascending set covers, ns, shape (n,)."""
    return _before(disjoint, spans[:, 1]) - _before(disjoint, spans[:, 0])


def intersection(left: Spans, right: Spans) -> Spans:
    """What two disjoint, ascending sets have in common."""
    return complement(union(np.concatenate((complement(left), complement(right)))))


def complement(disjoint: Spans, begin: int | None = None, end: int | None = None) -> Spans:
    """What is missing between `begin` and `end` (default: the ends of time)."""
    low = -(1 << 62) if begin is None else begin
    high = (1 << 62) if end is None else end
    inside = np.clip(disjoint, low, high)
    edges = np.concatenate(([low], inside.reshape(-1), [high])).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def _before(disjoint: Spans, times: Times) -> Times:
    """Time that the set covers before each of `times`."""
    if not len(disjoint):
        return np.zeros(len(times), np.int64)
    lengths = disjoint[:, 1] - disjoint[:, 0]
    total = np.concatenate(([0], np.cumsum(lengths)))
    position = np.searchsorted(disjoint[:, 0], times, side="right")
    last = np.maximum(position - 1, 0)
    inside = np.clip(times - disjoint[last, 0], 0, lengths[last])
    return np.where(position > 0, total[last] + inside, 0)
