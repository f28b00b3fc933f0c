"""Ranks by role and place: which are compared with one another, and in which order they are listed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

STAGE: Final = "pp"
"""The coordinate within which ranks are compared."""
ANY_ROLE: Final = "all"
"""Role of ranks whose `argus_rank_info` names none."""
_TENSOR: Final = re.compile(r"tp\d+")

AbstainReason = Literal[
    "too-few-ranks",
    "too-few-events",
    "windows-disagree",
    "no-kernels",
    "partial-answer",
    "not-answered",
    "failed",
    "ranks-missing",
    "not-one-job",
    "overload",
]


def stage_of(role: str) -> str:
    """A role without its tensor index, `pp0.tp3` as `pp0`: ranks that should be equally fast.

    Tensor indices do the same work, and all ranks of one may be slow alike. Whatever else a role says, such
    as a GPU model or a modality, tells that its ranks are not to be compared with those of another.
    """
    return ".".join(part for part in role.split(".") if not _TENSOR.fullmatch(part)) or ANY_ROLE


def coordinates_of(labels: Sequence[Mapping[str, str]], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each rank's value by coordinate, from the labels of its `argus_rank_info`; only those that exist.

    `edp` is the index within an expert-data-parallel group: expert-parallel groups are consecutive blocks of
    data-parallel ranks, so the ranks of one expert-parallel group share it.
    """
    found = {name: tuple(of.get(name, "") for of in labels) for name in names}
    experts = len({of["ep"] for of in labels if of.get("ep")})
    if experts > 1 and "edp" in names:
        found["edp"] = tuple(
            str(int(of["dp"]) // experts) if of.get("dp", "").isdigit() else "" for of in labels
        )
    return {name: values for name, values in found.items() if any(values)}


@dataclass(frozen=True)
class Abstention:
    """A role that was not judged, and why."""

    training_job: str
    role: str
    reason: AbstainReason
    detail: str


def natural(rank: str) -> tuple[int, str]:
    """Sorts ranks: numbers by value, before all other names."""
    return (int(rank), "") if rank.isdigit() else (1 << 62, rank)
