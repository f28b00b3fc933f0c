"""Who a rank is, and with whom its phases are compared.

Comparison groups follow the paper's parallelism-aware routing (ARGUS table 3), extended to the phases that
the producer reports. A group is resolved here, once, so that no rule needs a join.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from argus_core import wire

DIMENSIONS = ("dp", "tp", "pp", "cp", "ep", "edp", "world")
"""What a phase may be compared along. cp, ep and edp split the data-parallel ranks of one pp and tp index."""

COORDINATES = ("dp", "tp", "pp", "cp", "ep")

# ARGUS table 3: attention and data-parallel collectives in the DP group, MoE layers and their all-to-all in
# the EP group. The rest is ours. First match wins; patterns are fnmatch globs on the phase name.
DEFAULT_ROUTING: tuple[tuple[str, str], ...] = (
    ("cp-*", "cp"),
    ("ep-*", "ep"),
    ("moe*", "ep"),
    ("edp-*", "edp"),
    ("tp-*", "tp"),
    ("pp-*", "pp"),
    ("dp-*", "dp"),
    ("world-*", "world"),
    ("*", "dp"),  # attention, mlp, forward, backward, optimizer, data, ...: peers at the same pp and tp index
)
UNKNOWN = "unknown"
"""Group of a collective whose ranks nobody knows. Rules accuse nobody in it: whoever waits least in an
all-reduce of some ranks would look late to all others."""


@dataclass(frozen=True)
class Identity:
    """One rank of one training job, from its HELLO. Absent dimensions are missing keys."""

    training_job: str
    rank: int
    pid: int = 0
    local_rank: int = -1
    world_size: int = -1
    coordinates: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    node: str = ""
    gpu_uuid: str = ""
    role: str = ""
    model: str = ""
    """What is trained, and `backend`, with what; runs that agree in both are compared. Empty: not told."""
    backend: str = ""

    @classmethod
    def from_hello(cls, hello: wire.Hello) -> Identity:
        """Absent coordinates of a plain data-parallel job are filled in: dp = rank."""
        coordinates = {name: getattr(hello, name) for name in COORDINATES if getattr(hello, name) >= 0}
        if not hello.cp_size:
            del coordinates["cp"]
        sizes = {
            name: getattr(hello, f"{name}_size") for name in COORDINATES if getattr(hello, f"{name}_size") > 0
        }
        if not coordinates:
            coordinates = {"dp": hello.rank}
            if hello.world_size > 0:
                sizes = {"dp": hello.world_size}
        role = wire.decode_text(hello.role) or default_role(coordinates)
        return cls(
            training_job=wire.decode_text(hello.training_job) or "unnamed",
            rank=hello.rank,
            pid=hello.pid,
            local_rank=hello.local_rank,
            world_size=hello.world_size,
            coordinates=coordinates,
            sizes=sizes,
            node=wire.decode_text(hello.node),
            gpu_uuid=wire.decode_text(hello.gpu_uuid),
            role=role,
        )

    @property
    def key(self) -> tuple[str, int]:
        return self.training_job, self.rank

    @property
    def names(self) -> dict[str, object]:
        """What a log line says of whom it speaks."""
        return {"training_job": self.training_job, "rank": self.rank}

    @property
    def info_labels(self) -> dict[str, str]:
        """Labels of `argus_rank_info` beside the base labels; only those that exist."""
        labels = {name: str(value) for name, value in self.coordinates.items()}
        labels |= {"node": self.node, "gpu_uuid": self.gpu_uuid, "role": self.role}
        return {name: value for name, value in labels.items() if value}

    @property
    def job_labels(self) -> dict[str, str]:
        """Labels of `argus_job_info`; none where nobody has named the model."""
        if not self.model:
            return {}
        return {
            "training_job": self.training_job,
            "model": self.model,
            "backend": self.backend,
            "world_size": str(max(self.world_size, 0)),
        }


@dataclass(frozen=True)
class Group:
    """A comparison group and how many ranks it should have; `size` 0 where the topology does not say."""

    name: str
    size: int


class RoutingTable:
    """Phase name to comparison group of one rank."""

    def __init__(self, identity: Identity, overrides: dict[str, str] | None = None) -> None:
        self._identity = identity
        self._patterns = (*(overrides or {}).items(), *DEFAULT_ROUTING)
        self.group_of_phase = lru_cache(maxsize=1024)(self._group_of_phase)

    def _group_of_phase(self, phase: str, named: str = "", kind: str = "compute") -> Group:
        """With whom a phase is compared. `named`: what the producer said; a dimension, a group or nothing."""
        dimension = self._dimension(phase, named, kind)
        return peers_along(self._identity, dimension) if dimension in DIMENSIONS else Group(dimension, 0)

    def process_group(self, phase: str, named: str = "") -> Group:
        """Who takes part in a phase; the arguments as above."""
        dimension = self._dimension(phase, named)
        return group_along(self._identity, dimension) if dimension in DIMENSIONS else Group(dimension, 0)

    def _dimension(self, phase: str, named: str, kind: str = "compute") -> str:
        if named:
            return named
        pattern, dimension = next(rule for rule in self._patterns if fnmatch.fnmatchcase(phase, rule[0]))
        if kind != "comm" or (pattern, dimension) != DEFAULT_ROUTING[-1]:
            return dimension
        # A collective of any name runs along the only dimension there is, if there is one only.
        at, of = self._identity.coordinates, self._identity.sizes
        larger = [name for name in at if of.get(name, 2) > 1]
        return UNKNOWN if len(larger) > 1 else next(iter(larger), dimension)


def peers_along(identity: Identity, dimension: str) -> Group:
    """The ranks whose times in a phase along `dimension` should be alike.

    The members of that group, but never across pipeline stages, which wait differently by design (the drain
    of 1F1B): for what passes between them, and what the whole job does together, it is the same stage,
    `stage:pp1.tp0`.
    """
    stages = identity.sizes.get("pp", 2 if "pp" in identity.coordinates else 1)
    if stages < 2 or "pp" not in identity.coordinates or dimension not in ("pp", "world"):
        return group_along(identity, dimension)
    if dimension == "world":
        size = max(identity.world_size, 0) // stages if "pp" in identity.sizes else 0
        return Group(f"stage:pp{identity.coordinates['pp']}", size)
    replicas = group_along(identity, "dp")
    return Group(f"stage:{replicas.name.partition(':')[2]}", replicas.size)


def group_along(identity: Identity, dimension: str) -> Group:
    """The ranks that differ from `identity` only along `dimension`, named by what they share.

    `dp:pp0.tp1` is every data-parallel replica of pipeline stage 0, tensor index 1. A job without the other
    dimensions has the plain group `dp`. Where `dimension` itself does not exist, dp stands in.
    """
    at, of = identity.coordinates, identity.sizes
    if dimension == "world":
        return Group("world", max(identity.world_size, 0))
    splits = {"cp": "cp", "ep": "ep", "edp": "ep"}.get(dimension, "")
    if splits and (splits not in at or "dp" not in at or splits not in of):
        dimension = "dp"
    if dimension != "edp" and dimension not in at:
        dimension = "dp"
    shared: list[tuple[str, int]] = [
        (name, at[name]) for name in ("dp", "pp", "tp") if name in at and name != dimension
    ]
    size = of.get(dimension, 0)
    if dimension in ("cp", "ep", "edp"):
        shared = [(name, value) for name, value in shared if name != "dp"]
        # EP and CP lie inside DP: consecutive blocks of ep_size ranks hold one set of experts, of cp_size one
        # sequence.
        if dimension != "edp":
            shared.append(("block", at["dp"] // of[dimension]))
        else:
            shared.append(("ep", at["ep"]))
            size = of.get("dp", 0) // of["ep"]
    name = ".".join(f"{label}{value}" for label, value in shared)
    return Group(f"{dimension}:{name}" if name else dimension, size)


def suspects_along(identity: Identity, dimensions: Collection[str]) -> str:
    """Name of the ranks that differ from `identity` along these dimensions alone; empty where nobody knows.

    Where a span holds waits along them, each rank of this set may be the one that the others wait for.
    """
    at, of = identity.coordinates, identity.sizes
    if not dimensions or any(("ep" if name == "edp" else name) not in at for name in dimensions):
        return ""
    if len(dimensions) == 1:
        return group_along(identity, *dimensions).name
    shared = [(name, at[name]) for name in ("dp", "pp", "tp") if name in at and name not in dimensions]
    within_dp = {"cp", "ep", "edp"}.intersection(dimensions)
    if within_dp and "dp" in at and "dp" not in dimensions:
        shared = [(name, value) for name, value in shared if name != "dp"]
        if within_dp == {"edp"}:
            shared.append(("ep", at["ep"]))
        elif "edp" not in within_dp and all(name in of for name in within_dp):
            # One size divides the other: the larger block holds the smaller.
            shared.append(("block", at["dp"] // max(of[name] for name in within_dp)))
    name = ".".join(f"{label}{value}" for label, value in shared)
    dimension = "+".join(sorted(dimensions))
    return f"{dimension}:{name}" if name else dimension


def default_role(coordinates: Mapping[str, int]) -> str:
    """Ranks with the same pipeline and tensor index run the same kernels."""
    return ".".join(f"{name}{coordinates[name]}" for name in ("pp", "tp") if name in coordinates) or "all"
