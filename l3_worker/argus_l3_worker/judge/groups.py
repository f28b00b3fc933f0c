"""Group shifts: what a whole host, rack or parallel group of ranks does slower than the rest of the job.

Unlike ranks, groups are compared over the tensor-parallel index too, since a role has one tensor index and
all of its ranks may be slow alike; never over pipeline stages, whose work differs by design, nor over roles
that the user has told apart, as by GPU model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from argus_l3_worker.judge.causes import GPU_COMPUTE, LINK_SLOW, OF_KIND, team_of
from argus_l3_worker.judge.clusters import (
    MANY,
    OTHERS,
    VALUES_NAMED,
    Split,
    explain,
    named_values,
    splits,
)
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.group_shifts import GroupShift
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.links import SlowGroup, slow_groups
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.judge.shifts import mode_shifts, pair_shift
from argus_l3_worker.judge.tails import (
    FAR,
    Tails,
    explained_by_work,
    more_work,
    tail_groups,
    tails_of,
)
from argus_l3_worker.judge.verdicts import ALL_KERNELS
from argus_l3_worker.triples import Bools, Floats, Ints, PairTriples, RoleTriples, kind_of, rank_seconds

# Gradients are reduced once a step, and a window may have sixteen; links.py allows for so small a sample.
_COLLECTIVE_EVENTS: Final = 8


@dataclass(frozen=True)
class _Typical:
    """A pair on the middle rank of each scope of which most ranks run it, and how the others differ.

    Attributes:
        seconds, events: shape (scopes,), NaN where few run it.
        counts: it is large enough to say something alone, shape (scopes,).
        shifts: shift of the ranks, its error, shift of medians; shape (3, ranks), NaN unknown, as all are of
            a collective.
        splits: of the scopes whose ranks fall into two clusters.
    """

    seconds: Floats
    events: Floats
    counts: Bools
    shifts: Floats
    splits: Mapping[int, Split]


_Pairs = dict[tuple[str, str], _Typical]
"""By kernel and stream."""


def judge_groups(
    job: JobTriples, config: JudgeConfig, tails_of_data: Collection[str] = ()
) -> list[GroupShift]:
    """The group shifts of one window.

    Args:
        tails_of_data: ranks whose far launches are no evidence; see `tails.of_the_data`.
    """
    found: list[GroupShift] = []
    role_of = {rank: role.role for role in job.roles for rank in role.ranks}
    pairs = _typical(job, config)
    overall = _splits(_overall(pairs, job.by_scope, config), job.by_scope, config)
    for place, scope in enumerate(job.scopes):
        found += _judge_scope(scope, place, pairs, overall.get(place), config)
        found += _judge_links(scope, place, pairs, role_of, config)
    return found + list(_judge_tails(job, tails_of_data, config))


def _typical(job: JobTriples, config: JudgeConfig) -> _Pairs:
    """The pairs that most ranks of some scope run."""
    whole, by_scope = job.whole, job.by_scope
    ranks = len(whole.ranks)
    all_seconds = np.maximum(rank_seconds(whole.pairs, ranks), 1e-300)
    pairs: _Pairs = {}
    for pair in whole.pairs:
        scope_of = by_scope.of_row[pair.ranks]
        sizes = np.bincount(scope_of, minlength=by_scope.count)
        chosen = 2 * sizes > by_scope.sizes
        if not chosen.any():
            continue
        rows, parts = pair.at(chosen[scope_of]), Segments(sizes[chosen])
        seconds, events, share = np.full((3, by_scope.count), np.nan)
        seconds[chosen], events[chosen] = parts.medians(rows.seconds), parts.medians(rows.events)
        share[chosen] = parts.medians(rows.seconds / all_seconds[rows.ranks])
        counts = (share >= config.min_share) & (seconds / events >= config.min_duration_seconds)
        shifts = np.full((3, ranks), np.nan)
        if pair.kind != "collective":
            shifts[:, rows.ranks] = pair_shift(mode_shifts(rows, config.min_events, parts))
        clusters = _splits(shifts, by_scope, config)
        pairs[pair.kernel, pair.stream] = _Typical(seconds, events, counts, shifts, clusters)
    return pairs


def _splits(shifts: Floats, by_scope: Segments, config: JudgeConfig) -> dict[int, Split]:
    shift, error, of_medians = shifts
    return splits(shift, by_scope, float(np.log1p(config.group_effect)), error, of_medians)


def _overall(pairs: _Pairs, by_scope: Segments, config: JudgeConfig) -> Floats:
    """`_Typical.shifts` of all compute kernels, weighted by their time on the middle rank of the scope."""
    summed, squared, medians, weighed = np.zeros((4, by_scope.of_row.size))
    for (kernel, _), of in pairs.items():
        if kind_of(kernel) != "compute":
            continue
        weight = np.where(of.events >= config.min_events, of.seconds, 0.0)[by_scope.of_row]
        shift, error, of_medians = of.shifts
        known = ~np.isnan(shift) & (weight > 0.0)
        weight = weight[known]
        summed[known] += weight * shift[known]
        squared[known] += (weight * error[known]) ** 2
        medians[known] += weight * of_medians[known]
        weighed[known] += weight
    most = np.maximum.reduceat(weighed, [rows.start for rows in by_scope.slices])
    enough = weighed > 0.5 * most[by_scope.of_row]
    table = np.stack([summed, np.sqrt(squared), medians]) / np.maximum(weighed, 1e-300)
    return np.where(enough, table, np.nan)


def _judge_scope(
    scope: RoleTriples, place: int, pairs: _Pairs, whole: Split | None, config: JudgeConfig
) -> list[GroupShift]:
    """Clusters of ranks of which compute kernels or copies are slower; `whole`: of all compute kernels."""
    clusters: list[tuple[PairTriples, Split]] = []
    for pair in scope.pairs:
        of = pairs.get((pair.kernel, pair.stream))
        if of is None or pair.kind == "collective" or not of.counts[place]:
            continue
        if of.events[place] >= config.min_events and place in of.splits:
            clusters.append((pair, of.splits[place]))
    result: list[GroupShift] = []
    if whole is not None:
        result += _group_shifts(scope, ALL_KERNELS, ALL_KERNELS, GPU_COMPUTE, whole)
        # Kernels that split the same ranks are the same finding.
        clusters = [one for one in clusters if _agreement(one[1], whole) < 0.8]
    for pair, found in clusters:
        result += _group_shifts(scope, pair.kernel, pair.stream, OF_KIND[pair.kind], found)
    return result


def _group_shifts(
    scope: RoleTriples, kernel: str, stream: str, cause: str, found: Split
) -> Iterator[GroupShift]:
    sides = [(found.slow, found.gap)]
    if found.even:
        sides.append((~found.slow, -found.gap))
    elif float(found.slow.mean()) > 0.5:  # the few are faster: named with their sign, not accused
        sides = [(~found.slow, -found.gap)]
    for members, shift in sides:
        explanation = explain(members, scope.coordinates)
        if explanation is None and not found.certain:
            continue
        coordinate, values = named_values(explanation)
        if shift < 0.0 and found.even and values in ((MANY,), ("",)):
            values = (OTHERS,)  # a series of its own beside the slower cluster's
        for value in values:
            at_value = members
            if value and value in scope.coordinates.get(coordinate, ()):
                at_value = members & (np.asarray(scope.coordinates[coordinate]) == value)
            where = coordinate, value
            yield _shift(scope, scope.role, kernel, stream, where, cause, shift, np.flatnonzero(at_value))


def _judge_links(
    scope: RoleTriples, place: int, pairs: _Pairs, role_of: Mapping[str, str], config: JudgeConfig
) -> Iterator[GroupShift]:
    """Process groups with a slow link; see links.py."""
    for pair in scope.pairs:
        of = pairs.get((pair.kernel, pair.stream))
        if of is None or pair.kind != "collective" or not of.counts[place]:
            continue
        if of.events[place] < _COLLECTIVE_EVENTS:
            continue
        slow = slow_groups(pair, scope, config)
        if len(slow) > VALUES_NAMED:
            slow = [_together(slow)]
        for group in slow:
            roles = {role_of[scope.ranks[position]] for position in group.ranks}
            role = roles.pop() if len(roles) == 1 else scope.role
            where = group.coordinate, group.value
            yield _shift(scope, role, pair.kernel, pair.stream, where, LINK_SLOW, group.shift, group.ranks)


def _together(slow: Sequence[SlowGroup]) -> SlowGroup:
    """Too many groups to name each."""
    ranks = np.unique(np.concatenate([group.ranks for group in slow]))
    return SlowGroup(ranks, slow[0].coordinate, MANY, float(np.median([group.shift for group in slow])))


def _judge_tails(
    job: JobTriples, tails_of_data: Collection[str], config: JudgeConfig
) -> Iterator[GroupShift]:
    """Hosts and racks with launches far beyond the usual; see tails.py."""
    whole, by_scope = job.whole, job.by_scope
    tails = tails_of(whole, by_scope)
    least = np.log1p((FAR - 1.0) * np.nan_to_num(tails.share))
    excused = explained_by_work(least, more_work(whole.work, by_scope))
    excused |= np.isin(whole.ranks, list(tails_of_data))
    tails = Tails(np.where(excused, np.nan, tails.far), tails.launches)
    for place, groups in sorted(tail_groups(tails, whole, by_scope, config).items()):
        scope = job.scopes[place]
        for group in groups:
            where = group.coordinate, group.value
            shift = float(np.log1p((FAR - 1.0) * group.excess))
            members = np.flatnonzero(group.members)
            found = _shift(scope, scope.role, ALL_KERNELS, ALL_KERNELS, where, GPU_COMPUTE, shift, members)
            yield replace(found, in_tail=True)


def _shift(
    scope: RoleTriples,
    role: str,
    kernel: str,
    stream: str,
    where: tuple[str, str],
    cause: str,
    shift: float,
    positions: Ints,
) -> GroupShift:
    ranks = tuple(scope.ranks[position] for position in positions)
    of = scope.training_job, role, kernel, stream, *where
    return GroupShift(*of, cause, team_of(cause), shift, ranks, len(scope.ranks))


def _agreement(one: Split, other: Split) -> float:
    return float((one.slow & other.slow).sum() / max((one.slow | other.slow).sum(), 1))
