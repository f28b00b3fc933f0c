"""Played hangs: who waits for whom in a step that does not end, and what the shipped rules make of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.hangs.cases import KINDS, cases
from bench.hangs.judge import judge_together
from bench.hangs.network import Hop, Lacks, settle
from bench.hangs.step import UNCOUNTED, Break, HungStep, Program, launches

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


def test_who_calls_something_else_has_launched_as_much_in_all() -> None:
    """NCCL counts an all-reduce less, and a broadcast more, which its RAS does not tell."""
    at = first("collective")
    step = hung(Break("call", 0, at), blocking=False)
    mate = GRID.group(0, "tp")
    right = launches(step.ranks[1], 0, ())[mate]
    wrong = launches(step.ranks[0], 0, (at,))[mate]
    assert wrong == {"AllReduce": right["AllReduce"] - 1, UNCOUNTED: 1}


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


SEND_OWN, SEND_PEER, SEND_WIRE = "send_gpu_wait", "send_peer_wait", "send_wait"
RECEIVE_PEER, RECEIVE_OWN = "receive_wait", "receive_gpu_wait"


def ring(
    members: int, network: set[int], standing: int | None = None, lost: tuple[int, Lacks] | None = None
) -> dict[int, set[str]]:
    """What each member of a large ring waits for; `network`: members that leave their host to the next."""
    hops = [
        Hop(rank, (rank + 1) % members, rank in network, lost[1] if lost and lost[0] == rank else None, 64)
        for rank in range(members)
    ]
    posted = dict.fromkeys(range(members), True)
    settle(hops, posted, {rank: rank != standing for rank in posted}, ring=True)
    found: dict[int, set[str]] = {rank: set() for rank in posted}
    for hop in hops:
        for rank, _, wait in hop.waits(posted, frozenset()):
            found[rank].add(wait)
    return found


def test_a_ring_in_which_nothing_is_wrong_ends() -> None:
    assert ring(4, {0, 1, 2, 3}) == {rank: set() for rank in range(4)}


def test_before_a_gpu_that_stands_there_is_no_room_and_behind_it_no_data() -> None:
    """Member 2 takes nothing of what has arrived; the one before it has eleven steps for eight slots."""
    found = ring(12, set(range(12)), standing=2)
    assert found[2] == {RECEIVE_OWN, SEND_OWN}
    assert SEND_PEER in found[1]
    assert found[3] == {RECEIVE_PEER, SEND_OWN}


def test_what_is_lost_is_on_the_wire_at_one_end_alone() -> None:
    found = ring(4, {0, 1, 2, 3}, lost=(1, "data"))
    assert SEND_WIRE in found[1]
    assert found[2] == {RECEIVE_PEER, SEND_OWN}
    assert not any(SEND_WIRE in found[rank] for rank in (0, 2, 3))
    assert SEND_PEER in ring(4, {0, 1, 2, 3}, lost=(1, "room"))[1]


def test_over_nvlink_there_are_no_steps() -> None:
    """Hosts of two, left by the odd members: whichever of 2 and 3 stands looks the same."""
    for standing in (2, 3):
        found = ring(12, {1, 3, 5, 7, 9, 11}, standing=standing)
        assert found[2] == {RECEIVE_OWN}
        assert found[3] == {SEND_OWN}
        assert found[4] == {RECEIVE_PEER}


def test_what_fits_between_the_gpus_of_a_host_hides_who_stands() -> None:
    """Four members send three steps at most before they wait: the one before it has taken them."""
    assert ring(4, {1, 3}, standing=3)[2] == {RECEIVE_PEER}


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
        one
        for one in judged
        if one.variant in ("stopped", "stuck", "died", "diverged", "gpu", "network", "several")
    ]
    assert len(proven) >= 4
    for one in proven:
        assert one.right, one
        assert one.page_s is not None
        assert one.page_s <= 20.5, one  # a group of rules is evaluated each 5 s after a scrape of each 15 s
