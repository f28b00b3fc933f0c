"""EROICA's localisation: is a function of a rank outside of what is expected, or unlike its peers?

A function's behaviour on a rank is a pattern (beta, mu, sigma): its share of the critical path, and the mean
and deviation of the hardware's utilisation while it runs, each in [0, 1]. From Prometheus comes beta, the
share of wall time; mu and sigma only where utilisation series exist.

Source: EROICA 4.3, equations 6-11, with two repairs (docs/evidence/cross-checks.md): patterns are normalised
by a high quantile, since one extreme rank would press all others together under the maximum; and the bar of
the differential distance has a floor, since the median absolute deviation of a tight fleet is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from argus_l3_worker.triples import Bools, Floats

FunctionClass = Literal["compute", "memory", "comm", "host"]

LEAST_BETA: Final = 0.01
"""Functions below this share of the critical path raise nothing (equation 11)."""
EXPECTED_BETA: Final[dict[FunctionClass, float]] = {"host": 0.01, "comm": 0.3, "memory": 0.3, "compute": 1.0}
"""Largest expected beta by class (equation 6); copies, which the paper does not list, as communication."""
_DELTA: Final = np.float32(0.4)
_PEERS: Final = 100
_DEVIATIONS: Final = 5.0
_FLOOR: Final = 0.3
_NORM_QUANTILE: Final = 0.95
_RANKS_AT_ONCE: Final = 16_384

Columns = NDArray[np.float32]


@dataclass(frozen=True)
class Distances:
    """One function over the ranks; arrays of shape (ranks,).

    Attributes:
        expectation: Manhattan distance to the expected range, 0 inside.
        differential: share of the sampled peers whose pattern differs, in [0, 1].
        bar: what the differential distance of a healthy rank stays below.
        abnormal: equation 11.
    """

    expectation: Floats
    differential: Floats
    bar: float
    abnormal: Bools


def distances(patterns: Floats, class_: FunctionClass, seed: int = 0) -> Distances:
    """Judge one function.

    Args:
        patterns: (beta, mu, sigma) or (beta,) a rank, in [0, 1], shape (ranks, 1) or (ranks, 3); no NaN.
        class_: what the function does.
        seed: draws the peers; the same seed draws the same.

    Raises:
        ValueError: patterns of another shape, or outside [0, 1].
    """
    if patterns.ndim != 2 or patterns.shape[1] not in (1, 3) or not patterns.shape[0]:
        raise ValueError(f"patterns have shape {patterns.shape}; allowed: (ranks, 1) and (ranks, 3)")
    if not ((patterns >= 0.0) & (patterns <= 1.0)).all():
        raise ValueError("patterns hold values outside [0, 1]")
    beta = patterns[:, 0]
    expectation: Floats = np.maximum(beta - EXPECTED_BETA[class_], 0.0)  # mu and sigma may be anything
    differential = _differential(_normalised(patterns), seed)
    middle = float(np.median(differential))
    deviation = float(np.median(np.abs(differential - middle)))
    bar = middle + max(_DEVIATIONS * deviation, _FLOOR)
    abnormal = (beta > LEAST_BETA) & ((expectation > 0.0) | (differential > bar))
    return Distances(expectation, differential, bar, abnormal)


def _normalised(patterns: Floats) -> Columns:
    """Each dimension by its high quantile, shape (dimensions, ranks), contiguous."""
    columns = np.ascontiguousarray(patterns.T)
    scale = np.quantile(columns, _NORM_QUANTILE, axis=1)
    scale = np.where(scale > 0.0, scale, columns.max(axis=1))
    normalised: Columns = (columns / np.where(scale > 0.0, scale, 1.0)[:, None]).astype(np.float32)
    return normalised


def _differential(columns: Columns, seed: int) -> Floats:
    ranks = columns.shape[1]
    peers = columns
    if ranks > _PEERS:
        peers = columns[:, np.random.default_rng(seed).choice(ranks, _PEERS, replace=False)]
    differing = np.zeros(ranks, dtype=np.uint8)  # _PEERS fit
    # One peer against a stretch of ranks at a time, in place: all of it stays in the processor's cache.
    apart, part = np.empty((2, _RANKS_AT_ONCE), dtype=np.float32)
    far = np.empty(_RANKS_AT_ONCE, dtype=np.bool_)
    for begin in range(0, ranks, _RANKS_AT_ONCE):
        rows = columns[:, begin : begin + _RANKS_AT_ONCE]
        count = differing[begin : begin + _RANKS_AT_ONCE]
        size = len(count)
        for peer in peers.T:
            np.abs(np.subtract(rows[0], peer[0], out=apart[:size]), out=apart[:size])
            for values, of_peer in zip(rows[1:], peer[1:], strict=True):
                np.abs(np.subtract(values, of_peer, out=part[:size]), out=part[:size])
                np.add(apart[:size], part[:size], out=apart[:size])
            np.greater_equal(apart[:size], _DELTA, out=far[:size])
            np.add(count, far[:size], out=count)
    share: Floats = differing / peers.shape[1]
    return share
