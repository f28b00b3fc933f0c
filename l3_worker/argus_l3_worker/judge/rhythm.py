"""KAIR's first stage: does a rank complete its operations in another rhythm than its peers?

Each rank's completions in fixed time slices make an empirical distribution over time; the score of a rank is
its mean Kolmogorov-Smirnov distance to the others. It sees constant delays and intermittent stalls alike, and
knows nothing of which operation is to blame.

Source: KAIR section III.B, stage 1; sampled peers: docs/evidence/cross-checks.md.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.spatial.distance import cdist

from argus_l3_worker.triples import Floats

# All pairs up to here: of 2,048 ranks x 64 slices 0.1 s.
_EXACT_RANKS: Final = 2048
# Beyond, this many sampled peers: 3e-4 off at most where scores are about 0.01.
_PEERS: Final = 256


def distributions(completions: Floats) -> Floats:
    """Cumulated share of each rank's completions, shape (ranks, slices); rows without any are NaN.

    Args:
        completions: completions of a rank in a slice of time, >= 0, shape (ranks, slices).
    """
    total = completions.sum(axis=1, keepdims=True)
    cumulated = np.cumsum(completions, axis=1)
    return np.where(total > 0.0, cumulated / np.where(total > 0.0, total, 1.0), np.nan)


def scores(completions: Floats, seed: int = 0) -> Floats:
    """Mean K-S distance of each rank to the others, in [0, 1], shape (ranks,); NaN where nothing completed.

    Args:
        completions: see `distributions`; two ranks or more with completions, else all NaN.
        seed: draws the peers where there are too many to compare all.
    """
    ecdf = distributions(completions)
    known = np.flatnonzero(~np.isnan(ecdf[:, 0]))
    result = np.full(len(completions), np.nan)
    if known.size < 2:
        return result
    rows, drawn = ecdf[known], np.arange(known.size)
    if known.size > _EXACT_RANKS:
        drawn = np.random.default_rng(seed).choice(known.size, _PEERS, replace=False)
    # The farthest that two distributions lie apart is the Chebyshev distance of their points.
    distance = cdist(rows, rows[drawn], "chebyshev")
    # A rank among its own peers is at distance 0 and does not count.
    itself = np.isin(np.arange(known.size), drawn)
    result[known] = distance.sum(axis=1) / (drawn.size - itself)
    return result
