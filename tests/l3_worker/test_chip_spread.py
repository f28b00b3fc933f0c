"""Healthy chips differ for life: jobs of many small roles accuse none of them, and still find who is slow.

Each rank of 1,024 has a speed of its own, lognormal, the same in all windows; medians vary by 0.3 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from bench.l3_tables import judge_role

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.role_judgement import RoleJudgement, judge_roles
from argus_l3_worker.judge.segments import Segments, robust_deviation
from argus_l3_worker.judge.shifts import deviations
from argus_l3_worker.judge.verdicts import History, culprits, decide
from argus_l3_worker.triples import Floats, PairTriples, RoleTriples, Window
from long_forms import LONG

CONFIG = JudgeConfig()
RANKS = 1024
# Seconds and events of each mode; widths of 5 %.
KERNELS = {"gemm": ((4e-4, 640.0), (4e-3, 128.0)), "flash": ((9e-4, 256.0),)}


def window(
    speeds: Floats, sizes: Sequence[int], number: int, random: np.random.Generator
) -> list[RoleTriples]:
    """Roles of these sizes, in order of the ranks."""
    roles, begin = [], 0
    for place, size in enumerate(sizes):
        own, everyone = speeds[begin : begin + size, None], np.arange(size, dtype=np.intp)
        pairs = []
        for name, modes in KERNELS.items():
            p50 = own * [seconds for seconds, _ in modes]
            p50 = p50 * np.exp(0.003 * random.standard_normal(p50.shape))
            count = np.tile([events for _, events in modes], (size, 1))
            pairs.append(PairTriples(name, "compute0", everyone, count, p50, 1.12 * p50))
        ranks = tuple(str(begin + rank) for rank in range(size))
        unknown = np.full(size, np.nan)
        roles.append(RoleTriples("llm", f"pp{place}", Window(64 * number, 64), ranks, tuple(pairs), unknown))
        begin += size
    return roles


def accused(speeds: Floats, sizes: Sequence[int], seed: int, together: bool = True) -> list[str]:
    """Culprits after two windows; each role by itself where they are not judged `together`."""
    random = np.random.default_rng(seed)
    histories: dict[str, History] = {}
    for number in range(1, 3):
        roles = window(speeds, sizes, number, random)
        found = (
            judge_roles(JobTriples(roles), CONFIG)
            if together
            else {role.role: judge_role(role, CONFIG) for role in roles}
        )
        for name, outcome in found.items():
            assert isinstance(outcome, RoleJudgement)
            history = histories.setdefault(name, History(CONFIG.windows, CONFIG.windows_needed))
            history.add(outcome)
    return culprits(decide("llm", histories.items()))


def chips(spread: float, seed: int, slow: Mapping[int, float] | None = None, ranks: int = RANKS) -> Floats:
    speeds = np.exp(spread * np.random.default_rng([seed, 7]).standard_normal(ranks))
    for rank, factor in (slow or {}).items():
        speeds[rank] = factor
    return speeds


@pytest.mark.parametrize("spread", [0.02, 0.03])
@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.slow
def test_chips_of_many_speeds_are_healthy_in_roles_of_any_size(size: int, spread: float) -> None:
    """A job of 1,024 ranks (`make verify`: three): nobody. Each role by itself accused 0.4 % of the ranks in
    roles of four."""
    for seed in range(3 if LONG else 1):
        assert accused(chips(spread, seed), [size] * (RANKS // size), seed) == []


def test_each_role_by_itself_accuses_healthy_chips() -> None:
    """Why deviations are pooled: that of four values is often tiny by chance."""
    assert len(accused(chips(0.02, 0), [4] * 256, 0, together=False)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("size", "found"), [(4, 6), (8, 10), (16, 12)])
def test_a_slow_rank_among_chips_of_many_speeds_is_found(size: int, found: int) -> None:
    """1.15x in one role, 2 % between chips: named alone, as often as before; four values hide half."""
    jobs = [(chips(0.02, seed, {5: 1.15}, 64), [size] * (64 // size), seed) for seed in range(12)]
    named = [accused(*job) for job in jobs]
    assert all(ranks in (["5"], []) for ranks in named)
    assert sum(map(bool, named)) >= found
    assert sum(map(bool, named)) >= sum("5" in accused(*job, together=False) for job in jobs) - 1


@pytest.mark.parametrize("size", [4, 8, 16])
def test_among_like_chips_nothing_is_lost(size: int) -> None:
    """Half a percent between chips, 1.05x: found in the same jobs as where each role is judged by itself.

    In roles of four one job less of eight: the error of a median of four counts.
    """
    jobs = [(chips(0.005, seed, {5: 1.05}, 64), [size] * (64 // size), seed) for seed in range(8)]
    missed = [job for job in jobs if accused(*job) != accused(*job, together=False)]
    assert len(missed) <= (1 if size == 4 else 0)
    assert all(accused(*job) in ([], ["5"]) for job in missed)


def test_a_slow_role_and_a_noisy_one_leave_the_others_as_sharp_as_they_were() -> None:
    """One role 1.5x slower as a whole, one with 10 % between its chips: 1.1x elsewhere is named alone."""
    for seed in range(4):
        speeds = chips(0.005, seed, {100: 1.1}, ranks=256)
        speeds[:8] *= 1.5
        speeds[8:16] = chips(0.1, seed, ranks=8)
        assert accused(speeds, [8] * 32, seed) == ["100"]


@pytest.mark.parametrize(("size", "factor"), [(2, 2.0), (4, 1.12)])
def test_a_slow_host_with_a_rank_in_each_role_does_not_hide_behind_itself(size: int, factor: float) -> None:
    """Eight roles over tensor indices, the first rank of each on one host: all eight are named."""
    speeds = chips(0.005, 0, ranks=8 * size)
    speeds[::size] = factor
    assert accused(speeds, [size] * 8, 0) == [str(rank) for rank in range(0, 8 * size, size)]


def test_a_role_without_others_of_its_size_is_judged_as_by_itself() -> None:
    """Nothing is pooled where there is nobody to pool with: a role of two has no deviation to give."""
    speeds = chips(0.02, 0, {1: 1.12}, ranks=6)
    assert accused(speeds, [4, 2], 0) == accused(speeds, [4, 2], 0, together=False)


@pytest.mark.parametrize("size", [4, 5, 6, 8, 16, 64])
def test_the_pooled_deviation_is_the_true_one_whatever_the_size_of_roles(size: int) -> None:
    """2 % within 8 %, and the error of a median of so few beside it, also where one role in eight is wild."""
    values = 0.02 * np.random.default_rng(size).standard_normal((8192 // size, size))
    parts = Segments([size] * len(values))
    expected = 0.02 * np.sqrt(1.0 + np.pi / 2.0 / size)
    assert deviations(values.ravel(), parts).min() == pytest.approx(expected, rel=0.08)
    assert parts.deviations(values.ravel()).mean() < 0.02
    values[::8] *= 25.0
    assert deviations(values.ravel(), parts).min() < 0.026 * expected / 0.02


def test_deviations_of_one_role_are_its_own() -> None:
    """There is nothing to pool with, also where roles of another number of modes are beside it."""
    values = np.array([0.0, 0.01, 0.02, np.nan, 0.05])
    own = robust_deviation(values)
    assert deviations(values, Segments([5])).tolist() == [own]
    both = deviations(np.concatenate((values, 9.0 * values)), Segments([5, 5]), np.array([0, 1]))
    assert both == pytest.approx([own, 9.0 * own])
