"""EROICA's patterns of single functions over ranks whose traces are read together: a cross-check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from argus_l3_worker.judge import eroica
from argus_traces.summary import Summary, UnlikeFunction

_CLASSES: Final[dict[str, eroica.FunctionClass]] = {
    "compute": "compute",
    "memory": "memory",
    "communication": "comm",
    "host": "host",
    "python": "host",
}
"""EROICA's class by category of a function."""


def unlike_functions(summaries: Sequence[Summary], roles: Sequence[str]) -> tuple[UnlikeFunction, ...]:
    """Functions that are critical for longer on a rank than on the others of its role, the farthest first.

    beta alone is compared: a trace of some steps is over before dcgm-exporter has looked twice.

    Args:
        roles: of each summary; fewer than four of one role say nothing.

    Source: EROICA 4.3, equations 7 to 11.
    """
    found: list[UnlikeFunction] = []
    for role in sorted(set(roles)):
        of_role = [one for one, its in zip(summaries, roles, strict=True) if its == role]
        if len(of_role) >= eroica.LEAST_RANKS:
            found += _of_role(of_role)
    return tuple(sorted(found, key=lambda one: one.usual - one.beta))


def _of_role(ranks: Sequence[Summary]) -> Iterator[UnlikeFunction]:
    betas = [_by_function(rank) for rank in ranks]
    for name in sorted({name for of_rank in betas for name in of_rank}):
        beta = np.minimum([of_rank.get(name, 0.0) for of_rank in betas], 1.0)
        unlike, usual = eroica.distances(beta[:, None], _CLASSES[name[1]]).unlike, float(np.median(beta))
        for rank, share, is_unlike in zip(ranks, beta, unlike, strict=True):
            if is_unlike and share > usual:
                yield UnlikeFunction(rank.rank, *name, float(share), usual)


def _by_function(rank: Summary) -> Mapping[tuple[str, str], float]:
    """beta by function and category: a function of Python is on several stacks."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one in rank.betas:
        found[one.function, one.category] += one.beta
    return found
