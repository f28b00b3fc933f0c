"""Does what comes and goes come back to the same rank, or does it visit everybody now and then?

Launches far beyond the usual are rare where kernels always do the same. Where samples differ in size they
come in runs to any rank, and in a job of many ranks some rank has them twice soon. How often the others have
them is the rate by which a rank would have them, too, if nothing were wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import betaln, binom

# Ranks of a job that one look may accuse by chance. The worker looks at each window, 10,080 times a week, and
# two looks in a row see nearly the same: at most one false episode a fleet-week in jobs of 8 to 10,240 ranks,
# up to a tenth of the windows (docs/evidence/far-launches.md).
_CHANCE: Final = 0.0002


@dataclass(frozen=True)
class Occurrences:
    """Windows in which something was seen on a rank, `looked_at` of which were judged."""

    windows: int
    looked_at: int


def recurring(occurrences: Mapping[str, Occurrences], rank_windows: int, needed: int) -> frozenset[str]:
    """Ranks that are visited more often than the others can account for.

    Args:
        occurrences: by rank; those of none may be left out.
        rank_windows: windows that were judged, summed over all ranks.
        needed: windows below which nothing recurs.
    """
    total = sum(one.windows for one in occurrences.values())
    recur = {
        one
        for one in set(occurrences.values())
        if one.windows >= needed
        and rank_windows / one.looked_at * _by_chance(one, total - one.windows, rank_windows - one.looked_at)
        <= _CHANCE
    }
    return frozenset(rank for rank, one in occurrences.items() if one in recur)


def _by_chance(one: Occurrences, visits: int, rank_windows: int) -> float:
    """How probable so many windows or more are, by so many visits in those of the others.

    Their rate is known from few windows where ranks are few, so it has a distribution itself: Jeffreys'
    posterior, which makes one's own windows beta-binomial. Taken for exact it accused a job of four ranks
    eleven times a week.
    """
    windows = np.arange(one.windows, one.looked_at + 1)
    alpha, beta = visits + 0.5, max(rank_windows - visits, 0) + 0.5
    log_odds = betaln(windows + alpha, one.looked_at - windows + beta) - betaln(alpha, beta)
    return float((binom(one.looked_at, windows) * np.exp(log_odds)).sum())
