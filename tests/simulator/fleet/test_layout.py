"""Where the ranks of a fleet sit, compared with the lab's topology and the exporter's own groups."""

from __future__ import annotations

import numpy as np
import pytest

from argus_exporter.place.topology import Identity, default_role, group_along
from argus_simulator.fleet.ranks import Layout
from argus_simulator.topology import Topology

LAYOUT = Layout(dp=4, tp=2, pp=3, ep=2)


def identity(rank: int) -> Identity:
    sizes = {"dp": 4, "tp": 2, "pp": 3, "ep": 2}
    return Identity(
        "fleet",
        rank,
        coordinates={name: int(values[rank]) for name, values in LAYOUT.coordinates.items()},
        sizes=sizes,
    )


def test_coordinates_are_those_of_the_lab() -> None:
    """Rank by rank the same place as in the topology that `run` plays."""
    topology = Topology(dp=4, tp=2, pp=3)
    for rank in range(LAYOUT.ranks):
        place = {name: int(LAYOUT.coordinates[name][rank]) for name in ("dp", "tp", "pp")}
        assert place == {name: topology.coordinates(rank)[name] for name in ("dp", "tp", "pp")}


@pytest.mark.parametrize("dimension", ["dp", "tp", "pp", "ep"])
def test_groups_have_the_names_that_the_exporter_gives(dimension: str) -> None:
    """A rule that works on scraped series works on a fleet: the group label is the same."""
    names = LAYOUT.groups(dimension)  # type: ignore[arg-type]

    assert names == [group_along(identity(rank), dimension).name for rank in range(LAYOUT.ranks)]


@pytest.mark.parametrize("dimension", ["dp", "tp", "pp", "ep"])
def test_a_group_shares_its_last_arrival(dimension: str) -> None:
    """The largest value of the members reaches all members, and nobody else."""
    values = np.arange(LAYOUT.ranks, dtype=float)
    names = LAYOUT.groups(dimension)  # type: ignore[arg-type]

    spread = LAYOUT.last_of_group(values, dimension)  # type: ignore[arg-type]

    for rank, name in enumerate(names):
        assert spread[rank] == max(value for value, other in zip(values, names, strict=True) if other == name)


def test_roles_are_those_of_the_exporter() -> None:
    """Ranks with the same pipeline and tensor index run the same kernels."""
    assert LAYOUT.roles == [default_role(identity(rank).coordinates) for rank in range(LAYOUT.ranks)]


@pytest.mark.parametrize(
    ("ranks", "ep", "message"),
    [
        (10, 1, "10 ranks do not divide into tp 2 x pp 2; allowed: multiples of 4"),
        (12, 2, r"ep is 2; allowed: a divisor of dp \(3\)"),
        (4_000_000, 1, "are 4000000 ranks; allowed: 200000"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(ranks: int, ep: int, message: str) -> None:
    """With the value and what is allowed."""
    with pytest.raises(ValueError, match=message):
        Layout.of_ranks(ranks, tp=2, pp=2, ep=ep, ranks_per_host=8)
