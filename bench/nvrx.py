"""The scores of nvidia-resiliency-ext's straggler detection, for comparison.

Written anew from its usage guide, its reference of reports and what its own generator of reports answers
(tests/bench/test_nvrx.py compares the two): a kernel's score on a rank is the reference median
of its durations over the rank's own; the GPU's score is their mean, weighted by the rank's time in each
kernel. The relative score's reference is the fastest rank of the workload, the individual score's the rank's
own best so far. A score under 0.75, the default of both, is a straggler, in every report by itself. It knows
no roles: a kernel is compared over all ranks, if all run it. Collectives are left out, as there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from scipy.special import ndtr

from argus_l3_worker.judge.wasserstein import Mixtures
from argus_l3_worker.triples import Floats, PairTriples, RoleTriples, merged

THRESHOLD: Final = 0.75
# Halvings of the reach of a median in log seconds: 10 and the distance of the modes / 2^20 is 1e-5.
_HALVINGS: Final = 20
_REACH: Final = 5.0


class Nvrx:
    """One job: what each rank's best was lives in its process."""

    def __init__(self) -> None:
        self._best: dict[tuple[str, str], Floats] = {}

    def restart(self) -> None:
        """The job's processes are new."""
        self._best.clear()

    def stragglers(self, roles: Iterable[RoleTriples]) -> set[str]:
        """Ranks with a relative or an individual score under the threshold."""
        whole = merged("", list(roles))
        ranks = len(whole.ranks)
        scores, weights = np.zeros((2, 2, ranks))  # relative, individual
        for pair in whole.pairs:
            if pair.kind == "collective":
                continue
            median = medians(pair)
            best = self._best.setdefault((pair.kernel, pair.stream), np.full(ranks, np.inf))
            best[pair.ranks] = np.minimum(best[pair.ranks], median)
            common = len(pair.ranks) == ranks
            for which, reference in [(1, best[pair.ranks]), *([(0, median.min())] if common else [])]:
                weights[which, pair.ranks] += pair.seconds
                scores[which, pair.ranks] += pair.seconds * reference / median
        low = (weights > 0.0) & (scores < THRESHOLD * weights)
        return {whole.ranks[rank] for rank in np.flatnonzero(low.any(axis=0))}


def medians(pair: PairTriples) -> Floats:
    """Median duration of each rank over all its launches, in seconds: where its mixture's CDF is a half."""
    of = Mixtures(*pair.components())
    low, high = of.mu.min(axis=1) - _REACH, of.mu.max(axis=1) + _REACH
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        below = (of.weight * ndtr((middle[:, None] - of.mu) / of.sigma)).sum(axis=1) < 0.5
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    seconds: Floats = np.exp((low + high) / 2.0)
    return seconds
