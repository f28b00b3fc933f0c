"""How a user says what is wrong with a fleet, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from argus_simulator.fleet.faults import WrongFault, parse_fault
from argus_simulator.fleet.ranks import Layout

LAYOUT = Layout(dp=4, tp=2, pp=2)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ("3", [3]),
        ("2-4+7", [2, 3, 4, 7]),
        ("host1", [8, 9, 10, 11, 12, 13, 14, 15]),
        ("pp1", [8, 9, 10, 11, 12, 13, 14, 15]),
        ("dp3+tp:1", [1, 3, 5, 6, 7, 9, 11, 13, 14, 15]),
    ],
)
def test_ranks_are_numbers_ranges_and_places(ranks: str, expected: list[int]) -> None:
    """Joined by +."""
    fault = parse_fault(f"ranks={ranks},late=1s")
    assert np.flatnonzero(fault.members(LAYOUT)).tolist() == expected


def test_times_have_units() -> None:
    """Minutes and hours become seconds."""
    fault = parse_fault("ranks=1,gc=0.2,onset=30m,end=1h")
    assert (fault.gc, fault.onset, fault.end) == (0.2, 1800.0, 3600.0)
    assert [fault.active(at) for at in (1799, 1800, 3599, 3600)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ranks=1", "no effect given; allowed: exactly one of phase, kernels, late"),
        ("ranks=1,late=1,gc=1", "late and gc given; allowed: exactly one"),
        ("late=1", "ranks is ''; allowed: numbers, ranges and places"),
        ("ranks=1,phase=foward", "phase is 'foward'; allowed: data, forward"),
        ("ranks=1,kernels=nothing*", "matches no simulated kernel"),
        ("ranks=1,blind=cameras", "blind is 'cameras'; allowed: phases, kernels, stacks"),
        ("ranks=1,late=1,speed=9", "'speed=9' is not understood; allowed: key=value with ranks, phase"),
        ("ranks=1,late=soon", "late: 'soon' is no duration"),
        ("ranks=1,hang=maybe", "hang: 'maybe'; allowed: yes, no"),
        ("ranks=1,phase=data,factor=0", "factor is 0; allowed: 0.1 to 1000"),
        ("ranks=1,phase=data,factor=fast", "factor: 'fast' is not a number"),
        ("ranks=1,late=1,onset=5m,end=1m", "onset is 300 s and end 60 s"),
    ],
)
def test_a_wrong_fault_is_refused(text: str, message: str) -> None:
    """With its text, the key, and what is allowed."""
    with pytest.raises(WrongFault, match=message):
        parse_fault(text)


@pytest.mark.parametrize("ranks", ["16", "ep0", "pp2", "host2"])
def test_ranks_that_the_layout_does_not_have_are_refused(ranks: str) -> None:
    """Said before anything is written."""
    with pytest.raises(WrongFault, match=f"ranks={ranks}: no such ranks among 16"):
        parse_fault(f"ranks={ranks},late=1").members(LAYOUT)
