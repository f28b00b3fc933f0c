"""All roles of a job as one table: the rows of roles and of scopes, in whatever order roles come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.roles import stage_of
from argus_l3_worker.triples import PairTriples, RoleTriples, Window, merged

WINDOW = Window(64, 64)
KERNELS = ("gemm", "softmax", "ncclDevKernel_AllReduce")


@st.composite
def jobs(draw: st.DrawFn) -> list[RoleTriples]:
    """Up to twelve roles of two stages, of one to four ranks, with kernels that some of these run."""
    drawn = draw(st.randoms(use_true_random=False))
    named = draw(
        st.lists(st.sampled_from([(pp, tp) for pp in "01" for tp in range(6)]), min_size=1, unique=True)
    )
    roles, begin = [], 0
    for pp, tp in named:
        size = drawn.randint(1, 4)
        pairs = []
        for kernel in KERNELS:
            ranks = np.array([rank for rank in range(size) if drawn.random() < 0.8], dtype=np.intp)
            if ranks.size:
                modes = drawn.randint(1, 2)
                count, p50 = (
                    np.array([[drawn.uniform(1, 9) for _ in range(2 * modes)] for _ in ranks])
                    .reshape(ranks.size, 2, modes)
                    .transpose(1, 0, 2)
                )
                pairs.append(PairTriples(kernel, "compute0", ranks, count, p50, 1.1 * p50))
        coordinates = {"pp": (pp,) * size} | ({"rack": ("r0",) * size} if drawn.random() < 0.5 else {})
        ranks_of = tuple(str(begin + rank) for rank in range(size))
        bounds = np.full(size, drawn.random())
        roles.append(
            RoleTriples("llm", f"pp{pp}.tp{tp}", WINDOW, ranks_of, tuple(pairs), bounds, coordinates)
        )
        begin += size
    return roles


def table(role: RoleTriples) -> dict[str, dict[str, tuple[float, float]]]:
    """Events and seconds of each rank, by kernel: what does not depend on how wide a table is."""
    return {
        pair.kernel: {
            role.ranks[position]: (round(events, 9), round(seconds, 9))
            for position, events, seconds in zip(
                pair.ranks.tolist(), pair.events.tolist(), pair.seconds.tolist(), strict=True
            )
        }
        for pair in role.pairs
    }


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_a_scope_is_its_roles_merged(roles: list[RoleTriples]) -> None:
    job = JobTriples(roles)
    by_stage: dict[str, list[RoleTriples]] = {}
    for role in roles:
        by_stage.setdefault(stage_of(role.role), []).append(role)
    assert len(job.scopes) == len(by_stage) == job.by_scope.count
    for scope, rows, (stage, members) in zip(job.scopes, job.by_scope.slices, by_stage.items(), strict=True):
        wanted = merged(stage, members)
        assert scope.role == (stage if len(members) > 1 else members[0].role)
        assert (scope.ranks, scope.window) == (wanted.ranks, WINDOW)
        assert job.whole.ranks[rows] == wanted.ranks
        assert table(scope) == table(wanted)
        assert scope.coordinates == wanted.coordinates
        np.testing.assert_array_equal(scope.unpublished, wanted.unpublished)


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_rows_of_a_role_lie_together(roles: list[RoleTriples]) -> None:
    job = JobTriples(roles)
    assert sorted(role.role for role in job.roles) == sorted(role.role for role in roles)
    assert [job.whole.ranks[rows] for rows in job.by_role.slices] == [role.ranks for role in job.roles]
    everyone = [rank for role in job.roles for rank in role.ranks]
    of_roles: dict[str, dict[str, tuple[float, float]]] = {kernel: {} for kernel in KERNELS}
    for role in job.roles:
        for kernel, of in table(role).items():
            of_roles[kernel] |= of
    assert list(job.whole.ranks) == everyone
    assert table(job.whole) == {kernel: of for kernel, of in of_roles.items() if of}


@pytest.mark.parametrize("stages", [("0", "1"), ("", "1")])
def test_one_name_in_two_stages_is_two_scopes(stages: tuple[str, str]) -> None:
    """Ranks without a role are of the stage that their coordinate says."""
    roles = [
        RoleTriples("llm", "all", WINDOW, (str(place),), (), np.zeros(1), {"pp": (stage,)} if stage else {})
        for place, stage in enumerate(stages)
    ]
    assert [scope.ranks for scope in JobTriples(roles).scopes] == [("0",), ("1",)]
