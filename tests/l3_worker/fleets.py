"""Made-up fleets with known answers."""

from __future__ import annotations

import numpy as np
from bench.l3_tables import pair_triples

from argus_l3_worker.triples import RoleTriples, Window, kind_of
from l3_worker.published_fleet import Modes

GEMM = ("gemm_128x128", "compute0")
FLASH = ("flash_fwd", "compute0")
NORM = ("rms_norm", "compute0")
COPY = ("Memcpy_HtoD", "copy0")
REDUCE = ("ncclDevKernel_AllReduce", "nccl:dp")

# (p50 seconds, p99 / p50, events) by mode, ascending.
TYPICAL: dict[tuple[str, str], tuple[tuple[float, float, int], ...]] = {
    GEMM: ((400e-6, 1.05, 640), (4e-3, 1.04, 128)),
    FLASH: ((900e-6, 1.06, 256),),
    NORM: ((80e-6, 1.08, 1024),),
    COPY: ((300e-6, 1.10, 64),),
    REDUCE: ((2e-3, 1.3, 128),),
}

RankModes = dict[tuple[str, str], Modes]


def fleet(
    ranks: int,
    seed: int = 0,
    slow: dict[str, float] | None = None,
    kinds: tuple[str, ...] = ("compute",),
    kernel: str | None = None,
) -> dict[str, RankModes]:
    """Healthy ranks with 0.3 % noise; those in `slow` (rank to factor) have kernels of `kinds` stretched."""
    random = np.random.default_rng(seed)
    result: dict[str, RankModes] = {}
    for rank in map(str, range(ranks)):
        result[rank] = {}
        for (name, stream), modes in TYPICAL.items():
            chosen = kind_of(name) in kinds and kernel in (None, name)
            factor = (slow or {}).get(rank, 1.0) if chosen else 1.0
            noise = 1.0 + 0.003 * random.standard_normal(len(modes))
            result[rank][name, stream] = [
                (p50 * factor * n, p50 * factor * n * ratio, events)
                for (p50, ratio, events), n in zip(modes, noise, strict=True)
            ]
    return result


def role(modes: dict[str, RankModes], unpublished: float = np.nan) -> RoleTriples:
    """Their ranks as one role, in one window."""
    ranks = tuple(modes)
    keys = sorted({key for pairs in modes.values() for key in pairs})
    pairs = tuple(
        pair_triples(*key, [(i, modes[rank][key]) for i, rank in enumerate(ranks) if key in modes[rank]])
        for key in keys
    )
    return RoleTriples("llm", "pp0.tp0", Window(64, 64), ranks, pairs, np.full(len(ranks), unpublished))
