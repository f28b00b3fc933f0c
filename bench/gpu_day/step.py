"""A step of the day, and what its module is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.gpu_day.result import Limit

LONGEST_S: Final = 480.0
"""No step may take longer: a machine that is lent ends a command after ten minutes."""
TURNS_S: Final = 270.0
"""Of a step on overhead, where nothing else is asked for."""


@dataclass(frozen=True)
class Step:
    """One line of the list.

    Attributes:
        module: has `run(day) -> measured`.
        proves: what an ok says.
        prediction: what is expected, written before it was ever measured.
        gates: limits by the name of the measured number that each is for.
        options: what the module is told, where several steps share it.
    """

    name: str
    module: str
    proves: str
    prediction: str
    gates: Mapping[str, Limit]
    limit_s: float = LONGEST_S
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Day:
    """What a step's module works with.

    Attributes:
        dry: with CPU torch and the stand-ins for CUDA and CUPTI.
        folder: where results go; fixtures lie in its folder `fixtures`.
        work: an empty folder of the step's own, which goes away with it.
        stand_ins: folder of the fake libcuda and libcupti; only in a dry run.
        turns_s: what turns of a step on overhead may take; starting its processes takes longer.
    """

    step: Step
    dry: bool
    folder: Path
    work: Path
    stand_ins: Path | None = None
    turns_s: float = TURNS_S
    reached: list[str] = field(default_factory=list)

    def reach(self, what: str) -> None:
        """Note how far the step got."""
        print(f"gpu-day: {self.step.name}: {what}", flush=True)
        self.reached.append(what)

    @property
    def fixtures(self) -> Path:
        """Where fixtures are kept; those of a dry run go away with it."""
        path = (self.work if self.dry else self.folder) / "fixtures"
        path.mkdir(parents=True, exist_ok=True)
        return path
