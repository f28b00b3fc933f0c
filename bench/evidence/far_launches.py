"""How large a share of far launches must be to be told from chance, and what it takes to be told at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.tails import Tails, rank_excess
from bench.evidence.table import Table

_RANKS, _WINDOWS = 64, 200
_CONFIG = JudgeConfig()


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
