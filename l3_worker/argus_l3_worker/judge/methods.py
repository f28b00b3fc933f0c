"""The papers' methods as verdicts, for whoever wants to compare: `judge.method`.

They take the place of the default's evidence. Windows, the inversion of collectives and the words of a
verdict stay as they are. Neither knows effects, a GPU's own past, far launches, uneven work or groups, so
none of these is judged beside them. docs/evidence/methods.md scores all of them on one fleet.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from argus_l3_worker.judge import eroica
from argus_l3_worker.judge.config import JudgeConfig, Method
from argus_l3_worker.judge.role_judgement import PairJudgement, RoleJudgement
from argus_l3_worker.triples import Bools, Floats, Kind, rank_seconds

_CLASS_OF: Final[dict[Kind, eroica.FunctionClass]] = {
    "compute": "compute",
    "transfer": "memory",
    "collective": "comm",
}


def judged_by_method(found: RoleJudgement, config: JudgeConfig) -> RoleJudgement:
    """The judgement with the evidence of the configured method."""
    if config.method == "modes":
        return found
    evidence = _EVIDENCE[config.method](found)
    none, no = np.zeros(len(found.ranks)), np.zeros(len(found.ranks), dtype=np.bool_)
    pairs = tuple(
        replace(
            pair,
            evidence=of_pair,
            in_tail=np.zeros_like(pair.in_tail),
            other_count=np.zeros_like(pair.in_tail),
        )
        for pair, of_pair in zip(found.pairs, evidence, strict=True)
    )
    return replace(
        found,
        pairs=pairs,
        rank_evidence=none,
        tail_evidence=none,
        own_evidence=none,
        other_work=no,
        work_spread=0.0,
    )


def _w1_iqr(found: RoleJudgement) -> list[Floats]:
    """Mean W1 above Q3 + alpha (Q3 - Q1). It has no sign: that of the mean launch is taken.

    Source: ARGUS section 6.2, equations 2-4.
    """
    return [_where(pair.beyond_fence, pair.modes.seconds / pair.modes.events) for pair in found.pairs]


def _eroica(found: RoleJudgement) -> list[Floats]:
    """A kernel's beta that is outside of the expected range or unlike the peers'.

    beta is a kernel's seconds over the kernel seconds of the role's busiest rank, which all ranks of a window
    wait for. The paper's is a share of the critical path, and beside it stand mean and deviation of the
    hardware's utilisation: the series of a window have neither.

    Source: EROICA 4.3, equations 6-11.
    """
    busy = rank_seconds([pair.modes for pair in found.pairs], len(found.ranks))
    seed = zlib.crc32(f"{found.training_job} {found.role}".encode())
    return [_unlike_peers(pair, busy, seed) for pair in found.pairs]


def _unlike_peers(pair: PairJudgement, busy: Floats, seed: int) -> Floats:
    beta = np.zeros(busy.size)
    beta[pair.ranks] = pair.modes.seconds / busy.max()
    found = eroica.distances(np.minimum(beta, 1.0)[:, None], _CLASS_OF[pair.kind], seed)
    return _where(found.abnormal[pair.ranks], beta[pair.ranks])


def _where(accused: Bools, values: Floats) -> Floats:
    """Log ratio to the median, of those who are accused."""
    return np.where(accused, np.log(values / np.median(values)), 0.0)


_EVIDENCE: Final[dict[Method, Callable[[RoleJudgement], list[Floats]]]] = {
    "w1-iqr": _w1_iqr,
    "eroica": _eroica,
}
