"""Launches that take far longer than the others of their kernel: what intermittent faults leave behind.

A memory error that is corrected, or a clock that throttles in bursts, stretches a few launches and leaves
every mode where it was. Such launches lie outside of all modes (the exporter counts them) or form a rare mode
of their own beyond the slowest that is usual. What is compared is their share of all launches: of a rank with
its role, and of the ranks of a host or a rack with the others, since bursts that wander within a rack are on
no rank for long.

No paper gives thresholds for these: docs/evidence/far-launches.md says what follows from those chosen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.roles import STAGE
from argus_l3_worker.triples import Bools, Floats, RoleTriples

# As the exporter cuts its modes: at 1.5 times the median and further.
FAR: Final = 1.5
# A rank that reports more work than its peers, by this share of what its kernels took longer, is not slow.
_WORK_EXPLAINS: Final = 0.5
# A few such launches are chance, whatever their share.
_LEAST_EVENTS: Final = 20
_LEAST_VALUES: Final = 3
# A coordinate must explain about as many of the far launches as any other does. Of those with about the same
# excess the one with fewer values says more: the rack, not its hosts.
_EXPLAINED_TIE: Final = 0.9
_EXCESS_TIE: Final = 0.7


@dataclass(frozen=True)
class Tails:
    """Far launches of compute kernels by rank, shape (ranks,); `far` is NaN where a rank does not say."""

    far: Floats
    launches: Floats

    @property
    def share(self) -> Floats:
        """Share of the launches."""
        return self.far / np.maximum(self.launches, 1.0)

    def at(self, rows: slice) -> Tails:
        """Of these ranks alone."""
        return Tails(self.far[rows], self.launches[rows])


@dataclass(frozen=True)
class TailGroup:
    """Ranks of a scope with a value of a coordinate in common and a long tail.

    `members` is of shape (ranks of the scope,), `excess` a share of launches.
    """

    coordinate: str
    value: str
    members: Bools
    excess: float


def tails_of(role: RoleTriples, by_role: Segments) -> Tails:
    """Count the far launches of all compute kernels.

    Args:
        by_role: the ranks of each role, as `role` may be several, see `merged`.
    """
    ranks = len(role.ranks)
    outside = np.full(ranks, np.nan) if role.tail_events is None else role.tail_events
    far, launches = outside.copy(), np.nan_to_num(outside)
    for pair in role.pairs:
        if pair.kind != "compute":
            continue
        launches[pair.ranks] += pair.events
        slowest = np.full(ranks, np.nan)
        slowest[pair.ranks] = pair.p50[:, -1]  # p50 of modes that a rank lacks repeats its slowest
        published = by_role.sums(~np.isnan(slowest))
        usual = np.where(2 * published > by_role.sizes, by_role.medians(slowest), np.inf)
        beyond = pair.p50 > FAR * usual[by_role.of_row[pair.ranks], None]
        far[pair.ranks] += np.where(beyond, pair.count, 0.0).sum(axis=1)
    return Tails(far, launches)


def rank_excess(tails: Tails, config: JudgeConfig, by_role: Segments | None = None) -> Floats:
    """Share of a rank's launches that is far, above what is usual in its role; 0: no evidence."""
    share = tails.share
    by_role = by_role or Segments([share.size])
    enough = by_role.chosen(by_role.sums(~np.isnan(share)) >= config.min_ranks)
    usual = by_role.medians(share)[by_role.of_row]
    launches = np.maximum(tails.launches, 1.0)
    chance = np.sqrt(np.maximum(usual, 1.0 / launches) / launches)
    noise = np.maximum(chance, by_role.deviations(share)[by_role.of_row])
    excess = np.nan_to_num(share - usual)
    clear = (excess > np.maximum(config.tail_share, config.deviations * noise)) & (tails.far >= _LEAST_EVENTS)
    return np.where(clear & enough, excess, 0.0)


def of_the_data(job: JobTriples, config: JudgeConfig) -> frozenset[str]:
    """Ranks whose far launches are their data's: those that the other stages of their replica have, too.

    All stages of a replica are given the same samples, and a large one takes long in each of them. GPUs of
    two stages share nothing that would make them stutter together.
    """
    whole, by_role = job.whole, job.by_role
    share = tails_of(whole, by_role).share
    if not (share > config.tail_share).any():
        return frozenset()
    unnamed = ("",) * len(whole.ranks)
    replicas = np.array(whole.coordinates.get("dp", unnamed))
    stages = np.unique(whole.coordinates.get(STAGE, unnamed), return_inverse=True)[1]
    above = by_role.centred(share)
    order = np.flatnonzero(~np.isnan(above) & (replicas != ""))
    order = order[np.argsort(replicas[order], kind="stable")]
    found: set[str] = set()
    for replica in np.split(order, np.flatnonzero(replicas[order][1:] != replicas[order][:-1]) + 1):
        for stage in np.unique(stages[replica]):
            others = above[replica[stages[replica] != stage]]
            # Counted first, as that is cheap: a median is above what half of the values are.
            most = others.size and 2 * np.count_nonzero(others > config.tail_share) >= others.size
            if most and float(np.median(others)) > config.tail_share:
                found |= {whole.ranks[rank] for rank in replica[stages[replica] == stage]}
    return frozenset(found)


def more_work(work: Floats | None, by_role: Segments) -> Floats:
    """Log ratio of each rank's work to the median of its role, shape (ranks,); 0 where most do not say.

    Args:
        work: what each rank did in the same time, shape (ranks,), NaN where unknown; None: nobody says.
    """
    if work is None:
        return np.zeros(by_role.of_row.size)
    said = np.where(work > 0.0, work, np.nan)
    more: Floats = np.nan_to_num(np.log(said / by_role.medians(said)[by_role.of_row]))
    more[~by_role.chosen(2 * by_role.sums(~np.isnan(said)) > by_role.sizes)] = 0.0
    return more


def explained_by_work(shift: Floats, more: Floats) -> Bools:
    """Where a log shift of the mean launch goes along with half as much more work, or with all of it."""
    explained: Bools = (shift > 0.0) & (more >= _WORK_EXPLAINS * shift)
    return explained


def tail_groups(
    tails: Tails, whole: RoleTriples, by_scope: Segments, config: JudgeConfig
) -> dict[int, list[TailGroup]]:
    """Hosts, racks and other groups of ranks with a long tail, by scope; the coordinate that says it best.

    Args:
        by_scope: the ranks that are compared with one another, as `whole` is all of a job.
    """
    candidates: dict[int, list[list[TailGroup]]] = {}
    for name in config.coordinates:
        for scope, groups in _at_values(tails, whole.coordinates.get(name, ()), name, by_scope, config):
            candidates.setdefault(scope, []).append(groups)
    rows = by_scope.slices
    return {scope: _best(tails.at(rows[scope]), of_scope) for scope, of_scope in candidates.items()}


def _best(tails: Tails, candidates: Sequence[list[TailGroup]]) -> list[TailGroup]:
    """Of one scope: those of one coordinate."""
    above = np.maximum(np.nan_to_num(tails.far - float(np.nanmedian(tails.share)) * tails.launches), 0.0)

    def explained(groups: list[TailGroup]) -> float:
        members = np.any([one.members for one in groups], axis=0)
        return float(above[members].sum() / max(above.sum(), 1.0))

    def excess(groups: list[TailGroup]) -> float:
        return min(one.excess for one in groups)

    most = max(map(explained, candidates))
    whole = [groups for groups in candidates if explained(groups) >= _EXPLAINED_TIE * most]
    highest = max(map(excess, whole))
    return min(
        (groups for groups in whole if excess(groups) >= _EXCESS_TIE * highest),
        key=lambda groups: (len(groups), -excess(groups)),
    )


def _at_values(
    tails: Tails, values: Sequence[str], name: str, by_scope: Segments, config: JudgeConfig
) -> Iterator[tuple[int, list[TailGroup]]]:
    """(scope, ranks of it that share a value of one coordinate and have a long tail)."""
    if not values:
        return
    known = ~np.isnan(tails.far)
    names, codes = np.unique(np.asarray(values, dtype=np.str_), return_inverse=True)
    # A cell is a value in a scope; those of a scope lie together.
    cells, cell_of = np.unique(by_scope.of_row * names.size + codes, return_inverse=True)
    cells_of_scope = np.bincount(cells // names.size, minlength=by_scope.count)
    parts = Segments(cells_of_scope)

    def summed(of: Floats) -> Floats:
        return np.bincount(cell_of, np.where(known, of, 0.0), cells.size).astype(np.float64)

    far, launches = summed(tails.far), np.maximum(summed(tails.launches), 1.0)
    share = far / launches
    usual = parts.medians(share)[parts.of_row]
    chance = np.sqrt(np.maximum(usual, 1.0 / launches) / launches)
    noise = np.maximum(chance, parts.deviations(share)[parts.of_row])
    clear = share - usual > np.maximum(config.tail_share, config.deviations * noise)
    # A value for nearly each rank says nothing that the rank does not.
    says = (cells_of_scope >= _LEAST_VALUES) & (2 * cells_of_scope <= by_scope.sizes)
    clear &= says[parts.of_row] & (names[cells % names.size] != "")
    rows = by_scope.slices
    for scope in np.unique(parts.of_row[clear]).tolist():
        own, found = rows[scope], []
        of_scope = tails.at(own)
        for cell in np.flatnonzero(clear & (parts.of_row == scope)):
            members: Bools = (cell_of[own] == cell) & known[own]
            if members.sum() < 2:
                continue
            # One bad rank is that rank: the others must show it too.
            rest = members.copy()
            rest[np.flatnonzero(members)[np.argmax(of_scope.share[members])]] = False
            without = of_scope.far[rest].sum() / max(of_scope.launches[rest].sum(), 1.0)
            if without - usual[cell] > config.tail_share:
                value, excess = str(names[cells[cell] % names.size]), float(share[cell] - usual[cell])
                found.append(TailGroup(name, value, members, excess))
        if found and 2 * len(found) < cells_of_scope[scope]:
            yield scope, found
