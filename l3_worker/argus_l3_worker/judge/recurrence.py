"""Does what comes and goes come back to the same rank, or does it visit everybody now and then?

Launches far beyond the usual are rare where kernels always do the same. Where samples differ in size they
come in runs to any rank, and in a job of many ranks some rank has them twice soon. How often the others have
them is the rate by which a rank would have them, too, if nothing were wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scipy.special import bdtrc

# Ranks of a job that one look may accuse by chance. The worker looks at each window, up to 10,080 times a
# week: 0 to 2 false episodes a fleet-week by rate and size, 0.3 on average (simulated, 16 to 1,024 ranks, as
# in tests/l3_worker/test_recurrence.py), where 0.0005 made 0.75. Its price: two of twelve windows are enough
# in jobs of 575 ranks and more only, where the others' rate is known well; smaller jobs need three,
# those of ten ranks and fewer four.
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
    found = set()
    for rank, one in occurrences.items():
        if one.windows < needed:
            continue
        # Half a visit more than was seen: nothing was seen on few ranks in few windows by luck as well.
        rate = min((total - one.windows + 0.5) / max(rank_windows - one.looked_at, 1), 1.0)
        ranks = rank_windows / one.looked_at
        if ranks * float(bdtrc(one.windows - 1, one.looked_at, rate)) <= _CHANCE:
            found.add(rank)
    return frozenset(found)
