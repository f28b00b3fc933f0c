"""The part of a fleet that is played: of replicas that are alike some are played and stand for the others.

A replica is all that one index of data parallelism holds, or the block of them that shares its experts. Two
are alike where the same faults hit the same places. A collective ends with its latest member however many
there are, so that a slow replica costs its peers in a small job what it costs them in a large one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_simulator.engine.faults import Fault
from argus_simulator.engine.plan import Ints
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.lab.scenario import RANKS_LIMIT
from argus_simulator.topology import Topology

_RANKS: Final = 16
"""So many of a kind are played, in whole replicas and two at least, where there are as many: peers differ."""


@dataclass(frozen=True)
class Cell:
    """A small job that stands for a fleet.

    Attributes:
        topology, faults: of the small job.
        played_as: its rank for each rank of the fleet, shape (ranks,).
    """

    topology: Topology
    faults: dict[str, Fault]
    played_as: Ints


def cell_of(fleet: Topology, faults: Sequence[Fault]) -> Cell:
    """The smallest job that has every kind of replica of a fleet.

    Raises:
        ArgusSimulatorError: there are more kinds than can be played.
    """
    ranks = np.arange(fleet.ranks)
    at_dp, at_tp, at_pp = ranks // fleet.tp % fleet.dp, ranks % fleet.tp, ranks // (fleet.tp * fleet.dp)
    hit = np.array([np.isin(ranks, fault.ranks) for fault in faults], bool).reshape(len(faults), fleet.ranks)
    # (replica, fault x place in it): rows that are equal are alike
    by_replica = hit.reshape(len(faults), fleet.pp, fleet.dp // fleet.ep, fleet.ep * fleet.tp)
    kinds = by_replica.transpose(2, 0, 1, 3).reshape(fleet.dp // fleet.ep, -1)
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    size = fleet.ranks * fleet.ep // fleet.dp
    most = max(2, _RANKS // size)
    played: dict[tuple[int, int], int] = {}
    seen = [0] * len(kinds)
    replica = np.array(
        [played.setdefault((one, _next(seen, one, most)), len(played)) for one in kind.reshape(-1).tolist()]
    )
    if len(played) * size > RANKS_LIMIT:
        raise ArgusSimulatorError(
            f"the faults make {len(played)} replicas of {size} ranks that differ; allowed: {RANKS_LIMIT}"
            " ranks in all: let faults hit fewer replicas, or larger parts of the job alike"
        )
    small = dataclasses.replace(fleet, dp=len(played) * fleet.ep)
    dp = replica[at_dp // fleet.ep] * fleet.ep + at_dp % fleet.ep
    played_as: Ints = (at_pp * small.dp + dp) * fleet.tp + at_tp
    own = {
        f"fault{number}": dataclasses.replace(fault, ranks=tuple(np.unique(played_as[members]).tolist()))
        for number, (fault, members) in enumerate(zip(faults, hit, strict=True))
    }
    return Cell(small, own, played_as)


def _next(seen: list[int], kind: int, most: int) -> int:
    """Number of the next replica of a kind: they take turns."""
    seen[kind] += 1
    return (seen[kind] - 1) % most
