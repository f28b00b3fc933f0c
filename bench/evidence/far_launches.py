"""How large a share of far launches must be to be told from chance, and what it takes to be told at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus_l3_worker.config import Config
from argus_l3_worker.judge.recurrence import Occurrences, recurring
from argus_l3_worker.judge.tails import Tails, rank_excess
from bench.evidence.table import Table

_RANKS, _WINDOWS = 64, 200
_CONFIG = Config().judge
LOOKS_A_WEEK = round(7 * 86_400 / Config().cycle_seconds)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)


def tables(seed: int) -> Iterator[Table]:
    """By launches of a rank in a window; 0.3 % of the launches of healthy ranks are far."""
    rng = np.random.default_rng(seed)
    rows = {}
    for launches in (500, 2000, 20_000):
        counted = np.full(_RANKS, float(launches))
        false, found = 0, {0.01: 0, 0.02: 0, 0.05: 0}
        for _ in range(_WINDOWS):
            far = rng.poisson(0.003 * launches, _RANKS).astype(np.float64)
            false += int((rank_excess(Tails(far, counted), _CONFIG) > 0.0).sum())
            for share in found:
                far[0] = rng.poisson(share * launches)
                found[share] += int(rank_excess(Tails(far, counted), _CONFIG)[0] > 0.0)
        rows[f"{launches} launches"] = {"healthy ranks": false / (_WINDOWS * _RANKS)} | {
            f"{share:.0%} far": hits / _WINDOWS for share, hits in found.items()
        }
    yield Table("Share of rank-windows with evidence of far launches", rows)
    rows = {
        f"{ranks} ranks": {
            f"{rate:.2%}": float(
                np.mean([false_episodes(ranks, rate, seed + week, LOOKS_A_WEEK) for week in range(4)])
            )
            for rate in RATES
        }
        for ranks in (4, 8, 16, 64, 256, 1024, 10_240)
    }
    yield Table(
        "False episodes a week, by the share of windows in which a healthy rank has far launches", rows
    )


def false_episodes(ranks: int, rate: float, seed: int, looks: int) -> int:
    """How often so many looks begin to accuse a rank, where chance alone visits all at the same rate."""
    rng = np.random.default_rng([ranks, seed])
    windows = _CONFIG.tail_windows
    seen = rng.random((windows, ranks)) < rate
    episodes, held = 0, frozenset[str]()
    for look in range(looks):
        seen[look % windows] = rng.random(ranks) < rate
        visits = seen.sum(axis=0)
        most = int(visits.max())
        found = frozenset[str]()
        # Where the rank that was visited most is not accused, nobody is.
        rest = Occurrences(int(visits.sum()) - most, windows)
        if "most" in recurring(
            {"most": Occurrences(most, windows), "rest": rest}, ranks * windows, _CONFIG.windows_needed
        ):
            visited = {str(rank): Occurrences(int(visits[rank]), windows) for rank in np.flatnonzero(visits)}
            found = recurring(visited, ranks * windows, _CONFIG.windows_needed)
        episodes += len(found - held)
        held = found
    return episodes
