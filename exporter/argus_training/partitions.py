"""The job's parallel layout from its described process groups, where neither Megatron nor a mesh tells it.

Every rank sees the ranks of every group, since making one is a collective call. The groups of one
description ("tensor_parallel", "DATA_PARALLEL_GROUP", "pp-3") that cover all ranks once are a partition.
Partitions along `tp`, `pp` and `dp` whose sizes and strides fit one regular grid are the layout; what does
not fit gives none. No torch here: ranks and words in, dimensions out.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from argus_training.identity import Layout

_ROLES: Final = {
    "tensor": "tp",
    "tp": "tp",
    "pipeline": "pp",
    "pp": "pp",
    "data": "dp",
    "dp": "dp",
    "expert": "ep",
    "ep": "ep",
}
_WORD: Final = re.compile(r"[a-z]+")
_PARTITIONS_LIMIT: Final = 32
"""Descriptions that are remembered; a job has about ten."""

Dimensions = tuple[tuple[str, ...], tuple[int, ...]]
"""Names from the slowest to the fastest dimension, and their sizes: as of a device mesh."""


@dataclass
class Partition:
    """Groups of one description."""

    role: str
    groups: set[tuple[int, ...]] = field(default_factory=set)
    covered: set[int] = field(default_factory=set)
    disjoint: bool = True

    def add(self, ranks: tuple[int, ...]) -> None:
        """One that is made twice (for another backend) is one."""
        if ranks not in self.groups:
            self.disjoint = self.disjoint and self.covered.isdisjoint(ranks)
            self.groups.add(ranks)
            self.covered.update(ranks)


class Partitions:
    """Takes the groups as they are made."""

    def __init__(self) -> None:
        self._by_words: dict[tuple[str, ...], Partition] = {}

    def add(self, description: str, ranks: Sequence[int], world_size: int) -> Dimensions | None:
        """A group was made. Dimensions once a partition is complete with it and all that are fit one grid.

        Args:
            description: group_desc; what names none or several of the dimensions says nothing.
            ranks: global ranks of the group.
            world_size: ranks of the job, the largest rank plus one.
        """
        words = tuple(_WORD.findall(description.lower()))
        roles = {_ROLES[word] for word in words if word in _ROLES}
        known = self._by_words.get(words)
        if len(roles) != 1 or (known is None and len(self._by_words) >= _PARTITIONS_LIMIT):
            return None
        if known is None:
            known = self._by_words[words] = Partition(roles.pop())
        known.add(tuple(sorted(ranks)))
        return self._dimensions(world_size) if len(known.covered) == world_size else None

    def _dimensions(self, world_size: int) -> Dimensions | None:
        complete = [one for one in self._by_words.values() if one.disjoint and len(one.covered) == world_size]
        named = [[one for one in complete if one.role == role] for role in ("tp", "pp", "dp")]
        # Several of one role: replicas with and without context parallelism, say. Those that fit are meant.
        for chosen in itertools.product(*filter(None, named)):
            layout = fit({one.role: one.groups for one in chosen}, world_size)
            if layout is not None:
                return with_experts(layout, (one.groups for one in complete if one.role == "ep"), world_size)
        return None


def fit(partitions: dict[str, set[tuple[int, ...]]], world_size: int) -> Layout | None:
    """The regular grid of which `partitions` (by dimension) are the lines; what none names is dp."""
    if not partitions:
        return None
    steps = []
    for role, groups in partitions.items():
        first = min(groups)
        if len(first) > 1:
            steps.append((first[1] - first[0], len(first), role))
    order: list[str] = []
    sizes = {"tp": 1, "pp": 1, "dp": 1}
    reached = 1
    for stride, size, role in sorted(steps):
        gap, rest = divmod(stride, reached)
        if gap > 1 and not rest and "dp" not in partitions and "dp" not in order:
            order.append("dp")
            sizes["dp"] = gap
            reached = stride
        if stride != reached:
            return None
        order.append(role)
        sizes[role] = size
        reached *= size
    if "dp" not in partitions and "dp" not in order and not world_size % reached:
        order.append("dp")
        sizes["dp"] = world_size // reached
        reached = world_size
    order += [role for role in ("tp", "dp", "pp") if role not in order]
    layout = Layout(sizes, tuple(reversed(order)))
    if reached != world_size or any(
        lines(layout, role, world_size) != groups for role, groups in partitions.items()
    ):
        return None
    return layout


def lines(layout: Layout, along: str, world_size: int) -> set[tuple[int, ...]]:
    """Groups of ranks that differ in dimension `along` only."""
    stride = math.prod(layout.sizes[name] for name in layout.order[layout.order.index(along) + 1 :])
    span = stride * layout.sizes[along]
    return {
        tuple(range(start + offset, start + offset + span, stride))
        for start in range(0, world_size, span)
        for offset in range(stride)
    }


def with_experts(layout: Layout, partitions: Iterable[set[tuple[int, ...]]], world_size: int) -> Dimensions:
    """The layout's dimensions, dp split into blocks of `ep` where a partition shows consecutive ones."""
    names = layout.order
    shape = tuple(layout.sizes[name] for name in names)
    at = names.index("dp")
    for groups in partitions:
        ep = len(next(iter(groups)))
        if ep > 1 and not shape[at] % ep:
            split = Layout(
                {**layout.sizes, "dp": shape[at] // ep, "ep": ep}, (*names[: at + 1], "ep", *names[at + 1 :])
            )
            if lines(split, "ep", world_size) == groups:
                return split.order, tuple(split.sizes[name] for name in split.order)
    return names, shape
