"""Scenario files: a job and its faults in YAML, refused with the file, the key and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from argus_core.settings import SettingsError, load, section, setting
from argus_simulator.faults import Fault
from argus_simulator.job import Job, JobShape
from argus_simulator.noise import NoiseLevels
from argus_simulator.topology import Topology

_RANKS_LIMIT = 256
"""One connection a rank from one process; more needs a player per host."""


@dataclass(frozen=True)
class TopologySettings:
    dp: int = setting(8, "data-parallel replicas")
    tp: int = setting(1, "tensor-parallel ranks of a replica")
    pp: int = setting(1, "pipeline stages; only 1 can be simulated so far")
    ranks_per_host: int = setting(8, "ranks on one (simulated) host")

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "ranks_per_host"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; allowed: 1 or more")
        if self.pp != 1:
            raise ValueError(f"pp is {self.pp}; allowed: 1 (pipelines are not simulated yet)")
        if self.dp * self.tp > _RANKS_LIMIT:
            raise ValueError(
                f"dp is {self.dp} and tp {self.tp}; allowed: at most {_RANKS_LIMIT} ranks together"
            )


@dataclass(frozen=True)
class NoiseSettings:
    step_cv: float = setting(0.01, "coefficient of variation of a rank's phase from step to step")
    kernel_cv: float = setting(0.03, "coefficient of variation of a kernel within one mode")
    outlier_probability: float = setting(0.003, "share of kernels (and of phases) that are outliers")
    outlier_factor: float = setting(5.0, "largest outlier, as a multiple of the usual duration")

    def __post_init__(self) -> None:
        for name in ("step_cv", "kernel_cv"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value!r}; allowed: 0 to 1")
        if not 0 <= self.outlier_probability <= 0.1:
            raise ValueError(f"outlier_probability is {self.outlier_probability!r}; allowed: 0 to 0.1")
        if not 1 <= self.outlier_factor <= 100:
            raise ValueError(f"outlier_factor is {self.outlier_factor!r}; allowed: 1 to 100")


@dataclass(frozen=True)
class Scenario:
    """The whole file."""

    training_job: str = setting("simulated", "name of the job, at most 64 bytes")
    seed: int = setting(0, "of all noise; --seed overrides it")
    duration_seconds: float = setting(120.0, "how long the job runs; --duration overrides it")
    step_seconds: float = setting(0.25, "healthy step time")
    topology: TopologySettings = section(TopologySettings, "parallel dimensions")
    noise: NoiseSettings = section(NoiseSettings, "how much durations vary")
    faults: dict[str, Fault] = setting({}, "faults by a name of your choice; none: a healthy job")

    def __post_init__(self) -> None:
        if not 0 < len(self.training_job.encode()) <= 64:
            raise ValueError(f"training_job is {self.training_job!r}; allowed: 1 to 64 bytes")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; allowed: 0 or more")
        if not 0 < self.duration_seconds <= 7 * 86400:
            raise ValueError(
                f"duration_seconds is {self.duration_seconds!r}; allowed: above 0, at most 7 days"
            )
        if not 0.02 <= self.step_seconds <= 600:
            raise ValueError(f"step_seconds is {self.step_seconds!r}; allowed: 0.02 to 600")
        ranks = self.topology.dp * self.topology.tp
        for name, fault in self.faults.items():
            if fault.rank >= ranks:
                raise ValueError(f"faults.{name}.rank is {fault.rank}; allowed: 0 to {ranks - 1}")

    @property
    def shape(self) -> JobShape:
        at, noise = self.topology, self.noise
        return JobShape(
            Topology(at.dp, at.tp, at.pp, at.ranks_per_host),
            self.step_seconds,
            NoiseLevels(noise.step_cv, noise.kernel_cv, noise.outlier_probability, noise.outlier_factor),
        )

    def job(self) -> Job:
        return Job(self.shape, tuple(self.faults.values()), self.seed)


def shipped() -> tuple[str, ...]:
    """Names of the scenarios that come with the package."""
    folder = resources.files("argus_simulator") / "scenarios"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_scenario(name: str) -> Scenario:
    """A scenario from a file, or a shipped one by its name.

    Raises:
        SettingsError: no such file, or its content is not usable.
    """
    if name in shipped():
        with resources.as_file(resources.files("argus_simulator") / "scenarios" / f"{name}.yaml") as path:
            return load(Scenario, path)
    if not Path(name).exists():
        raise SettingsError(
            f"{name}: no such scenario; name a YAML file or one of the shipped: {', '.join(shipped())}"
        )
    return load(Scenario, Path(name))
