"""Faults: what is wrong with one rank, from which step on.

A fault is one of three: a phase takes `factor` times as long, the kernels that match a glob do, or the rank
idles before its gradient all-reduce where no phase looks (`late_seconds`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from argus_core.settings import setting
from argus_simulator import kernels
from argus_simulator.noise import Floats

FaultPhase = Literal["data", "forward", "backward", "optimizer"]
FAULT_PHASES: tuple[FaultPhase, ...] = get_args(FaultPhase)


@dataclass(frozen=True)
class Fault:
    """One fault of a scenario."""

    rank: int = setting(-1, "the rank that is slow")
    phase: FaultPhase | None = setting(None, "the phase that takes `factor` times as long")
    kernels: str | None = setting(None, "glob on full kernel names: these take `factor` times as long")
    factor: float = setting(1.0, "how many times as long, 1 or more; 1: healthy")
    late_seconds: float = setting(
        0.0, "idle time before the gradient all-reduce that no phase covers, each step"
    )
    onset_step: int = setting(0, "first slow step")
    end_step: int | None = setting(None, "first healthy step again; none: stays slow")

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(
                f"rank is {self.rank}; allowed: a rank of the topology, 0 or more (it has no default)"
            )
        if not 1 <= self.factor <= 1000:
            raise ValueError(f"factor is {self.factor!r}; allowed: 1 to 1000")
        if not 0 <= self.late_seconds <= 60:
            raise ValueError(f"late_seconds is {self.late_seconds!r}; allowed: 0 to 60")
        if self.onset_step < 0:
            raise ValueError(f"onset_step is {self.onset_step}; allowed: 0 or more")
        if self.end_step is not None and self.end_step <= self.onset_step:
            raise ValueError(f"end_step is {self.end_step}; allowed: above onset_step ({self.onset_step})")
        if [self.phase is not None, self.kernels is not None, self.late_seconds > 0].count(True) != 1:
            raise ValueError("phase: give exactly one of phase, kernels and late_seconds")
        if self.late_seconds > 0 and self.factor != 1:
            raise ValueError("factor: late_seconds stands alone; leave factor out")
        if self.kernels is not None and not any(
            plan.matching(self.kernels).any() for plan in kernels.PLANS.values()
        ):
            raise ValueError(f"kernels is {self.kernels!r}, which matches no simulated kernel")

    def active(self, step: int) -> bool:
        return step >= self.onset_step and (self.end_step is None or step < self.end_step)


@dataclass(frozen=True)
class Damage:
    """What all active faults do to one rank in one step."""

    faults: tuple[Fault, ...]

    def host_factor(self, phase: str) -> float:
        """Multiplier of a phase that the host spends."""
        return math.prod(fault.factor for fault in self.faults if fault.phase == phase)

    def kernel_factors(self, phase: str, plan: kernels.KernelPlan) -> Floats:
        """Multipliers of the phase's launches, shape (launches,)."""
        factors = np.ones(len(plan.kind_of_launch))
        for fault in self.faults:
            if fault.phase == phase:
                factors *= fault.factor
            elif fault.kernels is not None:
                factors[plan.matching(fault.kernels)] *= fault.factor
        return factors

    @property
    def late_seconds(self) -> float:
        return sum(fault.late_seconds for fault in self.faults)


def damage(faults: tuple[Fault, ...], rank: int, step: int) -> Damage:
    return Damage(tuple(fault for fault in faults if fault.rank == rank and fault.active(step)))
