"""Tables of kernel modes by hand, and one role judged by itself: for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.role_judgement import RoleJudgement, judge_roles
from argus_l3_worker.roles import Abstention
from argus_l3_worker.triples import Floats, PairTriples, RoleTriples


def pair_triples(
    kernel: str, stream: str, modes_by_rank: Sequence[tuple[int, Sequence[tuple[float, float, float]]]]
) -> PairTriples:
    """Pad (position of the rank, its modes as (p50, p99, count)) to rectangles."""
    width = max(len(modes) for _, modes in modes_by_rank)
    shape = (len(modes_by_rank), width)
    count, p50, p99 = np.zeros(shape), np.empty(shape), np.empty(shape)
    for row, (_, modes) in enumerate(modes_by_rank):
        used = len(modes)
        table: Floats = np.array(modes, dtype=np.float64)
        p50[row, :used], p99[row, :used], count[row, :used] = table.T
        p50[row, used:], p99[row, used:] = table[-1, 0], table[-1, 1]
    positions = np.array([position for position, _ in modes_by_rank], dtype=np.intp)
    return PairTriples(kernel, stream, positions, count, p50, p99)


def judge_role(
    role: RoleTriples, config: JudgeConfig, tails_of_data: Collection[str] = ()
) -> RoleJudgement | Abstention:
    """A role by itself."""
    return judge_roles(JobTriples([role]), config, tails_of_data)[role.role]
