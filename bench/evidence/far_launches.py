"""How large a share of far launches must be to be told from chance, and what it takes to be told at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus_l3_worker.config import Config
from argus_l3_worker.judge.recurrence import KEPT, beyond_chance
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
    for run in (1.0, 1.5, 2.0):
        rows = {}
        for ranks in (4, 8, 16, 64, 256, 1024, 10_240) if run == 1.0 else (4, 16, 64, 256):
            weeks = 4 if ranks <= 1024 else 1
            rows[f"{ranks} ranks"] = {
                f"{rate:.2%}": sum(
                    false_episodes(ranks, rate, seed + week, LOOKS_A_WEEK, run) for week in range(weeks)
                )
                / weeks
                for rate in RATES
            }
        whose = "by the share of windows in which a healthy rank has far launches"
        yield Table(f"False episodes a week, {whose}, in runs of {run:g}", rows)


def false_episodes(ranks: int, rate: float, seed: int, looks: int, run: float = 1.0) -> int:
    """How often so many looks begin to accuse a rank, where chance alone visits all at the same rate.

    Nothing is known of the job before the first look.

    Args:
        rate: share of the windows in which a rank is visited.
        run: windows that a visit lasts, on average; at 1 windows are independent.
    """
    rng = np.random.default_rng([ranks, seed])
    windows = _CONFIG.tail_windows
    # From window to window: a visit goes on, or begins.
    on, begins = (1.0 - 1.0 / run, rate / run / (1.0 - rate)) if run > 1.0 else (rate, rate)
    seen = np.zeros((windows, ranks), bool)
    past = np.zeros((ranks, 3))
    episodes, held, before = 0, np.zeros(ranks, bool), np.zeros(ranks, bool)
    for look in range(-windows, looks):
        oldest = seen[0]
        if look >= 0:
            past = KEPT * past + np.stack((oldest, oldest & ~before, np.ones(ranks)), axis=1)
            before = oldest
        seen = np.roll(seen, -1, axis=0)
        seen[-1] = rng.random(ranks) < np.where(seen[-2], on, begins)
        if look < 0:
            continue
        visits = seen.sum(axis=0)
        runs = (seen[1:] & ~seen[:-1]).sum(axis=0) + seen[0]
        lately = np.stack((visits, runs, np.full(ranks, windows)), axis=1).astype(float)
        some = np.flatnonzero(visits >= _CONFIG.windows_needed)
        found = np.zeros(ranks, bool)
        if some.size:
            found[some] = beyond_chance(lately[some], past[some], lately.sum(axis=0), past.sum(axis=0))
        episodes += int((found & ~held).sum())
        held = found
    return episodes
