"""Intermittent faults: few launches that take far longer, on a rank, a host or a rack, now and then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.l3_tables import judge_role, pair_triples

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.group_shifts import GroupHistory
from argus_l3_worker.judge.groups import judge_groups
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.tails import of_the_data
from argus_l3_worker.judge.verdicts import History, Verdict, decide
from argus_l3_worker.roles import STAGE, coordinates_of
from argus_l3_worker.triples import RoleTriples, Window

CONFIG = JudgeConfig()
RANKS, LAUNCHES, HEALTHY = 64, 20_000, 0.003
INFO = [
    {"node": f"host{rank // 8}", "rack": f"rack{rank // 16}", "pp": "0", "dp": str(rank)}
    for rank in range(RANKS)
]


def window(
    far: dict[int, float], seed: int = 0, number: int = 1, modes: dict[int, int] | None = None
) -> RoleTriples:
    """One kernel with 0.3 % of far launches everywhere; others on some ranks.

    Args:
        far: share of launches outside of every mode, by rank.
        modes: launches in a mode of its own, at ten times the median, by rank.
    """
    random = np.random.default_rng([seed, number])
    tails = np.array(
        [random.poisson(LAUNCHES * far.get(rank, HEALTHY)) for rank in range(RANKS)], dtype=float
    )
    table = []
    for rank in range(RANKS):
        rare = (modes or {}).get(rank, 0)
        p50 = 1e-3 * float(np.exp(0.003 * random.standard_normal()))
        of_rank = [(p50, 1.1 * p50, LAUNCHES - tails[rank] - rare)]
        table.append((rank, [*of_rank, (1e-2, 1.2e-2, float(rare))] if rare else of_rank))
    return RoleTriples(
        "llm",
        "pp0",
        Window(64 * number, 64),
        tuple(map(str, range(RANKS))),
        (pair_triples("gemm", "compute0", table),),
        np.full(RANKS, np.nan),
        coordinates_of(INFO, (STAGE, "node", "rack", "dp")),
        tails,
    )


def judged(windows: list[RoleTriples]) -> list[Verdict]:
    """Verdicts after these windows."""
    history = History(CONFIG.windows, CONFIG.windows_needed, CONFIG.tail_windows)
    groups = GroupHistory(CONFIG.windows, CONFIG.windows_needed)
    for one in windows:
        outcome = judge_role(one, CONFIG)
        assert isinstance(outcome, RoleJudgement)
        history.add(outcome)
        groups.add(judge_groups(JobTriples([one]), CONFIG))
    in_tails = {rank for shift in groups.persistent() for rank in shift.ranks}
    return decide("llm", [("pp0", history)], in_tails)


@pytest.mark.parametrize("share", [0.02, 0.05])
def test_a_rank_with_bursts_of_far_launches_is_a_tail(share: float) -> None:
    """Three bursts in twelve windows: the rank, with the cause that says that its median is sound."""
    bursts = (3, 6, 9)
    (found,) = judged([window({7: share} if n in bursts else {}, number=n) for n in range(12)])
    assert (found.rank, found.kernel, found.cause, found.team) == ("7", "all", "gpu-memory", "operations")
    assert (found.windows, found.looked_at) == (3, 12)


def test_one_burst_is_not_yet_a_verdict() -> None:
    """Once is chance."""
    assert judged([window({7: 0.05} if n == 3 else {}, number=n) for n in range(12)]) == []


def test_far_launches_that_make_a_mode_of_their_own_count_too() -> None:
    """400 launches at ten times the median are a mode for the exporter; no other rank has it."""
    (found,) = judged([window({}, number=n, modes={7: 400}) for n in range(6)])
    assert (found.rank, found.cause) == ("7", "gpu-memory")


def test_a_rare_mode_that_every_rank_has_is_no_tail() -> None:
    """A kernel that is now and then called with a large shape."""
    assert judged([window({}, number=n, modes=dict.fromkeys(range(RANKS), 400)) for n in range(6)]) == []


def test_bursts_that_wander_within_a_rack_are_the_rack() -> None:
    """A third of rack 2's ranks at a time, others in each window: the rack is named, no rank of it."""
    random = np.random.default_rng(0)
    windows = [
        window(dict.fromkeys(random.choice(np.arange(32, 48), 6, replace=False).tolist(), 0.04), number=n)
        for n in range(6)
    ]
    for one in windows:
        (found,) = judge_groups(JobTriples([one]), CONFIG)
        assert (found.kernel, found.coordinate, found.value) == ("all", "rack", "rack2")
        assert (found.cause, found.in_tail) == ("gpu-compute", True)
        assert set(found.ranks) == set(map(str, range(32, 48)))
    assert judged(windows) == []


def test_a_host_is_named_rather_than_its_rack() -> None:
    """All ranks of host 5 and none beside: the coordinate that fits best."""
    (found,) = judge_groups(JobTriples([window(dict.fromkeys(range(40, 48), 0.02))]), CONFIG)
    assert (found.coordinate, found.value) == ("node", "host5")


def test_one_bad_rank_does_not_make_its_host_bad() -> None:
    """Its host's share is up too, by this rank alone."""
    assert judge_groups(JobTriples([window({7: 0.05})]), CONFIG) == []


def test_healthy_ranks_have_no_tail() -> None:
    """40 windows with the same share everywhere."""
    assert judged([window({}, seed=1, number=n) for n in range(40)]) == []
    assert all(judge_groups(JobTriples([window({}, seed=2, number=n)]), CONFIG) == [] for n in range(40))


def replicas(far: dict[tuple[int, int], float], number: int) -> list[RoleTriples]:
    """Two stages of 16 replicas; the share of far launches by (stage, replica)."""
    roles = []
    for stage in range(2):
        whole = window({rank: far.get((stage, rank), HEALTHY) for rank in range(16)}, stage, number)
        info = [{"node": f"host{stage}", "pp": str(stage), "dp": str(rank)} for rank in range(RANKS)]
        ranks = tuple(str(stage * RANKS + rank) for rank in range(RANKS))
        coordinates = coordinates_of(info, (STAGE, "node", "dp"))
        roles.append(replace(whole, role=f"pp{stage}", ranks=ranks, coordinates=coordinates))
    return roles


def test_far_launches_in_all_stages_of_a_replica_are_its_data() -> None:
    """A large sample takes long wherever it passes; a memory error is on one GPU alone."""
    sample, error = {(0, 5): 0.05, (1, 5): 0.04}, {(0, 5): 0.05}
    assert of_the_data(JobTriples(replicas(sample, 1)), CONFIG) == {"5", "69"}
    # Not far itself: that excuses nothing.
    assert of_the_data(JobTriples(replicas(error, 1)), CONFIG) == {"69"}

    def verdicts(far: dict[tuple[int, int], float]) -> set[tuple[str, str]]:
        histories = [(f"pp{stage}", History(3, 2, 12)) for stage in range(2)]
        for number in range(6):
            roles = replicas(far, number)
            excused = of_the_data(JobTriples(roles), CONFIG)
            for role, (_, history) in zip(roles, histories, strict=True):
                outcome = judge_role(role, CONFIG, excused)
                assert isinstance(outcome, RoleJudgement)
                history.add(outcome)
        return {(one.rank, one.cause) for one in decide("llm", histories)}

    assert verdicts(sample) == set()
    assert verdicts(error) == {("5", "gpu-memory")}


def test_far_launches_that_go_along_with_more_work_are_no_tail() -> None:
    """The rank, or the host, reports more tokens for the steps in which its launches took long."""
    more = np.full(RANKS, 1000.0)
    more[40:48] = 1100.0
    far = window(dict.fromkeys(range(40, 48), 0.05))
    assert judge_groups(JobTriples([far]), CONFIG)
    assert not judge_groups(JobTriples([replace(far, work=more)]), CONFIG)
    rank = window({40: 0.05})

    def evidence(one: RoleTriples) -> list[int]:
        outcome = judge_role(one, CONFIG)
        assert isinstance(outcome, RoleJudgement)
        return np.flatnonzero(outcome.tail_evidence).tolist()

    assert (evidence(rank), evidence(replace(rank, work=more))) == ([40], [])


def test_a_rack_that_holds_most_of_the_ranks_is_named() -> None:
    """Its far launches are what is usual among the ranks, though not among the racks."""
    ranks = 8
    stuttering = RoleTriples(
        "llm",
        "pp0",
        Window(128, 64),
        tuple(map(str, range(ranks))),
        (pair_triples("gemm", "compute0", [(rank, [(1e-3, 1.1e-3, 1000.0)]) for rank in range(ranks)]),),
        np.zeros(ranks),
        {"rack": ("a", "b", "c", *"ddddd")},
        np.array([0.0, 0.0, 0.0, *[50.0] * 5]),
    )
    (found,) = judge_groups(JobTriples([stuttering]), CONFIG, frozenset())
    assert (found.coordinate, found.value, found.in_tail) == ("rack", "d", True)
