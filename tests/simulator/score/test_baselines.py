"""What simpler rules make of series."""

from __future__ import annotations

from argus_simulator.score import baselines
from argus_simulator.stack import Samples

RANKS = range(16)


def samples(slow: float, phase: str = "forward") -> Samples:
    """One phase of 16 ranks that differ by thousandths; rank 5 takes `slow` times as long."""
    return [
        (
            {"rank": str(rank), "phase": phase, "group": "dp:all"},
            (1 + rank % 4 / 1000) * (slow if rank == 5 else 1),
        )
        for rank in RANKS
    ]


def said(slow: float) -> dict[str, tuple[int, ...]]:
    def query(promql: str) -> Samples:
        return [({"rank": "5"}, 1.0)] if "w1" in promql else samples(slow)

    return baselines.named(query, "job", 0.0, 30.0)


def test_each_rule_finds_what_it_is_made_for():
    """One rank of 16 at twice the time: z is 3.75 of a possible 3.75."""
    assert set(said(2.0).values()) == {(), (5,)}
    assert said(2.0)[baselines.HEALTHY] == ()


def test_the_longest_is_accused_in_health_too():
    """There is always a longest rank."""
    assert len(said(1.0)[baselines.LONGEST]) == 1
    assert said(1.0)[baselines.Z_SCORE] == ()


def test_a_rank_that_collected_longer_garbage_is_not_accused_of_it():
    """A dozen collections of random length differ by more than a tenth in the healthiest of jobs."""

    def query(promql: str) -> Samples:
        if "w1" in promql:
            return []
        return samples(1.0) + ([] if 'phase!="gc"' in promql else samples(1.2, "gc"))

    found = baselines.named(query, "job", 0.0, 30.0)
    found.pop(baselines.LONGEST)
    assert set(found.values()) == {()}
