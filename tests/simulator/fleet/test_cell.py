"""Which part of a fleet is played for all of it."""

from __future__ import annotations

import numpy as np
import pytest

from argus_simulator.engine.faults import Fault
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.fleet.cell import cell_of
from argus_simulator.topology import Topology

FLEET = Topology(dp=64, tp=2, pp=2, ep=2)


def slow(*ranks: int) -> Fault:
    return Fault("kernels", ranks, factor=1.5)


@pytest.mark.parametrize(
    "faults",
    [(), (slow(77),), (slow(0, 1), slow(*range(128, 256))), (slow(3), slow(3, 90))],
    ids=["healthy", "a rank", "a pair and a stage", "two on a rank"],
)
def test_each_rank_is_played_by_one_in_its_place_with_its_faults(faults: tuple[Fault, ...]) -> None:
    """The same stage, tensor and expert index, the same faults; who shares experts still does."""
    cell = cell_of(FLEET, faults)

    assert cell.topology.ranks <= 64
    assert set(cell.played_as.tolist()) == set(range(cell.topology.ranks))
    for rank, played in enumerate(cell.played_as.tolist()):
        at, there = FLEET.coordinates(rank), cell.topology.coordinates(played)
        assert {**at, "dp": 0} == {**there, "dp": 0}
        mates = [int(cell.played_as[mate]) for mate in FLEET.members(rank, "ep")]
        assert mates == list(cell.topology.members(played, "ep"))
        for fault, own in zip(faults, cell.faults.values(), strict=True):
            assert (rank in fault.ranks) == (played in own.ranks)


def test_a_small_job_is_played_as_it_is() -> None:
    """Where every replica is needed."""
    small = Topology(dp=4, tp=2, pp=2)
    assert cell_of(small, (slow(5),)).topology.dp == 4
    assert np.array_equal(np.sort(cell_of(small, (slow(5),)).played_as), np.arange(16))


def test_more_kinds_of_replicas_than_can_be_played_are_refused() -> None:
    """With their number, and what would help."""
    with pytest.raises(ArgusSimulatorError, match="64 replicas of 16 ranks that differ; allowed: 256 ranks"):
        cell_of(Topology(dp=64, tp=4, pp=4), [slow(4 * place) for place in range(64)])
