"""Does what comes and goes come back to the same rank, or does it visit everybody now and then?

Launches far beyond the usual are rare where kernels always do the same. Where samples differ in size they
come in runs to any rank, and in a job of many ranks some rank has them twice soon. How often the others have
them, and for how long, is what a rank would have of them, too, if nothing were wrong with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import betaln, binom

from argus_l3_worker.triples import Bools, Floats

# Ranks of a job that one look may accuse by chance. The worker looks at each window, 10,080 times a week, and
# two looks in a row see nearly the same: at most one false episode a fleet-week in jobs of 4 to 10,240 ranks,
# up to a tenth of the windows, if these are independent (docs/evidence/far-launches.md).
_CHANCE: Final = 0.0002
# Before anything is known of a job, visits taken to have ended with their window: of eleven one lasts. More,
# and samples that come in runs accuse; fewer, and what is always there is told late.
_ENDS: Final = 10.0
KEPT: Final = 1.0 - 1.0 / 720.0
"""Of the past, from one window to the next: half a day of minutes, as other data may bring longer runs."""


@dataclass(frozen=True)
class Occurrences:
    """Windows in which something was seen on a rank, in how many runs, and how many windows were judged.

    Of all ranks of a job together these are sums over the ranks; of the past, forgotten by and by.
    """

    windows: float = 0.0
    runs: float = 0.0
    looked_at: float = 0.0

    def __add__(self, other: Occurrences) -> Occurrences:
        return Occurrences(
            self.windows + other.windows, self.runs + other.runs, self.looked_at + other.looked_at
        )

    def __mul__(self, share: float) -> Occurrences:
        return Occurrences(share * self.windows, share * self.runs, share * self.looked_at)


NONE: Final = Occurrences()


@dataclass(frozen=True)
class Visits:
    """Of some ranks, or of a job.

    Attributes:
        ranks: by rank; those of none may be left out.
        looked_at: windows that were judged, summed over all ranks.
    """

    ranks: Mapping[str, Occurrences]
    looked_at: float

    def total(self) -> Occurrences:
        """Of all ranks together."""
        seen = sum(self.ranks.values(), NONE)
        return Occurrences(seen.windows, seen.runs, self.looked_at)


def together(visits: Iterable[Visits], left_out: Collection[str] = ()) -> Visits:
    """Of a whole job, by those of its roles; a rank that moved between two has been visited in both."""
    ranks: dict[str, Occurrences] = {}
    looked_at = 0.0
    for one in visits:
        for rank, seen in one.ranks.items():
            if rank not in left_out:
                ranks[rank] = ranks.get(rank, NONE) + seen
        looked_at += one.looked_at
    return Visits(ranks, looked_at)


def recurring(lately: Visits, past: Visits, needed: int) -> frozenset[str]:
    """Ranks that are visited more often, or for longer, than the others can account for.

    Args:
        lately: in the windows that are looked at.
        past: in those before them.
        needed: windows below which nothing recurs.
    """
    ranks = [rank for rank, one in lately.ranks.items() if one.windows >= needed]
    if not ranks:
        return frozenset()
    own, own_past = (_table([of.ranks.get(rank, NONE) for rank in ranks]) for of in (lately, past))
    own_past[:, 2] = own[:, 2] * past.looked_at / lately.looked_at  # it was there for as long as the others
    found = beyond_chance(own, own_past, _table([lately.total()])[0], _table([past.total()])[0])
    return frozenset(ranks[place] for place in np.flatnonzero(found))


def _table(occurrences: Sequence[Occurrences]) -> Floats:
    return np.array([(one.windows, one.runs, one.looked_at) for one in occurrences])


def beyond_chance(own: Floats, own_past: Floats, lately: Floats, past: Floats) -> Bools:
    """Of which ranks what they have lately is beyond chance, by what the others have.

    By what they had lately, and by that with what they had before: the past tells how long visits last, and a
    time in which there was other data does not hold down the rate of late.

    Args:
        own, own_past: windows, runs, windows looked at, shape (ranks, 3); of `own` whole numbers.
        lately, past: the same of all ranks of the job together, shape (3,).
    """
    # Of thousands of ranks few differ in what they had lately.
    distinct, which = np.unique(own, axis=0, return_inverse=True)
    chance = _CHANCE * own[:, 2] / lately[2]  # one look a rank
    beyond: Bools = _chance(distinct, lately - distinct)[which.ravel()] <= chance
    some = np.flatnonzero(beyond)
    if some.size:
        others = lately + past - own[some] - own_past[some]
        beyond[some] = _chance(own[some], others) <= chance[some]
    return beyond


def _chance(own: Floats, others: Floats) -> Floats:
    """How probable it is that one has so many windows or more, if it is as the others are."""
    windows, runs, looked_at = own.T
    return _came(runs, looked_at, others) * _stayed(windows, runs, others)


def _came(runs: Floats, looked_at: Floats, others: Floats) -> Floats:
    """How probable it is by chance to come so many times or more, as often as to the others.

    How often that is is known from few windows where ranks are few, so it has a distribution itself, the
    posterior of Jeffreys' prior, which makes one's own runs beta-binomial. Taken for exact it accused a job
    of four ranks eleven times a week.
    """
    their_windows, their_runs, they_looked_at = others.T[:, :, None]
    most = looked_at[:, None]
    number = np.arange(looked_at.max() + 1.0)
    alpha, beta = their_runs + 0.5, np.maximum(they_looked_at - their_windows, 0.0) + 0.5
    log_odds = betaln(number + alpha, np.maximum(most - number, 0.0) + beta) - betaln(alpha, beta)
    counts = (number >= runs[:, None]) & (number <= most)
    found: Floats = np.where(counts, binom(most, number) * np.exp(log_odds), 0.0).sum(axis=1)
    return found


def _stayed(windows: Floats, runs: Floats, others: Floats) -> Floats:
    """How probable it is by chance that so many runs last so many windows or more: beta-negative-binomial."""
    their_windows, their_runs, _ = others.T[:, :, None]
    own = runs[:, None]
    longer = np.arange(max((windows - runs).max(), 1.0))
    alpha, beta = their_windows - their_runs + 1.0, their_runs + _ENDS
    log_odds = betaln(longer + alpha, own + beta) - betaln(alpha, beta)
    shorter = longer < (windows - runs)[:, None]
    less: Floats = np.where(shorter, binom(own + longer - 1.0, longer) * np.exp(log_odds), 0.0).sum(axis=1)
    return 1.0 - less
