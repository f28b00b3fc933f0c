"""What is wrong in a simulated timeline."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Literal

PauseKind = Literal["gc", "compile", "silent"]


@dataclass(frozen=True)
class SlowKernels:
    """Kernels (glob on the name) in some phases (glob) of some ranks take `factor` times as long."""

    ranks: frozenset[int]
    factor: float
    kernels: str = "*"
    phases: str = "*"
    steps: frozenset[int] | None = None

    def applies(self, rank: int, step: int, phase: str, kernel: str) -> bool:
        return (
            rank in self.ranks
            and (self.steps is None or step in self.steps)
            and fnmatch.fnmatchcase(phase, self.phases)
            and fnmatch.fnmatchcase(kernel, self.kernels)
        )


@dataclass(frozen=True)
class SlowLink:
    """The transfers of one process group take `factor` times as long."""

    group: str
    factor: float
    steps: frozenset[int] | None = None


@dataclass(frozen=True)
class Pause:
    """The launching thread stands still before the launch at `position` (share of the step's launches).

    kind: `gc` and `compile` leave a slice as the collector thread reports them, `silent` leaves none.
    """

    rank: int
    step: int
    position: float
    seconds: float
    kind: PauseKind


@dataclass(frozen=True)
class SlowLaunch:
    """Each launch of a rank costs `factor` times as much host time."""

    rank: int
    factor: float
    steps: frozenset[int] | None = None


@dataclass(frozen=True)
class SlowData:
    """The rank waits so much longer for its batch."""

    rank: int
    seconds: float
    steps: frozenset[int] | None = None


Fault = SlowKernels | SlowLink | Pause | SlowLaunch | SlowData


@dataclass(frozen=True)
class Truth:
    """What caused the loss: nothing, ranks, or a process group. Never written into a trace.

    causes: names as in verdicts; any of them is right.
    """

    causes: tuple[str, ...] = ()
    ranks: frozenset[int] = frozenset()
    group: str = ""

    @property
    def healthy(self) -> bool:
        return not self.causes
