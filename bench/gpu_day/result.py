"""What a step leaves behind: one JSON file, whose outcome follows from what was measured alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Outcome = Literal["ok", "failed", "not run"]
STATUS: Final[dict[Outcome, int]] = {"ok": 0, "failed": 1, "not run": 3}
"""Exit status of a run of one step; 2 is a wrong command line."""
WORST_FIRST: Final[tuple[Outcome, ...]] = ("failed", "not run", "ok")
Decision = tuple[float | None, str, bool]
"""Value, limit and whether it holds."""


class NotRun(Exception):
    """What the step measures is not here: a GPU, a package, a part of the product."""


@dataclass(frozen=True)
class Limit:
    """A gate: what a measured number must not exceed, must reach, or must be.

    Attributes:
        on_stand_ins: whether it holds for the stand-ins of a dry run too. What the hardware alone
            decides, such as a share of step time, does not.
    """

    relation: Literal["<=", ">=", "=="]
    bound: float
    on_stand_ins: bool = True

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"

    def decide(self, value: object) -> Decision:
        """A value that is missing or no finite number holds no gate."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None, str(self), False
        holds = {"<=": value <= self.bound, ">=": value >= self.bound, "==": value == self.bound}
        return float(value), str(self), holds[self.relation]


@dataclass(frozen=True)
class Machine:
    """Where it ran. `gpu` is None where there is none."""

    gpu: str | None
    driver: str | None
    cuda: str | None
    torch: str | None
    cpu: str


@dataclass(frozen=True)
class Result:
    """One `STEP.json`."""

    step: str
    commit: str
    machine: Machine
    started: str
    """UTC, ISO 8601."""
    seconds: float
    prediction: str
    outcome: Outcome
    why: str = ""
    """Empty where the outcome is ok."""
    measured: dict[str, Any] = field(default_factory=dict)
    gates: dict[str, Decision] = field(default_factory=dict)
    dry: dict[str, Any] | None = None
    """How far a dry run got, and what it saw of the stand-ins."""

    def write(self, folder: Path) -> Path:
        """Whole or not at all: a run that is cut off leaves the last result as it was."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.step}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=1, sort_keys=True, allow_nan=False) + "\n")
        new.replace(path)
        return path


def read(path: Path) -> Result | None:
    """A result as it was written; None where there is none or it is no result."""
    try:
        fields = json.loads(path.read_text())
        gates = {name: (value, limit, bool(ok)) for name, (value, limit, ok) in fields.pop("gates").items()}
        return Result(machine=Machine(**fields.pop("machine")), gates=gates, **fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def decide(
    measured: Mapping[str, object], limits: Mapping[str, Limit]
) -> tuple[Outcome, str, dict[str, Decision]]:
    """Outcome, reason and gates. A step without gates proves nothing, so it is never ok."""
    gates = {name: limit.decide(measured.get(name)) for name, limit in limits.items()}
    if not gates:
        return "failed", "the step has no gates", gates
    wrong = [
        f"{name} was not measured" if value is None else f"{name} is {value:g}, not {limit}"
        for name, (value, limit, ok) in gates.items()
        if not ok
    ]
    return ("failed" if wrong else "ok"), "; ".join(wrong), gates


def plain(value: object) -> Any:
    """`value` as JSON can hold it: numpy's numbers as Python's, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    item = getattr(value, "item", None)
    return plain(item()) if callable(item) else value
