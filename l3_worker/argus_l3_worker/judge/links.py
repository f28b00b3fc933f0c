"""Slow links: collectives that take longer in a whole process group, although none of its ranks is late.

A collective ends on all its ranks together, so a rank's duration is the transfer plus its wait for the last
one to come, who waits for nobody. The shortest duration in a group is therefore the transfer itself, whoever
was late; only if that is longer than in the other groups of the stage, which move as many bytes, the link is
slow. Ranks that wait, for a late rank or for a slow group elsewhere, are long beside a short one in their own
group, and are not accused.

Source: ARGUS case 2 (one slow expert-data-parallel group); thresholds: docs/evidence/links.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtri

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.segments import robust_deviation
from argus_l3_worker.triples import Floats, Ints, PairTriples, RoleTriples

# Label of a stream whose communicator's dimension the exporter knows.
_STREAM: Final = re.compile(r"nccl:(\w+?)(?:\.\d+|_rest)?(?::gpu\d+)?")
# What the ranks of a process group have in common within a stage; "edp" is the block of the expert groups.
_SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "tp": ("dp",),
    "dp": ("tp",),
    "ep": ("tp", "edp"),
    "edp": ("tp", "ep"),
}
# By which of these a group is named; the role says the tensor index.
_NAMED_BY: Final[Mapping[str, str]] = {"tp": "dp", "dp": "tp", "ep": "edp", "edp": "ep"}
# Where the dimension is a guess more groups must agree on what is usual: of two, one may wait for the other.
_LEAST_GROUPS_GUESSED: Final = 4
_GUESSED_MINORITY: Final = 0.4
# And a group may hold nobody who comes last, so that all of it waits. Of four ranks or more none
# is likely to be long then beside nine tenths of the others.
_GUESSED_EFFECT: Final = 4.0
_GUESSED_RANKS: Final = 4
_GUESSED_QUANTILE: Final = 0.9
_LEVELS: Final = np.linspace(0.1, 0.9, 9)
# Standard error of the 10 % quantile of a normal, in sigmas / sqrt(n): sqrt(p (1 - p)) / phi(z_p).
_LEVEL_ERROR: Final = 1.71


@dataclass(frozen=True)
class SlowGroup:
    """One process group whose collectives take longer.

    Attributes:
        ranks: positions in the scope.
        coordinate, value: what its ranks share within their role.
        shift: log ratio of its transfer to that of the other groups, > 0.
    """

    ranks: Ints
    coordinate: str
    value: str
    shift: float


def slow_groups(pair: PairTriples, scope: RoleTriples, config: JudgeConfig) -> list[SlowGroup]:
    """The process groups in which a collective's transfer is slow.

    Args:
        pair: a collective of `scope`.
        scope: ranks of one pipeline stage.
    """
    known = _STREAM.fullmatch(pair.stream)
    bodies = _quantiles(pair)
    found: list[list[SlowGroup]] = [[]]
    for dimension in (known[1],) if known and known[1] in _SHARED else () if known else tuple(_SHARED):
        groups = list(_groups(pair, scope, dimension))
        if len(groups) < (2 if known else _LEAST_GROUPS_GUESSED):
            continue
        effect = config.collective_group_effect * (1.0 if known else _GUESSED_EFFECT)
        shift = _shifts(bodies, groups, float(np.median(pair.events)), float(np.log1p(effect)), config)
        if known is None:
            shift = _surely(shift, bodies, groups)
        found.append(
            [
                SlowGroup(pair.ranks[rows], _NAMED_BY[dimension], value, float(shift[place]))
                for place, (value, rows) in enumerate(groups)
                if shift[place] > 0.0
            ]
        )
    return max(found, key=lambda groups: max((one.shift for one in groups), default=0.0))


def _groups(pair: PairTriples, scope: RoleTriples, dimension: str) -> Iterator[tuple[str, Ints]]:
    """(value of the coordinate that names it, rows of `pair`) of every process group that is whole.

    A rank that publishes nothing of the collective may be the late one, whose is short: without it nothing is
    known of its group.
    """
    names = [name for name in (*_SHARED[dimension], _NAMED_BY[dimension]) if name in scope.coordinates]
    if _NAMED_BY[dimension] not in names or (dimension == "dp" and "dp" not in scope.coordinates):
        return
    keys = list(zip(*(scope.coordinates[name] for name in names), strict=True))
    members: dict[tuple[str, ...], list[int]] = {}
    for position, key in enumerate(keys):
        members.setdefault(key, []).append(position)
    row_of = np.full(len(scope.ranks), -1, dtype=np.intp)
    row_of[pair.ranks] = np.arange(len(pair.ranks))
    most = max(len(of_group) for of_group in members.values())
    for key, of_group in members.items():
        rows = row_of[of_group]
        if len(of_group) == most >= 2 and (rows >= 0).all():
            yield key[-1], rows


def _quantiles(pair: PairTriples) -> Floats:
    """Duration of each rank's collective at each of `_LEVELS`, seconds, shape (ranks, levels)."""
    weight, mu, sigma = pair.components()
    upper = np.cumsum(weight, axis=1)
    result = np.empty((len(pair.ranks), _LEVELS.size))
    rows = np.arange(len(pair.ranks))
    last = (weight > 0.0).sum(axis=1) - 1
    for place, level in enumerate(_LEVELS):
        mode = np.minimum((upper < level).sum(axis=1), last)
        share = (level - (upper - weight)[rows, mode]) / np.maximum(weight[rows, mode], 1e-12)
        z = ndtri(np.clip(share, 0.01, 0.99))
        result[:, place] = np.exp(mu[rows, mode] + sigma[rows, mode] * z)
    return result


def _shifts(
    quantiles: Floats,
    groups: Sequence[tuple[str, Ints]],
    events: float,
    effect: float,
    config: JudgeConfig,
) -> Floats:
    """Log ratio of each group's transfer to the usual one, 0 where that is no evidence.

    At every level the shortest of the group's ranks counts. Where ranks take turns in being late, each waits
    at most levels; at the lowest nobody does. So both must say it: the lowest level, and the mean of all,
    which the large messages decide.
    """
    spread = np.median(np.log(quantiles[:, -1] / quantiles[:, 0])) / (2.0 * float(ndtri(_LEVELS[-1])))
    error = _LEVEL_ERROR * float(spread) / float(np.sqrt(events))
    shortest = np.stack([quantiles[rows].min(axis=0) for _, rows in groups])
    evidence = []
    for body in (np.log(shortest.mean(axis=1)), np.log(shortest[:, 0])):
        noise = max(error, robust_deviation(body) if len(body) >= config.min_ranks else 0.0)
        least = max(effect, config.deviations * noise)
        shift = body - _lower_median(body)
        evidence.append(np.where(shift > least, shift, 0.0))
    both: Floats = np.minimum(*evidence)
    return both


def _surely(shift: Floats, quantiles: Floats, groups: Sequence[tuple[str, Ints]]) -> Floats:
    """What remains of the evidence where it is not known that these ranks are process groups."""
    if (shift > 0.0).mean() > _GUESSED_MINORITY:
        return np.zeros_like(shift)
    mean = quantiles.mean(axis=1)
    kept = np.zeros_like(shift)
    for place in np.flatnonzero(shift).tolist():
        rows = groups[place][1]
        others = np.quantile(np.delete(mean, rows), _GUESSED_QUANTILE)
        if len(rows) >= _GUESSED_RANKS and mean[rows].min() > others:
            kept[place] = shift[place]
    return kept


def _lower_median(values: Floats) -> float:
    """Of two groups the faster: a link may be slow, none is too fast."""
    return float(np.sort(values)[(len(values) - 1) // 2])
