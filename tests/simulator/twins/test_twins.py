"""Real programs over gloo with one slow rank, as docs/frameworks.json has them, and their simulated twins."""

from __future__ import annotations

import pytest

from simulator.twins.told import told
from simulator.twins.twin import HALVES, TWINS, Twin

EACH = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.program)


@EACH
def test_a_twin_sends_the_same_series(twin: Twin) -> None:
    """Phases by kind, and for whom they wait."""
    assert twin.series() == twin.real_series()


@pytest.mark.parametrize("half", HALVES)
@EACH
def test_a_twins_phases_have_the_same_shares_of_the_iteration(twin: Twin, half: str) -> None:
    """Within 10 % of it, on the slow rank and on the one that waits for it."""
    for real, played in zip(twin.real_shares(half), twin.shares(half), strict=True):
        assert played == pytest.approx(real, abs=0.1)


@pytest.mark.servers
@pytest.mark.slow
def test_rules_tell_the_same_of_a_twin() -> None:
    """Right or wrong: the same pages on the same ranks, by the shipped rules, and there are some."""
    found = told(TWINS)
    for twin in TWINS:
        assert found[twin.program, "real"] == found[twin.program, "simulated"], twin.program
        assert found[twin.program, "real"], twin.program
