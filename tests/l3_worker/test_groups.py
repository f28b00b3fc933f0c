"""Group shifts of a job: which ranks, what they share, over tensor indices, and for how many windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus_core.modes import find_modes
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.group_shifts import GroupHistory, GroupShift
from argus_l3_worker.judge.groups import judge_groups
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.verdicts import ALL_KERNELS
from argus_l3_worker.roles import STAGE, coordinates_of
from argus_l3_worker.triples import RoleTriples
from l3_worker import fleets
from l3_worker.fleets import COPY, GEMM, REDUCE, RankModes, fleet

CONFIG = JudgeConfig()
NAMES = CONFIG.coordinates


def role(
    modes: dict[str, RankModes], name: str = "pp0.tp0", info: list[dict[str, str]] | None = None
) -> RoleTriples:
    labels = info or [{"node": f"host{int(rank) // 8}", "pp": "0", "dp": rank} for rank in modes]
    return replace(fleets.role(modes), role=name, coordinates=coordinates_of(labels, (STAGE, *NAMES)))


def told(shifts: list[GroupShift]) -> set[tuple[str, str, str]]:
    return {(shift.kernel, shift.coordinate, shift.value) for shift in shifts}


def test_a_slow_host_is_one_finding_about_all_its_kernels() -> None:
    """8 of 32 ranks 12 % slower: host2, once, not once a kernel."""
    slow = {str(rank): 1.12 for rank in range(16, 24)}
    (found,) = judge_groups(JobTriples([role(fleet(32, 1, slow))]), CONFIG)
    assert (found.kernel, found.coordinate, found.value) == (ALL_KERNELS, "node", "host2")
    assert found.ranks == tuple(map(str, range(16, 24)))
    assert found.compared == 32
    assert np.expm1(found.shift) == pytest.approx(0.12, abs=0.01)


def test_half_of_the_ranks_slow_reports_both_groups() -> None:
    """At 50 % the sign of guilt is not known: both, with opposite signs."""
    slow = {str(rank): 1.12 for rank in range(8)}
    found = judge_groups(JobTriples([role(fleet(16, 2, slow))]), CONFIG)
    assert [(one.value, one.shift > 0) for one in found] == [("host0", True), ("host1", False)]


def test_two_clusters_of_many_hosts_each_are_two_series() -> None:
    """Neither half can be named host by host, and the faster one must not overwrite the slower."""
    slow = {str(rank): 1.12 for rank in range(160) if rank // 8 % 2}
    found = judge_groups(JobTriples([role(fleet(160, 2, slow))]), CONFIG)
    assert {(one.coordinate, one.value, one.shift > 0) for one in found} == {
        ("node", "many", True),
        ("node", "others", False),
    }
    assert len({one.key for one in found}) == 2


def test_one_kernel_slow_on_a_group_is_named() -> None:
    """Only the GEMM is slow on host1: that kernel, not the ranks as a whole."""
    slow = {str(rank): 1.3 for rank in range(8, 16)}
    found = judge_groups(JobTriples([role(fleet(32, 3, slow, kernel=COPY[0], kinds=("transfer",)))]), CONFIG)
    assert told(found) == {(COPY[0], "node", "host1")}


def test_a_tensor_index_that_is_slow_everywhere_is_seen_over_roles() -> None:
    """All ranks of role pp0.tp1 are equally slow, so the role alone shows nothing; the stage does."""
    roles = []
    for tp in range(4):
        modes = fleet(16, tp, {str(rank): 1.15 for rank in range(16)} if tp == 1 else None)
        renamed = {str(int(rank) * 4 + tp): pairs for rank, pairs in modes.items()}
        info = [
            {"node": f"host{int(rank) // 8}", "tp": str(tp), "pp": "0", "dp": str(int(rank) // 4)}
            for rank in renamed
        ]
        roles.append(role(renamed, f"pp0.tp{tp}", info))
    assert judge_groups(JobTriples(roles[1:2]), CONFIG) == []
    (found,) = judge_groups(JobTriples(roles), CONFIG)
    assert (found.role, found.coordinate, found.value) == ("pp0", "tp", "1")


def test_ranks_are_compared_within_their_gpu_model() -> None:
    """Two models 1.3 times apart, in a role each: no finding. A host that is slow for its model is one."""

    def of_model(name: str, speed: float, slow_host: float) -> RoleTriples:
        factors = {str(rank): speed * (slow_host if rank < 8 else 1.0) for rank in range(32)}
        info = [{"node": f"{name}{rank // 8}", "pp": "0", "dp": str(rank)} for rank in range(32)]
        return role(fleet(32, len(name), factors), f"pp0.tp0.{name}", info)

    assert judge_groups(JobTriples([of_model("h100", 1.0, 1.0), of_model("a100b", 1.3, 1.0)]), CONFIG) == []
    (found,) = judge_groups(JobTriples([of_model("h100", 1.0, 1.0), of_model("a100b", 1.3, 1.1)]), CONFIG)
    assert (found.role, found.coordinate, found.value) == ("pp0.tp0.a100b", "node", "a100b0")


def test_tensor_indices_of_one_gpu_model_are_compared() -> None:
    """The model stays in the name of what was compared."""
    roles = []
    for tp in range(2):
        modes = fleet(16, tp, {str(rank): 1.15 for rank in range(16)} if tp == 1 else None)
        renamed = {str(int(rank) * 2 + tp): pairs for rank, pairs in modes.items()}
        info = [{"node": f"host{int(rank) // 8}", "tp": str(tp), "pp": "0", "dp": rank} for rank in renamed]
        roles.append(role(renamed, f"pp0.tp{tp}.h100", info))
    found = judge_groups(JobTriples(roles), CONFIG)
    assert {(one.role, one.coordinate, one.value, one.shift > 0) for one in found} == {
        ("pp0.h100", "tp", "1", True),
        ("pp0.h100", "tp", "0", False),
    }


def test_pipeline_stages_are_never_compared() -> None:
    """A last stage with twice the work is design, not a fault."""
    stages = [
        role(fleet(16, stage), f"pp{stage}.tp0", [{"node": "a", "pp": str(stage)} for _ in range(16)])
        for stage in range(2)
    ]
    stages[1] = role(
        fleet(16, 1, {str(rank): 2.0 for rank in range(16)}),
        "pp1.tp0",
        [{"node": "b", "pp": "1"} for _ in range(16)],
    )
    assert judge_groups(JobTriples(stages), CONFIG) == []


def collectives(
    ranks: int, factor: dict[str, float], seed: int = 0, stream: str = "nccl0"
) -> dict[str, RankModes]:
    """A healthy fleet whose all-reduce varies by 30 % between ranks, times a factor."""
    random = np.random.default_rng(seed)
    modes = fleet(ranks, seed)
    for rank, pairs in modes.items():
        stretch = factor.get(rank, 1.0) * random.uniform(0.85, 1.15)
        reduce = [(p50 * stretch, p99 * stretch, n) for p50, p99, n in pairs.pop(REDUCE)]
        pairs[REDUCE[0], stream] = reduce
    return modes


EXPERTS = [
    {"node": f"host{rank // 8}", "pp": "0", "dp": str(rank), "ep": str(rank % 8)} for rank in range(64)
]


def test_healthy_fleets_have_no_group_shift() -> None:
    """30 windows of 64 ranks with noisy collectives."""
    for seed in range(30):
        assert judge_groups(JobTriples([role(collectives(64, {}, seed), info=EXPERTS)]), CONFIG) == []


def test_peaks_that_are_told_apart_on_some_ranks_only_make_no_groups() -> None:
    """A kernel with two shapes 11 % apart: whether a window shows one mode or two is chance."""
    random = np.random.default_rng(0)
    labels = [{"node": f"host{rank // 4}", "pp": "0", "dp": str(rank)} for rank in range(16)]
    numbers = set()
    for _ in range(30):
        table: dict[str, RankModes] = {}
        for rank in range(16):
            peaks = np.concatenate([np.full(128, 200e-6), np.full(128, 222e-6)])
            modes = find_modes(peaks * np.exp(0.03 * random.standard_normal(256))).modes
            table[str(rank)] = {GEMM: [(one.p50, one.p99, float(one.count)) for one in modes]}
            numbers.add(len(modes))
        assert judge_groups(JobTriples([role(table, info=labels)]), CONFIG) == []
    assert numbers == {1, 2}


def test_expert_groups_are_consecutive_blocks_of_data_parallel_ranks() -> None:
    """edp is derived: dp 0..7 share 0, dp 8..15 share 1."""
    found = coordinates_of(EXPERTS, ("node", "ep", "edp", "rack"))
    assert set(found) == {"node", "ep", "edp"}
    assert found["edp"][:9] == ("0",) * 8 + ("1",)


def test_a_group_shift_must_persist() -> None:
    """One window of three is chance; two are a finding, which ends when it falls out."""
    slow = judge_groups(JobTriples([role(fleet(32, 1, {str(rank): 1.12 for rank in range(16, 24)}))]), CONFIG)
    history = GroupHistory(windows=3, needed=2)
    seen = []
    for window in (slow, [], slow, [], []):
        history.add(window)
        seen.append(len(history.persistent()))
    assert seen == [0, 0, 1, 0, 0]


def test_ranks_that_fall_apart_by_chance_do_not_persist() -> None:
    """Other ranks in each window are no group, although the labels of what was found are the same."""

    def none(*ranks: int) -> list[GroupShift]:
        of = "llm", "pp0", "gemm", "compute0", "none", "", "gpu-compute", "operations"
        return [GroupShift(*of, 0.05, tuple(map(str, ranks)), 16)]

    history = GroupHistory(windows=3, needed=2)
    for ranks in ((0, 3, 5, 9), (1, 3, 8, 12), (2, 5, 11, 15)):
        history.add(none(*ranks))
    assert history.persistent() == []
    history.add(none(2, 5, 11, 15))
    assert len(history.persistent()) == 1
