"""Group shifts: what a whole host, rack or parallel group of ranks does slower than the rest of the job.

Unlike ranks, groups are compared over the tensor-parallel index too, since a role has one tensor index and
all of its ranks may be slow alike; never over pipeline stages, whose work differs by design.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_l3_worker.clusters import MANY, OTHERS, Split, explain, named_values, split
from argus_l3_worker.config import JudgeConfig
from argus_l3_worker.shifts import mode_shifts, pair_shift
from argus_l3_worker.triples import Floats, PairTriples, RoleTriples
from argus_l3_worker.verdicts import ALL_KERNELS

STAGE: Final = "pp"
"""The coordinate within which ranks are compared."""

Key = tuple[str, str, str, str, str]
"""(role or stage, kernel, stream, coordinate, value)."""


@dataclass(frozen=True)
class GroupShift:
    """One `argus_l3_group_shift`.

    Attributes:
        role: the role, or `pp<index>` where the ranks of several roles of one pipeline stage were compared.
        shift: signed log distance of the ranks at this value from the other cluster's median. Positive is
            slower; where neither cluster is a minority both are reported, with opposite signs.
        ranks: those of the cluster, of `compared`.
    """

    training_job: str
    role: str
    kernel: str
    stream: str
    coordinate: str
    value: str
    shift: float
    ranks: tuple[str, ...]
    compared: int

    @property
    def key(self) -> Key:
        return self.role, self.kernel, self.stream, self.coordinate, self.value


def judge_groups(roles: Sequence[RoleTriples], config: JudgeConfig) -> list[GroupShift]:
    """The splits of one window. All roles are of one job; those of other windows are compared apart."""
    found: list[GroupShift] = []
    for scope in _scopes(roles):
        found += _judge_scope(scope, config)
    return found


class GroupHistory:
    """The last windows of one job; a group shift is what `needed` of them say with the same sign."""

    def __init__(self, windows: int, needed: int) -> None:
        self._windows: deque[dict[Key, GroupShift]] = deque(maxlen=windows)
        self._needed = needed

    def add(self, shifts: Sequence[GroupShift]) -> None:
        self._windows.append({shift.key: shift for shift in shifts})

    def persistent(self) -> list[GroupShift]:
        """The newest of each that persists, largest first."""
        newest: dict[Key, GroupShift] = {}
        for window in self._windows:
            newest.update(window)
        lasting = [
            shift
            for key, shift in newest.items()
            if sum(1 for w in self._windows if key in w and w[key].shift * shift.shift > 0.0) >= self._needed
        ]
        return sorted(lasting, key=lambda shift: (-abs(shift.shift), shift.key))


def _scopes(roles: Sequence[RoleTriples]) -> Iterator[RoleTriples]:
    """Roles of one pipeline stage and one window as one; a role without a stage stands alone."""
    stages: dict[tuple[str, object], list[RoleTriples]] = {}
    for role in roles:
        stage = {value for value in role.coordinates.get(STAGE, ()) if value}
        name = f"{STAGE}{stage.pop()}" if len(stage) == 1 else role.role
        stages.setdefault((name, role.window), []).append(role)
    for (name, _), members in stages.items():
        yield members[0] if len(members) == 1 else _merged(name, members)


def _merged(name: str, roles: Sequence[RoleTriples]) -> RoleTriples:
    offsets = np.cumsum([0, *(len(role.ranks) for role in roles)])
    parts: dict[tuple[str, str], list[tuple[int, PairTriples]]] = {}
    for offset, role in zip(offsets, roles, strict=False):
        for pair in role.pairs:
            parts.setdefault((pair.kernel, pair.stream), []).append((int(offset), pair))
    names = sorted({key for role in roles for key in role.coordinates})
    return RoleTriples(
        roles[0].training_job,
        name,
        roles[0].window,
        tuple(rank for role in roles for rank in role.ranks),
        tuple(_stacked(of_pair) for of_pair in parts.values()),
        np.concatenate([role.unpublished for role in roles]),
        {
            key: tuple(v for role in roles for v in role.coordinates.get(key, ("",) * len(role.ranks)))
            for key in names
        },
    )


def _stacked(parts: Sequence[tuple[int, PairTriples]]) -> PairTriples:
    width = max(pair.count.shape[1] for _, pair in parts)

    def padded(values: Floats, how: str) -> Floats:
        missing = ((0, 0), (0, width - values.shape[1]))
        wide: Floats = np.pad(values, missing) if how == "zero" else np.pad(values, missing, mode="edge")
        return wide

    first = parts[0][1]
    return PairTriples(
        first.kernel,
        first.stream,
        np.concatenate([pair.ranks + offset for offset, pair in parts]),
        np.concatenate([padded(pair.count, "zero") for _, pair in parts]),
        np.concatenate([padded(pair.p50, "edge") for _, pair in parts]),
        np.concatenate([padded(pair.p99, "edge") for _, pair in parts]),
    )


def _judge_scope(scope: RoleTriples, config: JudgeConfig) -> list[GroupShift]:
    ranks = len(scope.ranks)
    rank_seconds = np.zeros(ranks)
    for pair in scope.pairs:
        rank_seconds[pair.ranks] += pair.seconds
    splits: list[tuple[str, str, Split]] = []
    summed, weighed = np.zeros(ranks), np.zeros(ranks)
    for pair in scope.pairs:
        if 2 * len(pair.ranks) <= ranks or float(np.median(pair.events)) < config.min_events:
            continue
        seconds = float(np.median(pair.seconds))
        share = float(np.median(pair.seconds / np.maximum(rank_seconds[pair.ranks], 1e-300)))
        shift = np.full(ranks, np.nan)
        shift[pair.ranks], _ = pair_shift(mode_shifts(pair, config.min_events))
        if pair.kind == "compute":
            known = ~np.isnan(shift)
            summed[known] += seconds * shift[known]
            weighed[known] += seconds
        if share < config.min_share or seconds / float(np.median(pair.events)) < config.min_duration_seconds:
            continue
        collective = pair.kind == "collective"
        effect = config.collective_group_effect if collective else config.group_effect
        found = split(shift, float(np.log1p(effect)))
        # Where most ranks are long in a collective they wait for the few: those, not this, are the finding.
        if found is not None and not (collective and float(found.slow.mean()) > 0.5):
            splits.append((pair.kernel, pair.stream, found))
    overall = np.where(weighed > 0.5 * weighed.max(initial=0.0), summed / np.maximum(weighed, 1e-300), np.nan)
    whole = split(overall, float(np.log1p(config.group_effect))) if weighed.any() else None
    result: list[GroupShift] = []
    if whole is not None:
        result += _group_shifts(scope, ALL_KERNELS, ALL_KERNELS, whole)
        # Kernels that split the same ranks are the same finding.
        splits = [one for one in splits if _agreement(one[2], whole) < 0.8]
    for kernel, stream, found in splits:
        result += _group_shifts(scope, kernel, stream, found)
    return result


def _group_shifts(scope: RoleTriples, kernel: str, stream: str, found: Split) -> Iterator[GroupShift]:
    sides = [(found.slow, found.gap)]
    if found.even:
        sides.append((~found.slow, -found.gap))
    elif float(found.slow.mean()) > 0.5:  # the few are faster: named with their sign, not accused
        sides = [(~found.slow, -found.gap)]
    for members, shift in sides:
        coordinate, values = named_values(explain(members, scope.coordinates))
        if shift < 0.0 and found.even and values in ((MANY,), ("",)):
            values = (OTHERS,)  # a series of its own beside the slower cluster's
        for value in values:
            at_value = members
            if value and value in scope.coordinates.get(coordinate, ()):
                at_value = members & (np.asarray(scope.coordinates[coordinate]) == value)
            yield GroupShift(
                scope.training_job,
                scope.role,
                kernel,
                stream,
                coordinate,
                value,
                shift,
                tuple(scope.ranks[index] for index in np.flatnonzero(at_value)),
                len(scope.ranks),
            )


def _agreement(one: Split, other: Split) -> float:
    return float((one.slow & other.slow).sum() / max((one.slow | other.slow).sum(), 1))


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
