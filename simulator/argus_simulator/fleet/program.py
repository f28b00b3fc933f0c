"""One training step of a fleet, phase by phase, with its healthy cost.

A phase-level view of the job that `run` plays kernel by kernel: the same phases and kernels. A pipeline is
seen through what its stages wait: in the steady state of 1F1B all stages have the period of the slowest, so
a step's sends and receives end together along the pipeline, as a collective does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from argus_simulator.fleet.ranks import Dimension, Layout


@dataclass(frozen=True)
class FleetPhase:
    """A phase of the step. `share`: of the healthy step; `along`: the group whose members leave together."""

    name: str
    kind: str
    source: str
    share: float
    along: Dimension | None = None


DATA: Final = FleetPhase("data", "host", "host", 0.06)
FORWARD: Final = FleetPhase("forward", "compute", "event", 0.24)
BACKWARD: Final = FleetPhase("backward", "compute", "event", 0.40)
OPTIMIZER: Final = FleetPhase("optimizer", "compute", "event", 0.08)
TP_ALL_REDUCE: Final = FleetPhase("tp-all-reduce", "comm", "event", 0.03, "tp")
EP_DISPATCH: Final = FleetPhase("ep-dispatch", "comm", "event", 0.03, "ep")
PP_RECEIVE: Final = FleetPhase("pp-forward-recv", "comm", "event", 0.02, "pp")
DP_ALL_REDUCE: Final = FleetPhase("dp-all-reduce", "comm", "event", 0.10, "dp")
GAP: Final = FleetPhase("", "host", "host", 0.01)
"""Host time before the gradient all-reduce that no phase covers."""

ALL: Final = (
    DATA,
    FORWARD,
    BACKWARD,
    OPTIMIZER,
    TP_ALL_REDUCE,
    EP_DISPATCH,
    PP_RECEIVE,
    DP_ALL_REDUCE,
)


def step_phases(layout: Layout) -> tuple[FleetPhase, ...]:
    """What every rank does in a step, in order."""
    tp = (TP_ALL_REDUCE,) if layout.tp > 1 else ()
    ep = (EP_DISPATCH,) if layout.ep > 1 else ()
    pp = (PP_RECEIVE,) if layout.pp > 1 else ()
    return (DATA, FORWARD, *tp, *ep, *pp, BACKWARD, *tp, GAP, DP_ALL_REDUCE, OPTIMIZER)


def distinct_phases(layout: Layout) -> tuple[FleetPhase, ...]:
    """Phases that are reported, each once."""
    return tuple(phase for phase in dict.fromkeys(step_phases(layout)) if phase is not GAP)
