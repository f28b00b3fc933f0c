"""Which cause and team a slow kernel is given: the GPU, its tail, or other work."""

from __future__ import annotations

import numpy as np
from bench.l3_tables import judge_role, pair_triples

from argus_core.causes import TEAMS
from argus_l3_worker.judge import causes
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.verdicts import History, Verdict, decide
from argus_l3_worker.roles import Abstention
from argus_l3_worker.triples import RoleTriples, Window
from argus_traces import attribution

RANKS = 16
Mode = tuple[float, float, float]  # (p50, p99, count)


def verdicts(of_rank_3: Mode, healthy: Mode = (1e-3, 1.1e-3, 400.0)) -> set[tuple[str, str, str]]:
    """(rank, cause, team) of one kernel in three windows; another, twice as long, is healthy everywhere."""
    history = History(3, 2)
    rng = np.random.default_rng(0)
    for window in range(3):

        def noisy(mode: Mode) -> Mode:
            factor = float(np.exp(0.003 * rng.standard_normal()))
            return mode[0] * factor, mode[1] * factor, mode[2]

        one = [(rank, [noisy(of_rank_3 if rank == 3 else healthy)]) for rank in range(RANKS)]
        other = [(rank, [noisy((4e-3, 4.4e-3, 400.0))]) for rank in range(RANKS)]
        role = RoleTriples(
            "llm",
            "pp0",
            Window(64 * (window + 1), 64),
            tuple(map(str, range(RANKS))),
            (pair_triples("experts", "compute0", one), pair_triples("dense", "compute0", other)),
            np.full(RANKS, np.nan),
        )
        judged = judge_role(role, JudgeConfig())
        assert not isinstance(judged, Abstention)
        history.add(judged)
    found: list[Verdict] = decide("llm", [("pp0", history)])
    return {(one.rank, one.cause, one.team) for one in found if one.kernel == "experts"}


def test_every_cause_has_the_team_of_the_table() -> None:
    """Whatever the worker or a trace may name is a row of it; who only waits is nobody's."""
    named = {
        value
        for module in (causes, attribution)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and not name.startswith("_")
    }
    kinds = {"compute", "memory", "communication", "host"}  # of operations, which are no causes
    assert named - {causes.COLLECTIVE_WAIT} - kinds <= TEAMS.keys()
    assert causes.team_of(causes.WORKLOAD) == TEAMS["workload"]
    assert causes.team_of(causes.COLLECTIVE_WAIT) == "none"


def test_a_slower_kernel_is_the_gpu() -> None:
    """All of the mode 20 % slower, run as often as elsewhere."""
    assert verdicts((1.2e-3, 1.32e-3, 400.0)) == {("3", "gpu-compute", "operations")}


def test_a_longer_p99_alone_is_the_tail() -> None:
    """The median as elsewhere, p99 at twice: what an intermittent fault looks like."""
    assert verdicts((1e-3, 2.2e-3, 400.0)) == {("3", "gpu-memory", "operations")}


def test_a_slower_kernel_that_ran_more_often_is_the_workload() -> None:
    """20 % slower and 40 % more often: the rank was given more to do."""
    assert verdicts((1.2e-3, 1.32e-3, 560.0)) == {("3", "workload", "algorithm")}


def test_more_work_at_the_same_speed_accuses_nobody() -> None:
    """Counts alone are no fault of a rank."""
    assert verdicts((1e-3, 1.1e-3, 560.0)) == set()


def judged(counts: list[float], speeds: list[float], work: list[float] | None = None) -> list[Verdict]:
    """Verdicts over three windows of one kernel with these launches and durations by rank."""
    history = History(3, 2)
    rng = np.random.default_rng(1)
    for window in range(3):
        modes = []
        for rank, (count, speed) in enumerate(zip(counts, speeds, strict=True)):
            p50 = 1e-3 * speed * float(np.exp(0.003 * rng.standard_normal()))
            modes.append((rank, [(p50, 1.1 * p50, count)]))
        outcome = judge_role(
            RoleTriples(
                "llm", "pp0", Window(64 * (window + 1), 64), tuple(map(str, range(len(counts)))),
                (pair_triples("vision", "compute0", modes),), np.full(len(counts), np.nan),
                work=None if work is None else np.array(work),
            ),
            JudgeConfig(),
        )  # fmt: skip
        assert not isinstance(outcome, Abstention)
        history.add(outcome)
    return decide("llm", [("pp0", history)])


def test_uneven_work_at_the_same_speed_names_no_rank() -> None:
    """Video lengths: up to 20 % more launches in the same steps, equal durations: it is the job's."""
    counts = np.linspace(400.0, 480.0, RANKS).round().tolist()
    (found,) = judged(counts, [1.0] * RANKS)
    assert (found.rank, found.cause, found.verdict, found.team) == ("", "workload", "culprit", "algorithm")
    assert 0.1 < np.expm1(found.shift) < 0.2


def test_launches_that_differ_by_chance_are_no_uneven_work() -> None:
    """One or two of 400 lie outside of the modes, here more, there fewer."""
    counts = (400.0 - np.random.default_rng(0).poisson(1.5, RANKS)).tolist()
    assert judged(counts, [1.0] * RANKS) == []


def test_a_rank_that_reports_more_work_is_not_a_slow_gpu() -> None:
    """Hot experts: 40 % more tokens and 38 % longer kernels."""
    speeds = [1.38 if rank == 3 else 1.0 for rank in range(RANKS)]
    tokens = [1400.0 if rank == 3 else 1000.0 for rank in range(RANKS)]
    found = judged([400.0] * RANKS, speeds, tokens)
    assert {(one.rank, one.cause, one.team) for one in found} == {("3", "workload", "algorithm")}
    found = judged([400.0] * RANKS, speeds, [1000.0] * RANKS)
    assert {(one.rank, one.cause) for one in found} == {("3", "gpu-compute")}


def test_copies_of_one_launch_a_step_are_judged_by_a_larger_shift() -> None:
    """Sixteen copies a window at four times the duration are the link to the host; 15 % more are nothing."""

    def told(factor: float) -> set[tuple[str, str]]:
        history = History(3, 2)
        rng = np.random.default_rng(0)
        for window in range(3):
            noise = np.exp(0.01 * rng.standard_normal(RANKS))
            copy = 3e-4 * noise * np.where(np.arange(RANKS) == 5, factor, 1.0)
            copies = [(rank, [(copy[rank], 1.1 * copy[rank], 16.0)]) for rank in range(RANKS)]
            gemm = [(rank, [(1e-3 * noise[rank], 1.1e-3 * noise[rank], 40.0)]) for rank in range(RANKS)]
            outcome = judge_role(
                RoleTriples(
                    "llm", "pp0", Window(16 * (window + 1), 16), tuple(map(str, range(RANKS))),
                    (pair_triples("Memcpy_HtoD", "copy0", copies), pair_triples("gemm", "compute0", gemm)),
                    np.full(RANKS, np.nan),
                ),
                JudgeConfig(),
            )  # fmt: skip
            assert not isinstance(outcome, Abstention)
            history.add(outcome)
        return {(one.rank, one.cause) for one in decide("llm", [("pp0", history)])}

    assert told(4.0) == {("5", "gpu-transfer")}
    assert told(1.15) == set()
