"""Jobs that several test files play."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import Job, JobShape, JobStep
from argus_simulator.engine.settings import HostSettings, ModelSettings, NoiseSettings
from argus_simulator.topology import Topology

TOPOLOGIES = [
    Topology(dp=4),
    Topology(dp=4, tp=2),
    Topology(dp=2, tp=2, pp=2, ranks_per_host=4),
    Topology(dp=2, pp=4),
    Topology(dp=8, ep=4),
    Topology(dp=4, pp=2, ep=2),
]
QUIET = NoiseSettings(
    step_cv=0, kernel_cv=0, rank_cv=0, host_cv=0, body_cv=0, launch_cv=0, loader_cv=0, outlier_probability=0
)
ROUGH = NoiseSettings(kernel_cv=0.1, outlier_probability=0.02, outlier_factor=10)
STEP_S = 0.5


def shape(
    topology: Topology, noise: NoiseSettings = ROUGH, model: ModelSettings | None = None, **host: float
) -> JobShape:
    settings = HostSettings(**{"gc_chance": 0.0 if noise is QUIET else 0.05, **host})  # type: ignore[arg-type]
    return JobShape(topology, STEP_S, model or ModelSettings(), settings, noise)


def play(
    topology: Topology, faults: Sequence[Fault] = (), *, seed: int = 1, steps: int = 5,
    noise: NoiseSettings = ROUGH, streams: Sequence[int] | None = None, model: ModelSettings | None = None,
    **host: float,
) -> list[JobStep]:  # fmt: skip
    job = Job(shape(topology, noise, model, **host), faults, seed, streams)
    return [job.next_step() for _ in range(steps)]


def ends(steps: Sequence[JobStep]) -> np.ndarray:
    """When each rank ends each step, ns, shape (steps, ranks)."""
    return np.array([step.end_ns for step in steps])


def same(first: Sequence[JobStep], second: Sequence[JobStep]) -> bool:
    """Every byte that would be sent is equal."""
    return all(
        one.kernels.tobytes() == other.kernels.tobytes()
        and one.spans.tobytes() == other.spans.tobytes()
        and one.end_ns.tobytes() == other.end_ns.tobytes()
        and one.pauses == other.pauses
        for one, other in zip(first, second, strict=True)
    )


def phase_ns(step: JobStep, rank: int, phase: str) -> int:
    """Time of all spans of a phase, ns."""
    spans = step.spans_of(rank)
    return int(spans["duration_ns"][spans["phase_id"] == step.plan.span_texts.index(phase) + 1].sum())
