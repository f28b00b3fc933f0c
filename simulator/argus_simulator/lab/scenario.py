"""Scenario files: a job, its faults and what is true of them, refused with file, key and what is allowed.

A file stands for several scenarios: `magnitudes` and `topologies` name settings that replace those of the
file. Which of them is played, and the seed, choose one scenario; the seed also chooses the ranks of `where`.
"""

from __future__ import annotations

import copy
import dataclasses
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from argus_core.settings import SettingsError, from_mapping, section, setting
from argus_simulator.engine.faults import KEYS, Fault
from argus_simulator.engine.job import Job, JobShape
from argus_simulator.engine.settings import ClockSettings, HostSettings, ModelSettings, NoiseSettings
from argus_simulator.lab.selection import choose_ranks
from argus_simulator.lab.truth import Truth, TruthSettings, resolve
from argus_simulator.topology import Topology

RANKS_LIMIT: Final = 256
"""One connection a rank from one process; more needs a player per host, or `argus-simulator fleet`."""
MAGNITUDES: Final = ("low", "mid", "high")
_WHERE_STREAM: Final = 0x5747
_FOLDERS: Final = ("", "faults", "controls")


@dataclass(frozen=True)
class TopologySettings:
    dp: int = setting(8, "data-parallel replicas")
    tp: int = setting(1, "tensor-parallel ranks of a replica")
    pp: int = setting(1, "pipeline stages")
    ep: int = setting(1, "expert-parallel ranks; lies inside dp")
    ranks_per_host: int = setting(8, "ranks on one (simulated) host")
    hosts_per_rack: int = setting(4, "hosts in one rack")
    gpu_models: tuple[str, ...] = setting((), "GPU models, dealt to hosts in turn; none: all alike")

    def __post_init__(self) -> None:
        self.build()
        if self.dp * self.tp * self.pp > RANKS_LIMIT:
            raise ValueError(
                f"dp is {self.dp}, tp {self.tp} and pp {self.pp}; allowed: {RANKS_LIMIT} ranks together"
            )

    def build(self) -> Topology:
        return Topology(
            self.dp, self.tp, self.pp, self.ranks_per_host, self.ep, self.hosts_per_rack, self.gpu_models
        )


@dataclass(frozen=True)
class Scenario:
    """One scenario: every fault has its ranks."""

    training_job: str = setting("simulated", "name of the job, at most 64 bytes")
    seed: int = setting(0, "of all noise, and of the ranks that `where` chooses; --seed overrides it")
    duration_seconds: float = setting(120.0, "how long the job runs; --duration overrides it")
    step_seconds: float = setting(0.25, "healthy step time")
    topology: TopologySettings = section(TopologySettings, "parallel dimensions, hosts and racks")
    model: ModelSettings = section(ModelSettings, "what a step consists of")
    host: HostSettings = section(HostSettings, "the thread that launches")
    clocks: ClockSettings = section(ClockSettings, "clocks of the hosts")
    noise: NoiseSettings = section(NoiseSettings, "how much durations vary")
    faults: dict[str, Fault] = setting({}, "faults by a name of your choice; none: a healthy job")
    truth_settings: TruthSettings = section(TruthSettings, "")

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
        first, *later = self.topologies
        for name, fault in self.faults.items():
            # What restarts is the job, whoever is there then.
            for topology in (first,) if fault.mechanism == "restart" else (first, *later):
                beyond = [rank for rank in fault.ranks if rank >= topology.ranks]
                if beyond:
                    after = "" if topology is first else ", as many as are left after a restart"
                    allowed = f"0 to {topology.ranks - 1}{after}"
                    raise ValueError(f"faults.{name}.ranks has {beyond[0]}; allowed: {allowed}")

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """Of the job, and of what it restarts as.

        Raises:
            ValueError: it cannot restart with so many replicas.
        """
        found = [self.topology.build()]
        for name, fault in self.faults.items():
            if fault.mechanism == "restart" and fault.dp:
                try:
                    settings = dataclasses.replace(self.topology, dp=fault.dp)
                except ValueError as error:
                    raise ValueError(f"faults.{name}.dp is {fault.dp}: {error}") from error
                found.append(settings.build())
        return tuple(found)

    @cached_property
    def truth(self) -> Truth:
        """For the judge alone; nothing that plays the job looks at it."""
        return resolve(self.truth_settings, self.faults, self.topology.build())

    @property
    def shape(self) -> JobShape:
        """The healthy job."""
        return JobShape(
            self.topology.build(), self.step_seconds, self.model, self.host, self.noise, self.clocks
        )

    def job(self) -> Job:
        """The job with its faults, at its first step.

        Raises:
            SettingsError: a fault is for phases that the job has none of.
        """
        try:
            return Job(self.shape, tuple(self.faults.values()), self.seed)
        except ValueError as error:
            raise SettingsError(f"faults: {error}") from error

    @property
    def scrape_gaps(self) -> tuple[tuple[int, int | None], ...]:
        """(first step, first step again) while nobody may scrape the exporter: for whoever runs the stack."""
        return tuple(
            (fault.onset_step, fault.end_step)
            for fault in self.faults.values()
            if fault.mechanism == "unscraped"
        )

    def compressed(self, speed: float) -> Scenario:
        """The same job `speed` times as fast: every duration is divided, steps and their samples stay."""
        faults = {
            name: dataclasses.replace(fault, seconds=fault.seconds / speed)
            if fault.mechanism not in ("clock",)
            else fault
            for name, fault in self.faults.items()
        }
        return dataclasses.replace(
            self,
            step_seconds=self.step_seconds / speed,
            duration_seconds=self.duration_seconds / speed,
            faults=faults,
        )


@dataclass(frozen=True)
class Variant:
    """One choice of a scenario file. Empty: the file as it stands."""

    magnitude: str = ""
    topology: str = ""


def shipped() -> tuple[str, ...]:
    """Names of the scenarios that come with the package: `healthy`, `faults/gpu-throttle`, `controls/...`."""
    root = resources.files("argus_simulator") / "scenarios"
    found = []
    for folder in _FOLDERS:
        names = [entry.name for entry in (root / folder if folder else root).iterdir()]
        found += [f"{folder}/{name[:-5]}".lstrip("/") for name in names if name.endswith(".yaml")]
    return tuple(sorted(found))


def variants(name: str) -> tuple[Variant, ...]:
    """Every (magnitude, topology) of a scenario file, in its order.

    Raises:
        SettingsError: no such file, or its content is not usable.
    """
    file = _read(name)
    return tuple(
        Variant(magnitude, topology)
        for topology in file.topologies or {"": {}}
        for magnitude in file.magnitudes or {"": {}}
    )


def load_scenario(
    name: str, *, seed: int | None = None, magnitude: str = "", topology: str = "", training_job: str = ""
) -> Scenario:
    """A scenario from a file, or a shipped one by its name.

    Args:
        seed: instead of the file's.
        magnitude, topology: one of the file's; default: its first topology and its middle magnitude.
        training_job: instead of the file's.

    Raises:
        SettingsError: no such file, or its content is not usable.
    """
    file = _read(name)
    content = copy.deepcopy(file.content)
    chosen = (_choice(file, "topologies", topology, 0), _choice(file, "magnitudes", magnitude, None))
    for replacements in chosen:
        _merge(content, replacements)
    if training_job:
        content["training_job"] = training_job
    if seed is not None:
        content["seed"] = seed
    truth = from_mapping(TruthSettings, content.pop("truth", {}), file.where, "truth.")
    scenario = from_mapping(Scenario, _with_ranks(content, file.where), file.where)
    scenario = dataclasses.replace(scenario, truth_settings=truth)
    try:
        resolve(truth, scenario.faults, scenario.topology.build())
    except ValueError as error:
        raise SettingsError(f"{file.where}: truth.{error}") from error
    return scenario


@dataclass(frozen=True)
class _File:
    where: str
    content: dict[str, Any]
    magnitudes: dict[str, dict[str, Any]]
    topologies: dict[str, dict[str, Any]]


def _read(name: str) -> _File:
    if name in shipped():
        text = (resources.files("argus_simulator") / "scenarios" / f"{name}.yaml").read_text()
        where = f"{name}.yaml"
    else:
        if not Path(name).exists():
            raise SettingsError(
                f"{name}: no such scenario; name a YAML file or one of the shipped: {', '.join(shipped())}"
            )
        where = name
        try:
            text = Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{name}: cannot read the scenario: {error}") from error
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise SettingsError(f"{where}: the file must be a mapping of keys, not {content!r}")
    if "truth_settings" in content:
        raise SettingsError(f"{where}: unknown key truth_settings; did you mean truth?")
    return _File(
        where, content, _variants_of(content, "magnitudes", where), _variants_of(content, "topologies", where)
    )


def _variants_of(content: dict[str, Any], key: str, where: str) -> dict[str, dict[str, Any]]:
    found = content.pop(key, {})
    if not isinstance(found, Mapping) or not all(isinstance(item, Mapping) for item in found.values()):
        raise SettingsError(f"{where}: {key} must map names to the settings that they replace")
    if key == "magnitudes":
        for name in found:
            if name not in MAGNITUDES:
                raise SettingsError(f"{where}: magnitudes has {name!r}; allowed: {', '.join(MAGNITUDES)}")
    return {str(name): dict(item) for name, item in found.items()}


def _choice(file: _File, key: str, name: str, default: int | None) -> Mapping[str, Any]:
    """Settings of the chosen variant."""
    known: dict[str, dict[str, Any]] = getattr(file, key)
    if not name:
        if not known:
            return {}
        name = "mid" if default is None and "mid" in known else list(known)[default or 0]
    if name not in known:
        allowed = ", ".join(known) or f"none, the file has no {key}"
        raise SettingsError(f"{file.where}: {key} has no {name!r}; allowed: {allowed}")
    return known[name]


def _merge(content: dict[str, Any], replacements: Mapping[str, Any]) -> None:
    """Settings of a mapping replace those of the content, nested ones key by key."""
    for key, value in replacements.items():
        if isinstance(value, Mapping) and isinstance(content.get(key), dict):
            _merge(content[key], value)
        else:
            content[key] = copy.deepcopy(value)


def _with_ranks(content: dict[str, Any], where: str) -> dict[str, Any]:
    """The content with every `where` replaced by ranks. Faults with the same `where` hit the same ranks."""
    faults = content.get("faults")
    if not isinstance(faults, Mapping):
        return content
    settings = from_mapping(TopologySettings, content.get("topology", {}), where, "topology.")
    seed = content.get("seed", 0)
    chosen: dict[str, tuple[list[int], bool]] = {}
    # Another row hits other ranks with the same seed.
    row = zlib.crc32(Path(where).stem.encode())
    placed: dict[str, Any] = {}
    for name, fault in faults.items():
        if (
            isinstance(fault, Mapping)
            and isinstance(text := fault.get("where"), str)
            and isinstance(seed, int)
        ):
            if text not in chosen:
                random = np.random.default_rng([_WHERE_STREAM, row, abs(seed), len(chosen)])
                try:
                    ranks = list(choose_ranks(text.partition("#")[0], settings.build(), random))
                    chosen[text] = ranks, bool(random.integers(2))
                except ValueError as error:
                    raise SettingsError(f"{where}: faults.{name}.{error}") from error
            rest = {key: value for key, value in fault.items() if key != "where"}
            ranks, inward = chosen[text]
            if "inward" in KEYS.get(str(rest.get("mechanism", "")), ()):
                rest = {"inward": inward, **rest}
            placed[name] = fault if rest.get("ranks") else {**rest, "ranks": ranks}
        else:
            placed[name] = fault
    return {**content, "faults": placed}


def all_scenarios(name: str, seed: int) -> Iterator[Scenario]:
    """Every variant of a file."""
    for variant in variants(name):
        yield load_scenario(name, seed=seed, magnitude=variant.magnitude, topology=variant.topology)
