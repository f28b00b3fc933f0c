"""What a healthy job is: its steps, its host threads, its clocks, and how much all of it varies."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from argus_core.settings import setting
from argus_simulator.contract import LEVELS
from argus_simulator.engine.framework_hooks import FRAMEWORKS


@dataclass(frozen=True)
class ModelSettings:
    microbatches: int = setting(4, "microbatches a step and replica")
    layers: int = setting(2, "layers of a pipeline stage")
    overlap: bool = setting(True, "gradients travel while the backward pass goes on")
    communication: float = setting(1.0, "length of all transfers, as a multiple of the usual")
    loader_share: float = setting(0.04, "wait for data at the start of a step, as a share of the step")
    signals: str = setting(
        "kernels", "what the producers send: hooks (as those of torch and Megatron-LM, no kernels), "
        "kernels (and kernels) or nccl (and what NCCL's plugin tells)"
    )  # fmt: skip

    framework: str = setting(
        "", f"{', '.join(FRAMEWORKS)}; empty: ddp where there is dp alone, else megatron"
    )
    backward: float = setting(2.0, "length of a backward pass, as a multiple of the forward")
    optimizer: float = setting(1.0, "length of the optimizer's step, as a multiple of the usual")

    def __post_init__(self) -> None:
        if self.framework and self.framework not in FRAMEWORKS:
            raise ValueError(f"framework is {self.framework!r}; allowed: {', '.join(FRAMEWORKS)}")
        _in("microbatches", self.microbatches, 1, 64)
        _in("layers", self.layers, 1, 16)
        _in("communication", self.communication, 0.001, 100)
        _in("backward", self.backward, 0.1, 10)
        _in("optimizer", self.optimizer, 0.01, 100)
        _in("loader_share", self.loader_share, 0, 0.9)
        if self.signals not in LEVELS:
            raise ValueError(f"signals is {self.signals!r}; allowed: {', '.join(LEVELS)}")


@dataclass(frozen=True)
class HostSettings:
    launch_share: float = setting(0.13, "time to launch all kernels of a step, as a share of the step")
    queue: int = setting(1024, "launches that may wait on the device before the host has to")
    launches: int = setting(1400, "launches of a real step that the simulated ones stand for")
    gc_chance: float = setting(0.05, "probability of a small garbage collection in a rank's step")
    stack_hertz: float = setting(10.0, "call stacks a second; 0: none are sampled")

    def __post_init__(self) -> None:
        _in("launch_share", self.launch_share, 0, 0.95)
        _in("queue", self.queue, 1, 1 << 20)
        _in("launches", self.launches, 1, 1 << 20)
        _in("gc_chance", self.gc_chance, 0, 1)
        _in("stack_hertz", self.stack_hertz, 0, 100)


@dataclass(frozen=True)
class ClockSettings:
    offset_seconds: float = setting(0.01, "each host's clock is off by up to so much")
    drift_ppm: float = setting(20.0, "and drifts by up to so many parts per million")
    quantum_ns: int = setting(32, "GPU time stamps are multiples of this")

    def __post_init__(self) -> None:
        _in("offset_seconds", self.offset_seconds, 0, 10)
        _in("drift_ppm", self.drift_ppm, 0, 1000)
        _in("quantum_ns", self.quantum_ns, 1, 1_000_000)


@dataclass(frozen=True)
class NoiseSettings:
    """How much healthy durations vary.

    Measured on public traces of V100s (ResNet-50, 140 kernels by grid, n >= 12, 50 us and more): deviation
    within one grid 0.4 to 2.3 % (p10, p90), 2 to 2.6 % of the events beyond 1.5 medians, the largest 3.9; of
    shorter kernels 14.5. Other public traces have 3 % and more, which is the default; medians of healthy
    ranks lie 0.3 to 3 % apart.
    """

    step_cv: float = setting(0.006, "deviation of a rank's computation from step to step")
    kernel_cv: float = setting(0.03, "deviation of a kernel within one mode")
    rank_cv: float = setting(0.004, "lasting difference between healthy GPUs")
    host_cv: float = setting(0.003, "lasting difference between healthy hosts")
    body_cv: float = setting(0.06, "deviation of a transfer")
    launch_cv: float = setting(0.25, "deviation of a launch's cost")
    loader_cv: float = setting(0.08, "deviation of the wait for data")
    autocorrelation: float = setting(0.3, "of a rank's steps")
    outlier_probability: float = setting(0.003, "share of kernels (and of transfers) that are outliers")
    outlier_factor: float = setting(5.0, "largest usual outlier, as a multiple of the usual duration")
    shape_cv: float = setting(0.0, "deviation of a microbatch's size, alike on all ranks of its replica")
    family: str = setting("lognormal", "lognormal or gamma")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name.endswith("_cv"):
                _in(field.name, getattr(self, field.name), 0, 1)
        _in("autocorrelation", self.autocorrelation, 0, 0.7)
        _in("outlier_probability", self.outlier_probability, 0, 0.1)
        _in("outlier_factor", self.outlier_factor, 1, 100)
        if self.family not in ("lognormal", "gamma"):
            raise ValueError(f"family is {self.family!r}; allowed: lognormal, gamma")


def _in(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; allowed: {low:g} to {high:g}")
