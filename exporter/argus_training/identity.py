"""Who this process is in its job, from what torchrun, Slurm or Open MPI put into the environment."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from argus_core import wire

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class NoRank(Exception):
    """The environment names no rank: this is no process of a training job."""


@dataclass(frozen=True)
class Launcher:
    """The variables in which one launcher hands out ranks."""

    name: str
    rank: str
    local_rank: str
    world_size: str


LAUNCHERS = (  # first match wins: torchrun under Slurm sets both, and only torchrun's is per process
    Launcher("torchrun", "RANK", "LOCAL_RANK", "WORLD_SIZE"),
    Launcher("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    Launcher("slurm", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)


@dataclass(frozen=True)
class Place:
    """One rank of a job. -1: unknown."""

    launcher: str
    rank: int
    local_rank: int
    world_size: int


@dataclass(frozen=True)
class Layout:
    """Parallel sizes, and from them the coordinates of any rank. Empty: the job has not told.

    `order` is from the dimension whose index changes slowest to the fastest. ep and cp split dp into
    consecutive blocks, each by itself.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ("pp", "dp", "tp")  # Megatron's default

    def coordinates(self, rank: int) -> dict[str, int]:
        """Index of a rank in each dimension."""
        if not self.sizes:
            return {}
        at = {}
        for name in reversed(self.order):
            rank, at[name] = divmod(rank, self.sizes[name])
        for name in ("cp", "ep"):
            if name in self.sizes:
                at[name] = at["dp"] % self.sizes[name]
        return at

    def group(self, ranks: Sequence[int], description: str = "") -> str:
        """Dimension along which all of `ranks`, and no others, differ: cp, dp, edp, ep, pp, tp; empty: none.

        Groups may have the same ranks, as those of cp and ep: then the description decides, if it tells.
        """
        at = [self.coordinates(rank) for rank in ranks]
        varying = [name for name in ("tp", "dp", "pp") if len({where.get(name) for where in at}) > 1]
        if len(varying) != 1:
            return ""
        along = varying[0]
        if len(ranks) == self.sizes[along]:
            return along
        if along != "dp":
            return ""
        fitting = []
        for name, across in (("cp", "dp"), ("ep", "edp")):
            size = self.sizes.get(name, 1)
            if len(ranks) == size and len({where["dp"] // size for where in at}) == 1:
                fitting.append(name)
            elif len(ranks) * size == self.sizes["dp"] and len({where[name] for where in at}) == 1:
                fitting.append(across)
        words = re.findall("[a-z]+", description.lower())
        expert = any(word in ("expert", "experts", "ep", "edp", "moe") for word in words)
        told = [name for name in fitting if (name in ("ep", "edp")) == expert]
        return next(iter(told or fitting), "")


def place(environ: Mapping[str, str]) -> Place:
    """Raises:
    NoRank: no launcher's variable holds a rank.
    """
    for launcher in LAUNCHERS:
        rank = _number(environ, launcher.rank)
        if rank >= 0:
            return Place(
                launcher.name,
                rank,
                _number(environ, launcher.local_rank),
                _number(environ, launcher.world_size),
            )
    names = ", ".join(launcher.rank for launcher in LAUNCHERS)
    raise NoRank(f"none of {names} holds a rank")


def layout(text: str, world_size: int) -> Layout:
    """Parse `tp=2,pp=4` against the world size; empty text: no layout.

    Raises:
        ValueError: unknown dimension, no whole number, or sizes that do not divide the world.
    """
    if not text:
        return Layout()
    sizes = {"tp": 1, "pp": 1}
    for item in text.split(","):
        name, _, value = item.strip().partition("=")
        if name not in ("tp", "pp", "ep", "cp", "dp") or not value.isdecimal() or int(value) < 1:
            raise ValueError(
                f"ARGUS_PARALLEL has {item.strip()!r}; allowed: tp, pp, dp, cp or ep = a whole number above 0"
            )
        sizes[name] = int(value)
    dp, rest = divmod(world_size, sizes["tp"] * sizes["pp"])
    if dp < 1 or rest or sizes.get("dp", dp) != dp:
        raise ValueError(f"ARGUS_PARALLEL {text!r} does not fit {world_size} ranks")
    for name in ("cp", "ep"):
        if dp % sizes.get(name, 1):
            raise ValueError(f"ARGUS_PARALLEL {text!r}: {name} must divide the {dp} data-parallel ranks")
    return Layout({**sizes, "dp": dp})


def training_job(named: str, environ: Mapping[str, str], argv: Sequence[str]) -> str:
    """The job's name: as told, else the scheduler's, else the launcher's id, else the script's.

    An id that torchrun made up (`none`, or since 2.13 a random one) would be a new label at every start.
    """
    launcher_id = environ.get("TORCHELASTIC_RUN_ID", "")
    return (
        named
        or environ.get("SLURM_JOB_NAME", "")
        or (launcher_id if launcher_id != "none" and not _UUID.fullmatch(launcher_id) else "")
        or script_name(argv)
        or "unnamed"
    )


def script_name(argv: Sequence[str]) -> str:
    """`train` for `train.py`, `pkg` for `pkg/__main__.py`, nothing for `-c` and `-m`."""
    script = PurePath(argv[0]) if argv and argv[0] and not argv[0].startswith("-") else PurePath()
    return script.parent.name if script.name == "__main__.py" else script.stem


def hello(
    at: Place,
    job: str,
    parallel: Layout,
    gpu_uuid: str = "",
    *,
    node: str = "",
    shares_page: bool = False,
    shares_nccl: bool = False,
) -> wire.Hello:
    """HELLO of this process, now. `node`: the host's name; empty: as this process knows it."""
    return wire.hello(
        pid=os.getpid(),
        rank=at.rank,
        local_rank=at.local_rank,
        world_size=at.world_size,
        training_job=job,
        coordinates=parallel.coordinates(at.rank),
        sizes=parallel.sizes,
        node=node or socket.gethostname(),
        gpu_uuid=gpu_uuid,
        monotonic_ns=time.monotonic_ns(),
        realtime_ns=time.time_ns(),
        shares_page=shares_page,
        shares_nccl=shares_nccl,
    )


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() else -1
