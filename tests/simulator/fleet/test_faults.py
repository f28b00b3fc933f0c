"""How a user says what is wrong with a fleet, and what is refused."""

from __future__ import annotations

import pytest

from argus_simulator.fleet.faults import WrongFault, parse_fault
from argus_simulator.topology import Topology

TOPOLOGY = Topology(dp=4, tp=2, pp=2)


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
    assert list(parse_fault(f"mechanism=late,seconds=1,ranks={ranks}", TOPOLOGY, 4.0).ranks) == expected


def test_times_become_steps_after_those_before_the_history() -> None:
    """By the length of a healthy step."""
    fault = parse_fault("mechanism=pause,kind=gc,ranks=1,seconds=0.2,onset=30m,end=1h", TOPOLOGY, 4.0, 45)
    assert (fault.kind, fault.seconds, fault.onset_step, fault.end_step) == ("gc", 0.2, 495, 945)
    assert parse_fault("mechanism=leave,ranks=1", TOPOLOGY, 4.0, 45).onset_step == 45


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ranks=1", "mechanism is missing; allowed: kernels, link"),
        ("mechanism=late,seconds=1", "ranks: give exactly one of ranks and where"),
        ("mechanism=late,ranks=x", "ranks is 'x'; allowed: numbers, ranges and places"),
        ("mechanism=late,ranks=1,speed=9", "unknown key speed"),
        ("mechanism=late,ranks=1,kernels=a", "kernels means nothing to mechanism late"),
        ("mechanism=late,ranks=1,onset=soon", "'soon' is no duration"),
        ("mechanism=kernels,ranks=1,factor=fast", "factor"),
        ("mechanism=kernels,ranks=1,factor=0", "factor is 0"),
        ("mechanism=leave,ranks=1,onset=5m,end=1m", "end_step is 15; allowed: above onset_step"),
        ("mechanism", "'mechanism' is not understood; allowed: key=value"),
        ("mechanism=leave,ranks=16", "ranks=16: no such ranks among 16"),
        ("mechanism=leave,ranks=ep0", "ranks=ep0: no such ranks among 16"),
        ("mechanism=leave,ranks=pp2", "ranks=pp2: no such ranks among 16"),
        ("mechanism=restart,ranks=0-15,dp=32", "dp is 32; allowed: 0, a fleet restarts as it was"),
    ],
)
def test_a_wrong_fault_is_refused(text: str, message: str) -> None:
    """With its text, the key, and what is allowed."""
    with pytest.raises(WrongFault, match=message):
        parse_fault(text, TOPOLOGY, 4.0)
