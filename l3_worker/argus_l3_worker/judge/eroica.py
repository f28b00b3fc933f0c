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
from scipy.spatial.distance import cdist

from argus_l3_worker.triples import Bools, Floats

FunctionClass = Literal["compute", "memory", "comm", "host"]

LEAST_RANKS: Final = 4
"""Of fewer nobody can say which of them is unlike the others."""
_LEAST_BETA: Final = 0.01
"""Functions below this share of the critical path raise nothing (equation 11)."""
EXPECTED_BETA: Final[dict[FunctionClass, float]] = {"host": 0.01, "comm": 0.3, "memory": 0.3, "compute": 1.0}
"""Largest expected beta by class (equation 6); copies, which the paper does not list, as communication."""
_DELTA: Final = 0.4
_PEERS: Final = 100
_DEVIATIONS: Final = 5.0
_FLOOR: Final = 0.3
_NORM_QUANTILE: Final = 0.95
_RANKS_AT_ONCE: Final = 16_384  # with 100 peers 13 MB


@dataclass(frozen=True)
class Distances:
    """One function over the ranks; arrays of shape (ranks,).

    Attributes:
        expectation: Manhattan distance to the expected range, 0 inside.
        differential: share of the sampled peers whose pattern differs, in [0, 1].
        bar: what the differential distance of a healthy rank stays below.
        unlike: beyond the bar, in a function that matters.
        abnormal: equation 11: unlike, or outside of the expected range.
    """

    expectation: Floats
    differential: Floats
    bar: float
    unlike: Bools
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
    matters = beta > _LEAST_BETA
    unlike = matters & (differential > bar)
    return Distances(expectation, differential, bar, unlike, unlike | (matters & (expectation > 0.0)))


def _normalised(patterns: Floats) -> Floats:
    """Each dimension by its high quantile."""
    scale = np.quantile(patterns, _NORM_QUANTILE, axis=0)
    scale = np.where(scale > 0.0, scale, patterns.max(axis=0))
    normalised: Floats = patterns / np.where(scale > 0.0, scale, 1.0)
    return normalised


def _differential(patterns: Floats, seed: int) -> Floats:
    ranks = len(patterns)
    drawn = np.arange(ranks)
    if ranks > _PEERS:
        drawn = np.random.default_rng(seed).choice(ranks, _PEERS, replace=False)
    peers = patterns[drawn]
    parts = (patterns[begin : begin + _RANKS_AT_ONCE] for begin in range(0, ranks, _RANKS_AT_ONCE))
    unlike = np.concatenate([(cdist(part, peers, "cityblock") >= _DELTA).sum(axis=1) for part in parts])
    # A rank among its own peers is at distance 0 and does not count.
    itself = np.isin(np.arange(ranks), drawn)
    share: Floats = unlike / np.maximum(drawn.size - itself, 1)
    return share
