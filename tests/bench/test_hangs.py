"""Played hangs: who waits for whom in a step that does not end, and what the shipped rules make of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.hangs.cases import KINDS, cases
from bench.hangs.judge import judge_together
from bench.hangs.step import Break, HungStep, Program

from argus_simulator.engine.schedule import Extras, RankSchedule
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.topology import Topology

RULES = Path(__file__).resolve().parents[2] / "rules"
GRID = Topology(dp=2, tp=2)
PROGRAMS = [Program.of(RankSchedule(GRID, rank, ModelSettings(), Extras())) for rank in range(GRID.ranks)]


def hung(*broken: Break, blocking: bool = True) -> HungStep:
    return HungStep(GRID, PROGRAMS, broken, 1024, blocking=blocking)


def called(step: HungStep, rank: int) -> dict[str, int]:
    standing = step.ranks[rank]
    return {
        group: sum(one < standing.launched for one in positions)
        for group, positions in standing.collectives().items()
    }


def first(role: str) -> int:
    return next(at for at, node in enumerate(PROGRAMS[0].nodes) if node.role == role)


def test_nothing_wrong_and_both_steps_end() -> None:
    for standing in hung().ranks:
        assert all(standing.done)


def test_who_waits_for_a_rank_that_stands_still_has_called_more() -> None:
    """Its tensor-parallel mate is one ahead in their group; all that is unfinished belongs to others."""
    step = hung(Break("host", 0, first("collective")))
    mate = GRID.group(0, "tp")
    assert (called(step, 0)[mate], called(step, 1)[mate]) == (0, 1)
    stuck = step.ranks[0]
    assert all(stuck.done[: stuck.launched])
    assert not all(step.ranks[1].done[: step.ranks[1].launched])


def test_hosts_run_ahead_of_a_gpu_that_does_not_move() -> None:
    """All have called the same; the mate's collective has started, and that of the rank has not."""
    step = hung(Break("gpu", 0, first("compute")), blocking=False)
    assert list(called(step, 0).values()) == list(called(step, 1).values())
    at = first("collective")
    assert [step.ranks[rank].started[at] for rank in (0, 1)] == [False, True]


def test_a_collective_of_a_stopped_member_does_not_end() -> None:
    """It has called it: nobody is behind in that group."""
    at = first("collective")
    step = hung(Break("process", 0, at + 1))
    assert called(step, 0)[GRID.group(0, "tp")] == called(step, 1)[GRID.group(0, "tp")] == 1
    assert not step.ranks[1].done[at]


def test_cases_are_those_of_their_seed() -> None:
    assert list(cases(16, 7)) == list(cases(16, 7))
    assert list(cases(16, 7)) != list(cases(16, 8))
    assert {case.kind for case in cases(len(KINDS), 7)} == set(KINDS)


@pytest.mark.servers
@pytest.mark.slow
def test_the_shipped_rules_accuse_nobody_who_waits() -> None:
    """One case of each kind: what has proof is told right, within 20 s; no rule fails on any of them."""
    judged, failures = judge_together(list(cases(len(KINDS), 21)), rules=RULES)
    assert failures == {}
    assert {rank for one in judged for rank in one.innocents} == set()
    proven = [
        one for one in judged if one.variant in ("stopped", "stuck", "died", "diverged", "gpu", "several")
    ]
    assert len(proven) >= 4
    for one in proven:
        assert one.right, one
        assert one.page_s is not None
        assert one.page_s <= 20.5, one  # a group of rules is evaluated each 5 s after a scrape of each 15 s
