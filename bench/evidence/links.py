"""From which excess on a slow link is named where ranks wait for one another, and how often a healthy one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus_core.modes import find_modes
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.links import slow_groups
from argus_l3_worker.roles import STAGE, coordinates_of
from argus_l3_worker.triples import PairTriples, RoleTriples, Window
from bench.evidence.table import Table
from bench.l3_tables import pair_triples

_RANKS, _TP, _LAUNCHES, _WINDOWS = 64, 4, 64, 60
_CONFIG = JudgeConfig()


def tables(seed: int) -> Iterator[Table]:
    """16 tensor-parallel groups of four; group 3 is slower, ranks come late by chance in every launch.

    The transfer takes 1 ms, 3 % more or less; a rank comes late by an exponential time of this mean.
    """
    rng = np.random.default_rng(seed)
    info = [{"pp": "0", "tp": str(rank % _TP), "dp": str(rank // _TP)} for rank in range(_RANKS)]
    for stream in ("nccl:tp", "nccl0"):
        rows = {}
        for lateness in (0.05e-3, 0.2e-3, 1e-3):
            row = {}
            for factor in (1.0, 1.3, 1.5, 2.0, 5.0):
                found = false = 0
                for _ in range(_WINDOWS):
                    pair = _collective(stream, factor, lateness, rng)
                    scope = RoleTriples(
                        "bench", "pp0", Window(64, 64), tuple(map(str, range(_RANKS))), (pair,),
                        np.full(_RANKS, np.nan), coordinates_of(info, (STAGE, "tp", "dp")),
                    )  # fmt: skip
                    accused = {(one.coordinate, one.value) for one in slow_groups(pair, scope, _CONFIG)}
                    found += ("dp", "3") in accused
                    false += bool(accused - {("dp", "3")})
                if factor > 1.0:
                    row[f"x{factor:g}"] = found / _WINDOWS
                row["others, at most"] = max(row.get("others, at most", 0.0), false / _WINDOWS)
            rows[f"late by {lateness * 1e3:g} ms"] = row
        yield Table(f"Slow link on {stream}: share of windows in which the group, or another, is named", rows)


def _collective(stream: str, factor: float, lateness: float, rng: np.random.Generator) -> PairTriples:
    arrival = lateness * rng.exponential(size=(_LAUNCHES, _RANKS // _TP, _TP))
    body = 1e-3 * np.exp(0.03 * rng.standard_normal((_LAUNCHES, _RANKS // _TP, 1)))
    body[:, 3] *= factor
    # All end together: the transfer begins when the last one has come.
    durations = (arrival.max(axis=2, keepdims=True) + body - arrival).reshape(_LAUNCHES, _RANKS)
    table = [
        (rank, [(mode.p50, mode.p99, float(mode.count)) for mode in find_modes(durations[:, rank]).modes])
        for rank in range(_RANKS)
    ]
    return pair_triples("ncclDevKernel_AllReduce_Sum_bf16", stream, table)
