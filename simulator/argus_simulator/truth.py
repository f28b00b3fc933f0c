"""Ground truth: what a perfect detector would say. Kept apart from everything that is sent.

Only the judge of a run (the demo's last line, a test) may read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from argus_simulator import schedule
from argus_simulator.faults import Fault


@dataclass(frozen=True)
class Accusation:
    """An alert that names a culprit."""

    alert: str
    rank: str
    phase: str
    team: str


@dataclass(frozen=True)
class Truth:
    """What one fault is, and the accusation that should come of it."""

    fault: str
    rank: int
    factor: float
    late_seconds: float
    onset_step: int
    end_step: int | None
    expected: Accusation
    also_true: tuple[str, ...]
    """Alerts that may name the same rank as well, because they see the same fault by another channel."""


def truth_of(name: str, fault: Fault) -> Truth:
    rank = str(fault.rank)
    also: tuple[str, ...] = ()
    if fault.phase == schedule.DATA.name:
        expected = Accusation("ArgusHostStall", rank, fault.phase, "algorithm")
    elif fault.phase is not None:
        expected = Accusation("ArgusStragglerRank", rank, fault.phase, "operations")
        also = ("ArgusKernelDegraded",)
    elif fault.kernels is not None:
        expected = Accusation("ArgusKernelDegraded", rank, "", "operations")
        also = ("ArgusStragglerRank",)
    else:
        expected = Accusation("ArgusCollectiveLateRank", rank, schedule.DP_ALL_REDUCE.name, "operations")
    return Truth(
        name, fault.rank, fault.factor, fault.late_seconds, fault.onset_step, fault.end_step, expected, also
    )


def write_truth(path: Path, faults: Mapping[str, Fault]) -> None:
    """One JSON document: the truth of every fault."""
    path.write_text(json.dumps([asdict(truth_of(*item)) for item in faults.items()], indent=2) + "\n")
