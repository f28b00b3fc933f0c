"""The quality bench's fleet of GPUs that differ, and the shipped judge beside it."""

from __future__ import annotations

import json

import pytest
from bench.l3_cells import EVENTS, a_day, cells
from bench.l3_quality import main
from bench.l3_varying import Varying, VaryingFleet


@pytest.mark.slow
def test_a_short_day_of_differing_gpus_accuses_nobody() -> None:
    """64 ranks in roles of 8, chips 2 % apart, 20 windows with all that happens to a job in a day."""
    cell = a_day(Varying(ranks=64), 20, 0, sorted(EVENTS), lambda _: None)
    assert (cell.accused, cell.groups, cell.names) == (0, 0, ())


def test_gpus_that_move_are_the_same_gpus() -> None:
    """A fifth of them change places; each is somewhere once, and keeps its name."""
    fleet = VaryingFleet(Varying(ranks=64), 0)
    before = [gpu for role in fleet.window({}).roles for gpu in role.gpus]
    fleet.move(0.2)
    after = [gpu for role in fleet.window({}).roles for gpu in role.gpus]
    assert sorted(after) == sorted(before)
    assert 6 <= sum(one != other for one, other in zip(before, after, strict=True)) <= 13


def test_two_models_are_told_apart_and_no_role_is_smaller_than_four() -> None:
    """As the documentation asks for; ranks that are left over make a role of their own, or none."""
    sizes = [len(role.ranks) for role in VaryingFleet(Varying(ranks=30, role_size=8), 0).window({}).roles]
    assert sizes == [8, 8, 8, 6]
    roles = {role.role for role in VaryingFleet(Varying(ranks=256), 0).window({}).roles}
    assert sum(name.endswith(".b") for name in roles) == 8


def test_cells_are_those_that_are_asked_for() -> None:
    """One flag leaves the other free."""
    assert list(cells(0.02, 8)) == [(0.02, 8)]
    assert {size for _, size in cells(0.02, None)} == {4, 8, 16, 80, 1280}


@pytest.mark.slow
def test_the_command_ends_in_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """A short morning of 32 ranks, the healthy cell alone."""
    cell = ("--chip", "0.02", "--role-size", "8", "--ranks", "32", "--windows", "4")
    assert main([*cell, "--skip-found"]) == 0
    *told, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == {"accused": 0}
    assert told == ["chip 2.0%, roles of 8: 0 ranks and 0 groups accused"]
