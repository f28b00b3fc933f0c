"""The operations of one training step, in the order in which a rank runs them, with their healthy cost.

Data- and tensor-parallel jobs run one program on every rank. A pipeline would give each stage a program of
its own (1F1B); until then `pp` must be 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from argus_core.wire import Kind, Source
from argus_simulator.topology import Dimension, Topology

UNOBSERVED = ""
"""Label of host time that no phase covers."""


@dataclass(frozen=True)
class Phase:
    """A phase of the step. `share`: of the healthy step time. `along`: the process group of a collective."""

    name: str
    kind: Kind
    source: Source
    share: float
    along: Dimension | None = None


DATA = Phase("data", Kind.HOST, Source.HOST, 0.10)
FORWARD = Phase("forward", Kind.COMPUTE, Source.EVENT, 0.24)
BACKWARD = Phase("backward", Kind.COMPUTE, Source.EVENT, 0.39)
TP_ALL_REDUCE = Phase("tp-all-reduce", Kind.COMM, Source.EVENT, 0.03, "tp")
GAP = Phase(UNOBSERVED, Kind.HOST, Source.HOST, 0.01)
DP_ALL_REDUCE = Phase("dp-all-reduce", Kind.COMM, Source.EVENT, 0.16, "dp")
OPTIMIZER = Phase("optimizer", Kind.COMPUTE, Source.EVENT, 0.10)


def step_phases(topology: Topology) -> tuple[Phase, ...]:
    """The program of every rank."""
    if topology.tp > 1:
        return (DATA, FORWARD, TP_ALL_REDUCE, BACKWARD, TP_ALL_REDUCE, GAP, DP_ALL_REDUCE, OPTIMIZER)
    return (DATA, FORWARD, BACKWARD, GAP, DP_ALL_REDUCE, OPTIMIZER)
