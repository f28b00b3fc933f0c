"""How much longer each rank's operations take than those of its peers, step by step, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_traces.expectation import Floats
from argus_traces.path import Model

# Ranks of one model differ by half a percent for ever: no smaller deviation proves anything.
_LEAST_DEVIATION: Final = 0.005
# A kernel in 300 takes several times its usual time on healthy GPUs: one or two in a step prove nothing.
_OUTLIERS: Final = 2
_BESIDE_MATES: Final = 3.0
_TOGETHER: Final = 0.6


@dataclass(frozen=True)
class Shifts:
    """Log ratios of what operations of one kind took to what they should have taken.

    Attributes:
        kind: of the operations.
        table: by rank and step, NaN where nothing ran.
        labels: the steps.
        lasting: mean over the steps but for the largest, so that no single step makes a shift; 0 where half
            of the steps show less than half of it. Shape (ranks,).
        deviation: how much the other ranks' steps vary about their own medians, shape (ranks,).
        score: `lasting` in standard errors.
    """

    kind: int
    table: Floats
    labels: NDArray[np.int64]
    lasting: Floats
    deviation: Floats
    score: Floats

    @property
    def steps(self) -> int:
        return len(self.labels)

    def of_step(self, rank: int, step: int) -> tuple[float, float] | None:
        """(shift beyond the rank's usual one, in deviations) of one step."""
        column = np.flatnonzero(self.labels == step)
        if not len(column) or np.isnan(self.table[rank, column[0]]):
            return None
        shift = float(self.table[rank, column[0]] - np.nanmedian(self.table[rank]))
        return shift, shift / float(self.deviation[rank])

    def broad(self, of: Model, rank: int, step: int) -> bool:
        """Whether the step is slow in more than a few of its operations."""
        operations = of.operations
        chosen = (
            (operations["rank"] == rank) & (operations["step"] == step) & (operations["kind"] == self.kind)
        )
        excess = np.sort(of.duration[chosen] - of.expected[chosen])
        total = float(excess.sum())
        return bool(float(excess[:-_OUTLIERS].sum()) >= 0.5 * total)


def rank_shifts(of: Model, kind: int) -> Shifts:
    """Shifts of the operations of a kind, weighted by time within a step."""
    ranks = len(of.fleet.traces)
    chosen = of.operations["kind"] == kind
    labels, step = np.unique(of.operations["step"][chosen], return_inverse=True)
    cell = of.operations["rank"][chosen].astype(np.int64) * len(labels) + step
    size = ranks * len(labels)
    took = np.bincount(cell, of.duration[chosen], minlength=size)
    should = np.bincount(cell, of.expected[chosen], minlength=size)
    with np.errstate(divide="ignore", invalid="ignore"):
        table = np.where((took > 0) & (should > 0), np.log(took / should), np.nan).reshape(ranks, len(labels))
    lasting, deviation, score = _tested(table)
    beside, _, score_beside = _tested(_beside_mates(of, table))
    # Whichever says more: beside the mates, the size of the batch does not matter; without mates all is 0.
    clearer = (score_beside > score) & (beside > 0) & (lasting > 0)
    # Mates that are slow together may have been given larger batches: that needs more proof.
    together = _has_mates(of) & (score_beside < _BESIDE_MATES)
    score = np.where(together, _TOGETHER * score, score)
    return Shifts(
        kind, table, labels.astype(np.int64), np.where(clearer, np.minimum(lasting, beside), lasting),
        deviation, np.where(clearer, score_beside, score),
    )  # fmt: skip


def _has_mates(of: Model) -> NDArray[np.bool_]:
    places = [trace.window.coordinates.get("dp", -1) for trace in of.fleet.traces]
    return np.array([place >= 0 and places.count(place) > 1 for place in places])


def _tested(table: Floats) -> tuple[Floats, Floats, Floats]:
    """(lasting shift, deviation, score) of each row."""
    rows = [row[~np.isnan(row)] for row in table]
    deviation = np.array(
        [_deviation([row for other, row in enumerate(rows) if other != rank]) for rank in range(len(rows))]
    )
    lasting = np.array([_lasting(row) for row in rows])
    counts = np.array([max(len(row) - 1, 1) for row in rows])
    return lasting, deviation, lasting * np.sqrt(counts) / deviation


def _beside_mates(of: Model, table: Floats) -> Floats:
    """The shifts less the median of the ranks that work on the same data: those of one dp index."""
    places = [trace.window.coordinates.get("dp", -1) for trace in of.fleet.traces]
    result = np.zeros_like(table)
    for rank, place in enumerate(places):
        mates = [other for other, index in enumerate(places) if index == place >= 0 and other != rank]
        if mates:
            result[rank] = table[rank] - np.nanmedian(table[mates], axis=0)
    return result


def _lasting(row: Floats) -> float:
    if not len(row):
        return 0.0
    mean = float(np.sort(row)[: max(len(row) - 1, 1)].mean())
    return mean if float(np.median(row)) >= 0.5 * mean else 0.0


def _deviation(rows: list[Floats]) -> float:
    """Pooled standard deviation about each row's median: few steps of one rank give no deviation alone."""
    rows = [row for row in rows if len(row) > 1]
    if not rows:
        return _LEAST_DEVIATION
    around = np.concatenate([row - np.median(row) for row in rows])
    freedom = max(len(around) - len(rows), 1)
    return max(float(np.sqrt((around**2).sum() / freedom)), _LEAST_DEVIATION)
