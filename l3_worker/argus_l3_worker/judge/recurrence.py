"""Does what comes and goes come back to the same rank, or does it visit everybody now and then?

Launches far beyond the usual are rare where kernels always do the same. Where samples differ in size they
come in runs to any rank, and in a job of many ranks some rank has them twice soon. How often the others have
them is the rate by which a rank would have them, too, if nothing were wrong with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import betaln, binom

# Ranks of a job that one look may accuse by chance. The worker looks at each window, 10,080 times a week, and
# two looks in a row see nearly the same: at most one false episode a fleet-week in jobs of 4 to 10,240 ranks,
# up to a tenth of the windows, if these are independent; more in runs (docs/evidence/far-launches.md).
_CHANCE: Final = 0.0002
# Before anything is known of a job, visits taken to have ended with their window: of eleven one lasts. More,
# and samples that come in runs accuse; fewer, and what is always there is told late.
_ENDS: Final = 10.0


@dataclass(frozen=True)
class Occurrences:
    """Windows in which something was seen on a rank, in how many runs, and how many windows were judged."""

    windows: int
    runs: int
    looked_at: int


def recurring(occurrences: Mapping[str, Occurrences], rank_windows: int, needed: int) -> frozenset[str]:
    """Ranks that are visited more often than the others can account for.

    Args:
        occurrences: by rank; those of none may be left out.
        rank_windows: windows that were judged, summed over all ranks.
        needed: windows below which nothing recurs.
    """
    found = beyond_chance(Counter(occurrences.values()), rank_windows, needed)
    return frozenset(rank for rank, one in occurrences.items() if one in found)


def beyond_chance(ranks: Mapping[Occurrences, int], rank_windows: int, needed: int) -> set[Occurrences]:
    """Which occurrences the others' cannot account for; `ranks`: how many have these."""
    windows = sum(one.windows * count for one, count in ranks.items())
    runs = sum(one.runs * count for one, count in ranks.items())
    found = set()
    for one in ranks:
        others = Occurrences(windows - one.windows, runs - one.runs, rank_windows - one.looked_at)
        looks = rank_windows / one.looked_at  # one a rank
        if one.windows >= needed and looks * _came(one, others) * _stayed(one, others) <= _CHANCE:
            found.add(one)
    return found


def _came(one: Occurrences, others: Occurrences) -> float:
    """How probable it is by chance to come so many times or more, as often as to the others.

    How often that is is known from few windows where ranks are few, so it has a distribution itself, the
    posterior of Jeffreys' prior, which makes one's own runs beta-binomial. Taken for exact it accused a job
    of four ranks eleven times a week.
    """
    runs = np.arange(one.runs, one.looked_at + 1)
    alpha, beta = others.runs + 0.5, max(others.looked_at - others.windows, 0) + 0.5
    log_odds = betaln(runs + alpha, one.looked_at - runs + beta) - betaln(alpha, beta)
    return float((binom(one.looked_at, runs) * np.exp(log_odds)).sum())


def _stayed(one: Occurrences, others: Occurrences) -> float:
    """How probable it is by chance that so many runs last so many windows or more: beta-negative-binomial."""
    longer = np.arange(one.windows - one.runs)
    alpha, beta = others.windows - others.runs + 1.0, others.runs + _ENDS
    log_odds = betaln(longer + alpha, one.runs + beta) - betaln(alpha, beta)
    return 1.0 - float((binom(one.runs + longer - 1, longer) * np.exp(log_odds)).sum())
