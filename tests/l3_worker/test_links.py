"""Slow links: the whole process group is long in a collective; who waits for somebody is never accused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.l3_tables import pair_triples

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.group_shifts import GroupShift
from argus_l3_worker.judge.groups import judge_groups
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.roles import STAGE, coordinates_of
from argus_l3_worker.triples import PairTriples, RoleTriples, Window

CONFIG = JudgeConfig()
KERNEL = "ncclDevKernel_AllReduce_Sum_bf16"
BODY = 2e-3  # seconds
EVENTS = 160

Factors = dict[int, float]


def place(rank: int, tp: int, ep: int) -> dict[str, str]:
    dp = rank // tp
    labels = {"node": f"host{rank // 8}", "pp": "0", "tp": str(rank % tp), "dp": str(dp)}
    return {**labels, "ep": str(dp % ep)} if ep > 1 else labels


def group_of(rank: int, stream: str, tp: int, ep: int) -> tuple[str, ...]:
    """What the ranks of its communicator share; nothing for one of all ranks."""
    at = place(rank, tp, ep)
    block = str(int(at["dp"]) // ep)
    return {
        "nccl:edp": (at["tp"], at.get("ep", "")),
        "nccl:ep": (at["tp"], block),
        "nccl:tp": (at["dp"],),
        "nccl:dp": (at["tp"],),
    }.get(stream, ())


def job(
    stream: str, body: Factors, wait: Factors, ranks: int = 64, tp: int = 1, ep: int = 1, seed: int = 0
) -> list[RoleTriples]:
    """The roles of one stage with one collective: transfer times a factor, plus a wait in bodies, by rank."""
    random = np.random.default_rng(seed)
    roles = []
    for index in range(tp):
        members = [rank for rank in range(ranks) if rank % tp == index]
        modes = []
        for position, rank in enumerate(members):
            seconds = BODY * (body.get(rank, 1.0) + wait.get(rank, 0.0)) * random.uniform(0.97, 1.03)
            modes.append((position, [(seconds, 1.15 * seconds, float(EVENTS))]))
        gemm = [(position, [(4e-3, 4.2e-3, 640.0)]) for position in range(len(members))]
        roles.append(
            RoleTriples(
                "llm",
                f"pp0.tp{index}",
                Window(64, 64),
                tuple(map(str, members)),
                (pair_triples(KERNEL, stream, modes), pair_triples("gemm", "compute0", gemm)),
                np.full(len(members), np.nan),
                coordinates_of(
                    [place(rank, tp, ep) for rank in members], (STAGE, "node", "dp", "tp", "ep", "edp")
                ),
            )
        )
    return roles


def accused(roles: list[RoleTriples]) -> list[GroupShift]:
    return judge_groups(JobTriples(roles), CONFIG)


def told(found: list[GroupShift]) -> list[tuple[str, str, str, str, str]]:
    return [(one.role, one.coordinate, one.value, one.cause, one.team) for one in found]


@pytest.mark.parametrize("stream", ["nccl:edp", "nccl:edp.1", "nccl0"])
def test_one_slow_expert_data_parallel_group_is_named(stream: str) -> None:
    """ARGUS case 2: the transfers of one of eight EDP groups take five times as long."""
    slow = dict.fromkeys(range(7, 64, 8), 5.0)
    (found,) = accused(job(stream, slow, {}, ep=8))
    assert told([found]) == [("pp0.tp0", "ep", "7", "link-slow", "operations")]
    assert found.ranks == tuple(str(rank) for rank in slow)
    assert np.expm1(found.shift) == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_a_slow_link_within_a_host_is_the_tensor_parallel_group(factor: float) -> None:
    """NVLink of ranks 12 to 15, one tensor-parallel group of four."""
    (found,) = accused(job("nccl:tp", dict.fromkeys(range(12, 16), factor), {}, ranks=32, tp=4))
    assert told([found]) == [("pp0", "dp", "3", "link-slow", "operations")]
    assert found.ranks == ("12", "13", "14", "15")


def test_of_two_groups_the_slower_is_named() -> None:
    """Where the exporter knows the dimension, two groups are enough."""
    slow = dict.fromkeys(range(0, 32, 2), 2.0)
    (found,) = accused(job("nccl:dp", slow, {}, ranks=32, tp=2))
    assert told([found]) == [("pp0.tp0", "tp", "0", "link-slow", "operations")]


@pytest.mark.parametrize("stream", ["nccl:edp", "nccl:ep", "nccl:tp", "nccl:dp", "nccl:world", "nccl0"])
@pytest.mark.parametrize(("tp", "ep"), [(1, 8), (2, 4), (4, 1), (8, 1)])
def test_ranks_that_wait_for_a_late_one_are_not_accused(stream: str, tp: int, ep: int) -> None:
    """Rank 5 is late: everybody in its group of that dimension waits three transfers for it, but itself."""
    mine = group_of(5, stream, tp, ep)
    waiting = {rank: 3.0 for rank in range(64) if group_of(rank, stream, tp, ep) == mine and rank != 5}
    assert accused(job(stream, {}, waiting, tp=tp, ep=ep)) == []


def test_groups_that_wait_for_a_slow_group_are_not_accused() -> None:
    """The slow EDP group enters the all-reduce of all ranks last, where it has the shortest duration."""
    waiting = {rank: 16.0 for rank in range(64) if rank % 8 != 7}
    for stream in ("nccl:dp", "nccl:world", "nccl0"):
        assert accused(job(stream, {}, waiting, ep=8)) == []


def test_a_group_whose_late_rank_is_silent_is_not_judged() -> None:
    """The late rank's collective is too short for its top pairs; the others of its group look all slow."""
    roles = job("nccl:tp", {}, dict.fromkeys((12, 13, 15), 3.0), ranks=32, tp=4)
    (silent,) = [role for role in roles if "14" in role.ranks]
    position = silent.ranks.index("14")
    pair = silent.pairs[0]
    kept = pair.ranks != position
    without = type(pair)(pair.kernel, pair.stream, pair.ranks[kept], *(
        values[kept] for values in (pair.count, pair.p50, pair.p99)
    ))  # fmt: skip
    index = roles.index(silent)
    roles[index] = type(silent)(
        silent.training_job, silent.role, silent.window, silent.ranks, (without, silent.pairs[1]),
        silent.unpublished, silent.coordinates,
    )  # fmt: skip
    assert accused(roles) == []


def test_ranks_that_take_turns_in_being_late_are_not_a_slow_link() -> None:
    """In one group of eight each rank is last at an eighth of the times and waits at the others."""
    roles = job("nccl:ep", {}, {}, ep=8)
    role = roles[0]
    pair = role.pairs[0]
    modes = []
    for position in range(64):
        on_time, waits = (BODY, 1.1 * BODY, 20.0), (4 * BODY, 4.4 * BODY, 140.0)
        modes.append((position, [on_time, waits] if position // 8 == 2 else [(BODY, 1.1 * BODY, 160.0)]))
    turns = pair_triples(pair.kernel, pair.stream, modes)
    changed = RoleTriples(
        "llm", role.role, role.window, role.ranks, (turns, role.pairs[1]), role.unpublished, role.coordinates
    )
    assert accused([changed]) == []


def test_healthy_groups_are_not_accused() -> None:
    """30 windows in which ranks wait as it happens, but for the last one of each group."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        for stream, tp, ep in (("nccl:tp", 8, 1), ("nccl:dp", 4, 1), ("nccl:ep", 1, 8), ("nccl0", 2, 4)):
            groups = [group_of(rank, stream, tp, ep) for rank in range(64)]
            waits = {rank: float(random.exponential(1.0)) for rank in range(64)}
            last = {
                group: min(waits[rank] for rank in range(64) if groups[rank] == group) for group in groups
            }
            since_last = {rank: wait - last[groups[rank]] for rank, wait in waits.items()}
            assert accused(job(stream, {}, since_last, tp=tp, ep=ep, seed=seed)) == []


def test_a_collective_of_one_launch_a_step_is_judged() -> None:
    """Sixteen steps a window: gradients are reduced sixteen times."""
    (role,) = job("nccl:edp", dict.fromkeys(range(7, 64, 8), 5.0), {}, ep=8)
    rare = role.pairs[0]
    few = PairTriples(
        rare.kernel, rare.stream, rare.ranks, np.full_like(rare.count, 16.0), rare.p50, rare.p99
    )
    (found,) = accused([replace(role, pairs=(few, role.pairs[1]))])
    assert (found.coordinate, found.value, found.cause) == ("ep", "7", "link-slow")
