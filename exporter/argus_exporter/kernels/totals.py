"""Running totals of kernels: launches and time of each pair, and collectives as communication phases.

They advance with the records, every two seconds, and not only with windows: a rate over a minute then means
something. What a record counts for (its label values) is known from the first complete window on; records
before that are kept as sums and counted then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_names import collective_phase, kernel_id
from argus_core.kernel_records import KernelArray, join
from argus_exporter.kernels.pairs import Pairs, find_pairs

FOLD_SECONDS: Final = 2.0
"""Below usual scrape intervals. Grouping a batch costs 100 us and 20 ns a record: not for every packet."""
_WAITING_LIMIT: Final = 65_536
_PAIRS_LIMIT: Final = 16_384
"""Pairs of one rank: a real job has hundreds, but a producer in a loop must not eat the memory."""


class KernelIds(dict[str, str]):
    """Full name to label value, computed once a name."""

    def __missing__(self, name: str) -> str:
        self[name] = kernel_id(name)
        return self[name]


@dataclass(frozen=True)
class PairTotals:
    """One (kernel, stream) since the rank connected."""

    count: int
    seconds: float


@dataclass(frozen=True)
class CollectiveTotals:
    """Collectives of one phase and dimension in the records that were counted last. Seconds."""

    phase: str
    dimension: str
    count: int
    seconds: float
    longest: float


class KernelTotals:
    """Totals of one rank. One thread.

    Sums are kept in arrays by slot, a slot for each (kernel name, stream), so that a batch costs a few array
    operations whatever it holds.

    Args:
        names: kernel names by `name_id`, as they become known.
        every_seconds: how often `advance` counts.
    """

    def __init__(self, names: Mapping[int, str], every_seconds: float = FOLD_SECONDS) -> None:
        self.every_seconds = every_seconds
        self._names = names
        self._ids = KernelIds()
        self._streams: Mapping[int, str] = {}
        self._dimensions: Mapping[int, str] = {}
        self._waiting: list[KernelArray] = []
        self._waiting_records = 0
        self._folded_at = -math.inf
        self._keys = np.empty(0, np.int64)  # ascending, and the slot of each
        self._slot_of_key = np.empty(0, np.intp)
        self._slots: list[tuple[int, int]] = []  # name id and stream key
        self._waiting_sums = np.zeros((3, 0))  # count, seconds, longest by slot
        self._totals = np.zeros((2, 0))  # count, seconds by total
        self._total_of_slot = np.empty(0, np.intp)  # -1: its stream has no label
        self._collective: dict[int, tuple[str, str]] = {}  # slot to phase and dimension
        self._by_pair: dict[tuple[str, str], int] = {}
        self.dropped = 0
        """Records of pairs beyond the limit."""

    def of(self, pair: tuple[str, str]) -> PairTotals | None:
        """Totals of a (kernel, stream) by its label values; None where nothing was counted for it."""
        place = self._by_pair.get(pair)
        if place is None:
            return None
        count, seconds = self._totals[:, place].tolist()
        return PairTotals(int(count), seconds)

    def add(self, records: KernelArray) -> None:
        """Take records; they are counted by `advance`."""
        self._waiting.append(records)
        self._waiting_records += len(records)
        if self._waiting_records >= _WAITING_LIMIT:
            self._fold()

    def label(self, streams: Mapping[int, str], dimensions: Mapping[int, str]) -> None:
        """Take the labels of streams, and the dimensions of those whose collectives become phases."""
        if streams != self._streams or dimensions != self._dimensions:
            self._fold()
            self._streams, self._dimensions = streams, dimensions
            for slot in range(len(self._slots)):
                self._assign(slot)

    def advance(self, now: float, *, at_once: bool = False) -> list[CollectiveTotals]:
        """Count what has come, every `every_seconds` or at once; `now` is monotonic seconds.

        Returns:
            Collectives counted by this call.
        """
        if now - self._folded_at < self.every_seconds and not at_once:
            return []
        self._folded_at = now
        self._fold()
        return self._settle()

    def _fold(self) -> None:
        """Sum the waiting records by slot."""
        if not self._waiting:
            return
        records = join(self._waiting)
        self._waiting, self._waiting_records = [], 0
        pairs = find_pairs(records)
        longest = np.zeros(len(pairs.key))
        np.maximum.at(longest, pairs.index, records["duration_ns"].astype(np.float64))
        slots = self._find_slots(pairs)
        known = slots >= 0
        self.dropped += int(pairs.count[~known].sum())
        slots = slots[known]
        self._waiting_sums[0, slots] += pairs.count[known]
        self._waiting_sums[1, slots] += pairs.seconds[known]
        self._waiting_sums[2, slots] = np.maximum(self._waiting_sums[2, slots], longest[known] / 1e9)

    def _find_slots(self, pairs: Pairs) -> NDArray[np.intp]:
        """Slot of each pair, made where there is none; -1 beyond the limit."""
        new = np.setdiff1d(pairs.key, self._keys, assume_unique=True)[: _PAIRS_LIMIT - len(self._slots)]
        if len(new):
            first = len(self._slots)
            places = np.searchsorted(pairs.key, new)
            self._slots += zip(pairs.name_id[places].tolist(), pairs.stream[places].tolist(), strict=True)
            keys = np.concatenate((self._keys, new))
            order = np.argsort(keys)
            made = np.concatenate((self._slot_of_key, np.arange(first, len(self._slots))))
            self._keys, self._slot_of_key = keys[order], made[order]
            self._waiting_sums = np.pad(self._waiting_sums, ((0, 0), (0, len(new))))
            self._total_of_slot = np.pad(self._total_of_slot, (0, len(new)), constant_values=-1)
            for slot in range(first, len(self._slots)):
                self._assign(slot)
        if not len(self._keys):
            return np.full(len(pairs.key), -1)
        place = np.minimum(np.searchsorted(self._keys, pairs.key), len(self._keys) - 1)
        return np.where(self._keys[place] == pairs.key, self._slot_of_key[place], -1)

    def _assign(self, slot: int) -> None:
        """Find the label that a slot counts for, and the phase where it is a collective of a known group."""
        name_id, stream = self._slots[slot]
        self._collective.pop(slot, None)
        self._total_of_slot[slot] = -1
        label = self._streams.get(stream)
        if label is None:
            return
        name = self._names.get(name_id, f"unknown_{name_id}")
        pair = self._ids[name], label
        if pair not in self._by_pair:
            self._by_pair[pair] = len(self._by_pair)
            self._totals = np.pad(self._totals, ((0, 0), (0, 1)))
        self._total_of_slot[slot] = self._by_pair[pair]
        phase, dimension = collective_phase(name), self._dimensions.get(stream)
        if phase and dimension:
            self._collective[slot] = phase, dimension

    def _settle(self) -> list[CollectiveTotals]:
        """Move the sums whose stream has a label to the totals."""
        slots = np.flatnonzero((self._total_of_slot >= 0) & (self._waiting_sums[0] > 0))
        for row, total in enumerate(self._totals):
            np.add.at(total, self._total_of_slot[slots], self._waiting_sums[row, slots])
        collectives = []
        for slot, (phase, dimension) in self._collective.items():
            count, seconds, longest = self._waiting_sums[:, slot].tolist()
            if count:
                collectives.append(CollectiveTotals(phase, dimension, int(count), seconds, longest))
        self._waiting_sums[:, slots] = 0.0
        return collectives
