"""How much of a stage is played: what it costs grows with that, and not with the fleet."""

from __future__ import annotations

import pytest
from bench.dashboard_stage import Size, scenario, topology_of

from argus_simulator.fleet.cell import cell_of
from argus_simulator.fleet.faults import parse_fault


@pytest.mark.parametrize("ranks", [64, 256, 1024, 10_240])
def test_few_ranks_are_played_of_any_stage(ranks: int) -> None:
    """The block of the slow GPU, that of the other faults, and two that are healthy."""
    topology = topology_of(ranks)
    faults = [parse_fault(one, topology, 15.0) for one in scenario(Size(ranks=ranks), topology)]
    assert cell_of(topology, faults).topology.ranks == 64
