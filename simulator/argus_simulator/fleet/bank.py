"""Kernel windows of a sample of ranks, clustered by the exporter's own code; all other ranks draw from them.

For each (kernel, stream) pair the events of one window are played on some ranks and given to
`argus_core.modes.find_modes`, as an exporter does. A rank's window is one of these, scaled by what is wrong
with the rank: sampling noise, wrong mode counts and outliers are those of the real compressor, and 100,000
ranks cost no more clustering than 64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from argus_core.kernel_names import kernel_id
from argus_core.modes import Modes, find_modes
from argus_simulator.fleet import program
from argus_simulator.fleet.kernel_table import COLLECTIVES, PLANS, KernelKind
from argus_simulator.fleet.ranks import Floats, Layout

SAMPLE: Final = 64
"""Ranks that are clustered."""
KERNEL_CV: Final = 0.03
STEP_CV: Final = 0.01
OUTLIER_SHARE: Final = 0.003
_OUTLIER_FACTOR: Final = 5.0
_BUSY_SHARE: Final = 0.92
"""Share of a healthy compute phase in which a kernel runs; the rest is launch gaps."""
_COPY_SHARE: Final = 0.3
"""Share of the data phase that the copy to the GPU takes."""


@dataclass(frozen=True)
class Pair:
    """One (kernel, stream) of every rank: what it takes in a healthy step, and its clustered windows.

    Attributes:
        name: full name of the kernel.
        phase: phase it runs in; a collective's own.
        collective: its durations are those of the phase on the rank.
        launches: a step.
        step_seconds: in a healthy step; of a collective: 0, as its phase says.
        modes: (events, p50, p99) of the sampled windows, shape (SAMPLE, modes, 3): seconds, or of a
            collective relative to the window's mean; no events where a window has fewer modes.
        tail: events outside every mode, shape (SAMPLE,).
    """

    name: str
    stream: str
    phase: program.FleetPhase
    collective: bool
    launches: int
    step_seconds: float
    modes: Floats
    tail: Floats

    @property
    def id(self) -> str:
        return kernel_id(self.name)


@lru_cache
def kernel_names() -> tuple[str, ...]:
    """Full names of all kernels that a rank may run."""
    return tuple(kind.name for plan in PLANS.values() for kind in plan.kinds)


def bank(layout: Layout, step_seconds: float, window_steps: int, rng: np.random.Generator) -> list[Pair]:
    """All pairs of a rank, compute first."""
    pairs: list[Pair] = []
    for phase in program.distinct_phases(layout):
        if phase.name in COLLECTIVES:
            pairs.append(_collective(phase, program.step_phases(layout).count(phase), window_steps, rng))
            continue
        kinds = PLANS[phase.name].kinds
        total = sum(kind.share for kind in kinds)
        used = _COPY_SHARE if phase is program.DATA else _BUSY_SHARE
        pairs += [
            _compute(kind, phase, phase.share * step_seconds * used * kind.share / total, window_steps, rng)
            for kind in kinds
        ]
    return pairs


def _compute(
    kind: KernelKind,
    phase: program.FleetPhase,
    seconds: float,
    window_steps: int,
    rng: np.random.Generator,
) -> Pair:
    relative = np.array([kind.modes[launch % len(kind.modes)] for launch in range(kind.launches)])
    healthy = seconds * relative / relative.sum()
    found = [find_modes(_events(healthy, window_steps, rng)) for _ in range(SAMPLE)]
    table, tail = _table(found, [1.0] * SAMPLE)
    return Pair(kind.name, kind.stream, phase, False, kind.launches, seconds, table, tail)


def _collective(
    phase: program.FleetPhase, launches: int, window_steps: int, rng: np.random.Generator
) -> Pair:
    """Transfer and wait vary by step; the mean follows what the phase takes on a rank."""
    found, means = [], []
    for _ in range(SAMPLE):
        durations = np.exp(0.04 * rng.standard_normal(window_steps * launches)) + 0.2 * rng.random(
            window_steps * launches
        )
        found.append(find_modes(durations))
        means.append(float(durations.mean()))
    table, tail = _table(found, means)
    assert phase.along is not None
    return Pair(COLLECTIVES[phase.name], f"nccl:{phase.along}", phase, True, launches, 0.0, table, tail)


def _events(healthy: Floats, window_steps: int, rng: np.random.Generator) -> Floats:
    """Durations of one rank in one window: log-normal bodies, drifting from step to step, rare outliers."""
    shape = (window_steps, len(healthy))
    sigma = math.sqrt(math.log1p(KERNEL_CV**2))
    step = np.exp(STEP_CV * rng.standard_normal((window_steps, 1)))
    durations = (healthy * step * np.exp(sigma * rng.standard_normal(shape))).reshape(-1)
    hit = rng.random(durations.size) < OUTLIER_SHARE
    durations[hit] *= 1 + rng.random(int(hit.sum())) * (_OUTLIER_FACTOR - 1)
    return durations


def _table(found: Sequence[Modes], scale: Sequence[float]) -> tuple[Floats, Floats]:
    """Modes by id, as the exporter's tracking gives them: a mode keeps its number by its median."""
    typical = max((modes.modes for modes in found), key=lambda modes: _commonness(found, len(modes)))
    medians = np.log([mode.p50 for mode in typical])
    width = max(len(modes.modes) for modes in found)
    table = np.zeros((len(found), max(width, len(typical)), 3))
    for row, (modes, by) in enumerate(zip(found, scale, strict=True)):
        ids = list(range(len(modes.modes)))
        if len(modes.modes) < len(typical):
            near = [int(np.abs(medians - math.log(mode.p50)).argmin()) for mode in modes.modes]
            ids = near if len(set(near)) == len(near) else ids
        for number, mode in zip(ids, modes.modes, strict=True):
            table[row, number] = mode.count, mode.p50 / by, mode.p99 / by
    return table, np.array([modes.tail_events for modes in found], float)


def _commonness(found: Sequence[Modes], count: int) -> int:
    return sum(len(modes.modes) == count for modes in found)
