"""What the demo's judge expects: one accusation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

FaultPhase = Literal["data", "forward", "backward", "optimizer"]
FAULT_PHASES: tuple[FaultPhase, ...] = get_args(FaultPhase)


@dataclass(frozen=True)
class Accusation:
    """An alert that names a culprit."""

    alert: str
    rank: str
    cause: str
    team: str


@dataclass(frozen=True)
class Truth:
    """What is wrong, and the accusation that should come of it."""

    rank: int
    phase: FaultPhase
    factor: float
    onset_step: int
    expected: Accusation


def truth_of(rank: int, phase: FaultPhase, factor: float, onset_step: int = 0) -> Truth:
    """A slow loader is the host's, every other slow phase the GPU's."""
    if phase == "data":
        expected = Accusation("ArgusHostStall", str(rank), "data-input", "algorithm")
    else:
        expected = Accusation("ArgusStragglerRank", str(rank), "gpu-compute", "operations")
    return Truth(rank, phase, factor, onset_step, expected)
