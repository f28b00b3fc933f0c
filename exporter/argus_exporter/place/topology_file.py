"""Topology from a file: who the ranks of a job are, where the job itself does not say, or says wrong.

For each training job (a name, or a pattern such as `pretrain-*`) either the parallel sizes, from which the
coordinates of any rank follow in Megatron's order, or the place of single ranks, or both:

    pretrain-70b:
      sizes: {tp: 8, pp: 4, dp: 16, ep: 4}
      model: llama-70b-8k
      backend: megatron
    encoder-*:
      ranks:
        0: {dp: 0, role: vision, node: gpu-17}
        1: {dp: 1, role: language}

`model` and `backend` say which runs are compared with one another (argus_job_info).

A file goes before what HELLO brought from the environment, and that before the defaults of HELLO. Ranks that
are placed one by one should be all there: without sizes, a group is as large as their coordinates reach.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from argus_core.log import Log
from argus_core.settings import SettingsError
from argus_exporter.place.topology import COORDINATES, Identity, default_role

log = Log(__name__)

_SIZES: Final = ("tp", "cp", "dp", "pp", "ep")
_TEXTS: Final = ("role", "node")
_JOB_TEXTS: Final = ("model", "backend")


@dataclass(frozen=True)
class Place:
    """What the file says of one rank. Empty: nothing."""

    coordinates: Mapping[str, int] = field(default_factory=dict)
    role: str = ""
    node: str = ""


@dataclass(frozen=True)
class JobTopology:
    """One training job of the file."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """tp, dp, pp and, if given, ep; context-parallel ranks count as data-parallel ones."""
    ranks: Mapping[int, Place] = field(default_factory=dict)
    model: str = ""
    backend: str = ""

    @property
    def world_size(self) -> int:
        """-1 without sizes."""
        return self.sizes["tp"] * self.sizes["dp"] * self.sizes["pp"] if self.sizes else -1

    def fits(self, reported: Identity) -> bool:
        """False where the job has another number of ranks than the sizes make: they are of another run."""
        if not self.sizes or reported.world_size in (-1, self.world_size):
            return True
        if reported.rank == 0:  # one line a job and not one a rank
            log.warning(
                "topology not applied, its sizes are of another run",
                training_job=reported.training_job,
                ranks_of_the_file=self.world_size,
                ranks_of_the_job=reported.world_size,
            )
        return False

    def coordinates(self, rank: int) -> dict[str, int]:
        """tp varies fastest, then dp, then pp; cp and ep split dp into consecutive blocks.

        Source: Megatron-LM, parallel_state.initialize_model_parallel, order tp-cp-ep-dp-pp.
        """
        if not 0 <= rank < self.world_size:
            return {}
        tp, dp = self.sizes["tp"], self.sizes["dp"]
        at = {"dp": rank // tp % dp, "tp": rank % tp, "pp": rank // (tp * dp)}
        at |= {name: at["dp"] % self.sizes[name] for name in ("cp", "ep") if name in self.sizes}
        return at


@dataclass(frozen=True)
class Topology:
    """The whole file: job names and patterns, the first that fits counts, an exact name before all."""

    jobs: Mapping[str, JobTopology] = field(default_factory=dict)

    def place(self, reported: Identity) -> Identity:
        """The rank as it reported itself, with what the file says of it."""
        job = self.jobs.get(reported.training_job) or next(
            (
                job
                for pattern, job in self.jobs.items()
                if fnmatch.fnmatchcase(reported.training_job, pattern)
            ),
            None,
        )
        if job is None or not job.fits(reported):
            return reported
        place = job.ranks.get(reported.rank, Place())
        coordinates = {**job.coordinates(reported.rank), **place.coordinates}
        if not coordinates:
            coordinates = dict(reported.coordinates)
        by_default = reported.role == default_role(reported.coordinates)
        return dataclasses.replace(
            reported,
            world_size=job.world_size if job.sizes else reported.world_size,
            coordinates=coordinates,
            sizes=dict(job.sizes) if job.sizes else _sizes_of_places(reported, job),
            role=place.role or (default_role(coordinates) if by_default else reported.role),
            node=place.node or reported.node,
            model=job.model or reported.model,
            backend=job.backend or reported.backend,
        )


NO_TOPOLOGY: Final = Topology()


def _sizes_of_places(reported: Identity, job: JobTopology) -> dict[str, int]:
    """Where ranks are placed one by one, as far as their coordinates reach; else as reported."""
    places = [place.coordinates for place in job.ranks.values() if place.coordinates]
    if not places:
        return dict(reported.sizes)
    return {
        name: 1 + max(at[name] for at in places if name in at)
        for name in COORDINATES
        if any(name in at for at in places)
    }


def load_topology(path: Path | None) -> Topology:
    """Read and check the file; None gives an empty topology.

    Raises:
        SettingsError: with file, key, value and what is allowed.
    """
    if path is None:
        return NO_TOPOLOGY
    try:
        content = yaml.safe_load(path.read_text())  # JSON is YAML too
    except OSError as error:
        raise SettingsError(f"{path}: cannot read the topology: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid YAML or JSON: {' '.join(str(error).split())}") from error
    jobs = _mapping(content or {}, str(path), "the file")
    return Topology({name: _job(value, f"{path}: {name}") for name, value in jobs.items()})


def _job(content: object, where: str) -> JobTopology:
    keys = _mapping(content, where, "a training job")
    _known(keys, ("sizes", "ranks", *_JOB_TEXTS), where)
    sizes = _sizes(keys["sizes"], f"{where}.sizes") if "sizes" in keys else {}
    ranks: dict[int, Place] = {}
    for name, value in _mapping(keys.get("ranks") or {}, f"{where}.ranks", "ranks").items():
        if not name.isdecimal():
            raise SettingsError(f"{where}.ranks: {name!r} is no rank; allowed: whole numbers of 0 or more")
        ranks[int(name)] = _place(value, sizes, f"{where}.ranks.{name}")
    texts = _texts(keys, _JOB_TEXTS, where)
    if not sizes and not ranks and not texts:
        raise SettingsError(
            f"{where}: says nothing; give sizes (tp, dp, pp, ...), ranks or a model, or leave it out"
        )
    return JobTopology(sizes, ranks, **texts)


def _sizes(content: object, where: str) -> dict[str, int]:
    keys = _mapping(content, where, "sizes")
    _known(keys, _SIZES, where)
    given = {name: _number(value, f"{where}.{name}", least=1) for name, value in keys.items()}
    if "dp" not in given:
        raise SettingsError(f"{where}: dp is missing; it cannot be derived, because ranks come one by one")
    dp = given["dp"] * given.get("cp", 1)
    sizes = {"dp": dp, "tp": given.get("tp", 1), "pp": given.get("pp", 1)}
    if given.get("cp", 1) > 1:
        sizes["cp"] = given["cp"]
    if "ep" in given:
        if dp % given["ep"]:
            raise SettingsError(
                f"{where}.ep is {given['ep']}; allowed: a divisor of the {dp} ranks of dp x cp"
            )
        sizes["ep"] = given["ep"]
    return sizes


def _place(content: object, sizes: Mapping[str, int], where: str) -> Place:
    keys = _mapping(content, where, "a rank")
    _known(keys, (*COORDINATES, *_TEXTS), where)
    coordinates = {
        name: _number(keys[name], f"{where}.{name}", least=0) for name in COORDINATES if name in keys
    }
    for name, value in coordinates.items():
        if name in sizes and value >= sizes[name]:
            raise SettingsError(
                f"{where}.{name} is {value}; allowed: 0 to {sizes[name] - 1}, by sizes.{name}"
            )
    return Place(coordinates, **_texts(keys, _TEXTS, where))


def _texts(keys: Mapping[str, object], names: tuple[str, ...], where: str) -> dict[str, str]:
    """Those of `names` that are given."""
    given = {}
    for name in names:
        if name in keys:
            text = keys[name]
            if not isinstance(text, str) or not text:
                raise SettingsError(f"{where}.{name} is {text!r}; allowed: a text")
            given[name] = text
    return given


def _mapping(content: object, where: str, what: str) -> dict[str, object]:
    if not isinstance(content, Mapping):
        raise SettingsError(f"{where}: {what} must be a mapping, not {content!r}")
    return {str(key): value for key, value in content.items()}


def _known(keys: Mapping[str, object], allowed: tuple[str, ...], where: str) -> None:
    for key in keys:
        if key not in allowed:
            close = difflib.get_close_matches(key, allowed, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SettingsError(f"{where}: unknown key {key}{hint} (allowed here: {', '.join(allowed)})")


def _number(value: object, where: str, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SettingsError(f"{where} is {value!r}; allowed: a whole number of {least} or more")
    return value
