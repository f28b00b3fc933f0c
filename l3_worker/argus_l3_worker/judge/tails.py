"""Launches that take far longer than the others of their kernel: what intermittent faults leave behind.

A memory error that is corrected, or a clock that throttles in bursts, stretches a few launches and leaves
every mode where it was. Such launches lie outside of all modes (the exporter counts them) or form a rare mode
of their own beyond the slowest that is usual. What is compared is their share of all launches: of a rank with
its role, and of the ranks of a host or a rack with the others, since bursts that wander within a rack are on
no rank for long.

No paper gives thresholds for these: docs/evidence/far-launches.md says what follows from those chosen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.shifts import robust_deviation
from argus_l3_worker.triples import Bools, Floats, RoleTriples

# As the exporter cuts its modes: at 1.5 times the median and further.
FAR: Final = 1.5
# A rank that reports more work than its peers, by this share of what its kernels took longer, is not slow.
WORK_EXPLAINS: Final = 0.5
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


@dataclass(frozen=True)
class TailGroup:
    """Ranks with a value of a coordinate in common and a long tail; `excess` is a share of launches."""

    coordinate: str
    value: str
    members: Bools
    excess: float


def tails_of(role: RoleTriples) -> Tails:
    """Count the far launches of all compute kernels."""
    ranks = len(role.ranks)
    outside = np.full(ranks, np.nan) if role.tail_events is None else role.tail_events
    far, launches = outside.copy(), np.nan_to_num(outside)
    for pair in role.pairs:
        if pair.kind != "compute":
            continue
        launches[pair.ranks] += pair.events
        if 2 * len(pair.ranks) > ranks:
            # p50 of modes that a rank lacks repeats its slowest.
            usual = float(np.median(pair.p50[:, -1]))
            far[pair.ranks] += np.where(pair.p50 > FAR * usual, pair.count, 0.0).sum(axis=1)
    return Tails(far, launches)


def rank_excess(tails: Tails, config: JudgeConfig) -> Floats:
    """Share of a rank's launches that is far, above what is usual in its role; 0: no evidence."""
    share = tails.share
    known = ~np.isnan(share)
    if known.sum() < config.min_ranks:
        return np.zeros_like(share)
    usual = float(np.median(share[known]))
    chance = np.sqrt(
        np.maximum(usual, 1.0 / np.maximum(tails.launches, 1.0)) / np.maximum(tails.launches, 1.0)
    )
    noise = np.maximum(chance, robust_deviation(share))
    excess = np.nan_to_num(share - usual)
    clear = (excess > np.maximum(config.tail_share, config.deviations * noise)) & (tails.far >= _LEAST_EVENTS)
    return np.where(clear, excess, 0.0)


def of_the_data(roles: Sequence[RoleTriples], config: JudgeConfig) -> frozenset[str]:
    """Ranks whose far launches are their data's: those that the other stages of their replica have, too.

    All stages of a replica are given the same samples, and a large one takes long in each of them. GPUs of
    two stages share nothing that would make them stutter together.
    """
    excess: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for role in roles:
        stages, replicas = (role.coordinates.get(name, ("",) * len(role.ranks)) for name in ("pp", "dp"))
        share = tails_of(role).share
        above = share - np.nanmedian(share) if np.isfinite(share).any() else share
        for rank, stage, replica, own in zip(role.ranks, stages, replicas, above.tolist(), strict=True):
            if replica and own == own:
                excess.setdefault(replica, {}).setdefault(stage, []).append((rank, own))
    found = set()
    for stages_of in excess.values():
        for stage, members in stages_of.items():
            others = [own for other, ranks in stages_of.items() if other != stage for _, own in ranks]
            if others and float(np.median(others)) > config.tail_share:
                found |= {rank for rank, _ in members}
    return frozenset(found)


def explained_by_work(shift: Floats, work: Floats | None) -> Bools:
    """Where a log shift of the mean launch goes along with half as much more work, or with all of it.

    Args:
        work: what each rank did in the same time, shape (ranks,), NaN where unknown; None: nobody says.
    """
    more: Floats = np.zeros_like(shift)
    if work is not None and (known := work > 0.0).sum() * 2 > known.size:
        more[known] = np.log(work[known] / np.median(work[known]))
    explained: Bools = (shift > 0.0) & (more >= WORK_EXPLAINS * shift)
    return explained


def tail_groups(
    tails: Tails, scope: RoleTriples, names: Sequence[str], config: JudgeConfig
) -> list[TailGroup]:
    """Hosts, racks and other groups of ranks with a long tail; the coordinate that says it best.

    Args:
        names: coordinates to look at.
    """
    candidates = [found for name in names if (found := _at_values(tails, scope, name, config))]
    if not candidates:
        return []
    above = np.maximum(np.nan_to_num(tails.far - float(np.nanmedian(tails.share)) * tails.launches), 0.0)

    def explained(groups: list[TailGroup]) -> float:
        members = np.any([one.members for one in groups], axis=0)
        return float(above[members].sum() / above.sum())

    def excess(groups: list[TailGroup]) -> float:
        return min(one.excess for one in groups)

    most = max(map(explained, candidates))
    whole = [groups for groups in candidates if explained(groups) >= _EXPLAINED_TIE * most]
    highest = max(map(excess, whole))
    return min(
        (groups for groups in whole if excess(groups) >= _EXCESS_TIE * highest),
        key=lambda groups: (len(groups), -excess(groups)),
    )


def _at_values(tails: Tails, scope: RoleTriples, name: str, config: JudgeConfig) -> list[TailGroup]:
    values = np.asarray(scope.coordinates.get(name, ()), dtype=np.str_)
    known = ~np.isnan(tails.far)
    if values.size != known.size:
        return []
    names, codes = np.unique(values, return_inverse=True)
    # A value for nearly each rank says nothing that the rank does not.
    if names.size < _LEAST_VALUES or 2 * names.size > values.size:
        return []

    def summed(of: Floats) -> Floats:
        return np.bincount(codes, np.where(known, of, 0.0), names.size).astype(np.float64)

    far, launches = summed(tails.far), np.maximum(summed(tails.launches), 1.0)
    share = far / launches
    usual = float(np.median(share))
    noise = np.maximum(np.sqrt(np.maximum(usual, 1.0 / launches) / launches), robust_deviation(share))
    least = np.maximum(config.tail_share, config.deviations * noise)
    found = []
    for place in np.flatnonzero((share - usual > least) & (names != "")):
        members: Bools = (codes == place) & known
        if members.sum() < 2:
            continue
        # One bad rank is that rank: the others must show it too.
        rest = members.copy()
        rest[np.flatnonzero(members)[np.argmax(tails.share[members])]] = False
        without = tails.far[rest].sum() / max(tails.launches[rest].sum(), 1.0)
        if without - usual > config.tail_share:
            found.append(TailGroup(name, str(names[place]), members, float(share[place] - usual)))
    return found if 2 * len(found) < names.size else []
