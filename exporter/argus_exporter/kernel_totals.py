"""Running totals of kernels: launches and time of each pair, and collectives as communication phases.

They advance with the records, every two seconds, and not only with windows: a rate over a minute then means
something. What a record counts for (its label values) is known from the first complete window on; records
before that are kept as sums and counted then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_core.kernel_names import collective_phase, kernel_id
from argus_core.kernel_records import KernelArray
from argus_exporter.kernel_pairs import find_pairs

_FOLD_SECONDS: Final = 2.0
"""Below any scrape interval. Grouping a batch costs 50 us and 30 ns a record: not for every packet."""
_WAITING_LIMIT: Final = 65_536
_PAIRS_LIMIT: Final = 16_384
"""Pairs of one rank: a real job has hundreds, but a producer in a loop must not eat the memory."""


class KernelIds(dict[str, str]):
    """Full name to label value, computed once a name."""

    def __missing__(self, name: str) -> str:
        self[name] = kernel_id(name)
        return self[name]


@dataclass
class PairTotals:
    """One (kernel, stream) since the rank connected."""

    name: str
    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class CollectiveTotals:
    """Collectives of one phase and dimension in the records that were counted last. Seconds."""

    phase: str
    dimension: str
    count: int
    seconds: float
    longest: float


@dataclass
class _Sum:
    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class KernelTotals:
    """Totals of one rank. One thread."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._ids = KernelIds()
        self._streams: Mapping[int, str] = {}
        self._dimensions: Mapping[int, str] = {}
        self._waiting: list[KernelArray] = []
        self._waiting_records = 0
        self._folded_at = -math.inf
        self._sums: dict[tuple[int, int], _Sum] = {}
        self.by_pair: dict[tuple[str, str], PairTotals] = {}
        self.dropped = 0
        """Records of pairs beyond the limit."""

    def add(self, records: KernelArray) -> None:
        """Take records; they are counted by `advance`."""
        self._waiting.append(records)
        self._waiting_records += len(records)
        if self._waiting_records >= _WAITING_LIMIT:
            self._fold()

    def label(self, streams: Mapping[int, str], dimensions: Mapping[int, str]) -> None:
        """Take the labels of streams, and the dimensions of those whose collectives become phases."""
        self._streams, self._dimensions = streams, dimensions

    def advance(self, now: float, *, at_once: bool = False) -> list[CollectiveTotals]:
        """Count what has come, every two seconds or at once; `now` is monotonic seconds.

        Returns:
            Collectives counted by this call.
        """
        if now - self._folded_at < _FOLD_SECONDS and not at_once:
            return []
        self._folded_at = now
        self._fold()
        return list(self._settle())

    def _fold(self) -> None:
        """Sum the waiting records by name and stream."""
        if not self._waiting:
            return
        records = self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)
        self._waiting, self._waiting_records = [], 0
        pairs = find_pairs(records)
        longest = np.zeros(len(pairs.count))
        np.maximum.at(longest, pairs.index, records["duration_ns"] / 1e9)
        columns = (pairs.name_id, pairs.stream, pairs.count, pairs.seconds, longest)
        for name_id, stream, count, seconds, maximum in zip(*(c.tolist() for c in columns), strict=True):
            total = self._sums.get((name_id, stream))
            if total is None:
                if len(self._sums) >= _PAIRS_LIMIT:
                    self.dropped += count
                    continue
                total = self._sums[name_id, stream] = _Sum()
            total.count += count
            total.seconds += seconds
            total.longest = max(total.longest, maximum)

    def _settle(self) -> Iterator[CollectiveTotals]:
        """Move the sums whose stream has a label to the totals."""
        for (name_id, stream), part in list(self._sums.items()):
            label = self._streams.get(stream)
            if label is None:
                continue
            del self._sums[name_id, stream]
            name = self._names.get(name_id, f"unknown_{name_id}")
            pair = self._ids[name], label
            totals = self.by_pair.get(pair)
            if totals is None:
                if len(self.by_pair) >= _PAIRS_LIMIT:
                    self.dropped += part.count
                    continue
                totals = self.by_pair[pair] = PairTotals(name)
            totals.count += part.count
            totals.seconds += part.seconds
            phase, dimension = collective_phase(name), self._dimensions.get(stream)
            if phase and dimension:
                yield CollectiveTotals(phase, dimension, part.count, part.seconds, part.longest)
