"""Samples into triples by role. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from argus_l3_worker.groups import STAGE, coordinates_of
from argus_l3_worker.judge import Abstention
from argus_l3_worker.prometheus import Sample
from argus_l3_worker.triples import Floats, PairTriples, RoleTriples, Window

ANY_ROLE = "all"
"""Role of ranks whose `argus_rank_info` names none."""
_DISAGREE_SHARE = 0.5


@dataclass(frozen=True)
class NotJudged:
    """A rank that took no part in a window's judgement."""

    role: str
    rank: str
    reason: str


@dataclass(frozen=True)
class JobSamples:
    """What Prometheus said about one job at one time."""

    rank_info: Sequence[Sample]
    last_step: Sequence[Sample]
    steps: Sequence[Sample]
    events: Sequence[Sample]
    p50: Sequence[Sample]
    p99: Sequence[Sample]
    cutoff: Sequence[Sample] = ()
    coverage: Sequence[Sample] = ()


@dataclass(frozen=True)
class JobWindow:
    """One window of one job, ready to be judged."""

    roles: tuple[RoleTriples, ...]
    abstentions: tuple[Abstention, ...]
    not_judged: tuple[NotJudged, ...]


def roles_of(rank_info: Iterable[Sample]) -> dict[str, str]:
    """Role by rank."""
    return {sample.labels["rank"]: sample.labels.get("role") or ANY_ROLE for sample in rank_info}


def assemble(training_job: str, samples: JobSamples, coordinates: Sequence[str] = ()) -> JobWindow:
    """Keep the ranks that describe the most common window and group their triples by role and pair.

    Args:
        coordinates: labels of `argus_rank_info` by which ranks may be grouped.
    """
    info = {sample.labels["rank"]: sample.labels for sample in samples.rank_info}
    roles = roles_of(samples.rank_info)
    steps = {sample.labels["rank"]: int(sample.value) for sample in samples.steps}
    windows = {
        sample.labels["rank"]: Window(int(sample.value), steps.get(sample.labels["rank"], 0))
        for sample in samples.last_step
    }
    members: dict[str, list[str]] = {}
    for rank in sorted(roles, key=_natural):
        members.setdefault(roles[rank], []).append(rank)
    pairs = _pairs(samples)
    found: list[RoleTriples] = []
    abstentions: list[Abstention] = []
    not_judged: list[NotJudged] = []
    for role, ranks in sorted(members.items()):
        published = Counter(windows[rank] for rank in ranks if rank in windows)
        not_judged += [NotJudged(role, rank, "no kernel window") for rank in ranks if rank not in windows]
        if not published:
            abstentions.append(
                Abstention(
                    training_job, role, "no-kernels", f"none of {len(ranks)} ranks publishes kernel modes"
                )
            )
            continue
        # On a tie the newer window: the older one will not be complete again.
        window, agreeing = max(published.items(), key=lambda item: (item[1], item[0].last_step))
        total = sum(published.values())
        if agreeing < _DISAGREE_SHARE * total or (agreeing == 1 and total > 1):
            abstentions.append(
                Abstention(
                    training_job,
                    role,
                    "windows-disagree",
                    f"{agreeing} of {total} ranks describe the same window ({window})",
                )
            )
            continue
        kept = tuple(rank for rank in ranks if windows.get(rank) == window)
        not_judged += [
            NotJudged(role, rank, f"other window: {windows[rank]} instead of {window}")
            for rank in ranks
            if rank in windows and windows[rank] != window
        ]
        common = coordinates_of([info[rank] for rank in kept], (STAGE, *coordinates))
        tables = _tables(kept, pairs)
        bound = _unpublished(kept, tables, samples)
        found.append(RoleTriples(training_job, role, window, kept, tables, bound, common))
    return JobWindow(tuple(found), tuple(abstentions), tuple(not_judged))


def _unpublished(ranks: Sequence[str], pairs: Iterable[PairTriples], samples: JobSamples) -> Floats:
    """Most seconds of a pair that a rank does not publish: its cutoff share of all its kernel time."""
    seconds = np.zeros(len(ranks))
    for pair in pairs:
        seconds[pair.ranks] += pair.seconds
    cutoff = {sample.labels["rank"]: sample.value for sample in samples.cutoff}
    coverage = {sample.labels["rank"]: sample.value for sample in samples.coverage}
    share = np.array([cutoff.get(rank, np.nan) for rank in ranks])
    covered = np.array([coverage.get(rank, np.nan) for rank in ranks])
    known = (covered > 0.0) & (covered <= 1.0) & (share >= 0.0) & (share <= 1.0)
    return np.where(known, share * seconds / np.where(known, covered, 1.0), np.nan)


_Modes = list[tuple[float, float, float]]  # (p50, p99, count)


def _pairs(samples: JobSamples) -> dict[tuple[str, str], dict[str, _Modes]]:
    """Modes ascending by p50, by pair and rank; only complete triples with events and positive durations."""

    def key(labels: Mapping[str, str]) -> tuple[str, str, str, str]:
        return labels["rank"], labels["kernel"], labels["stream"], labels["mode"]

    p50 = {key(sample.labels): sample.value for sample in samples.p50}
    p99 = {key(sample.labels): sample.value for sample in samples.p99}
    found: dict[tuple[str, str], dict[str, _Modes]] = {}
    for sample in samples.events:
        place = key(sample.labels)
        median, high = p50.get(place, 0.0), p99.get(place, 0.0)
        if sample.value > 0 and median > 0 and high > 0:
            rank, kernel, stream, _ = place
            modes = found.setdefault((kernel, stream), {}).setdefault(rank, [])
            modes.append((median, max(high, median), sample.value))
    for by_rank in found.values():
        for modes in by_rank.values():
            modes.sort()
    return found


def _tables(
    ranks: tuple[str, ...], pairs: Mapping[tuple[str, str], Mapping[str, _Modes]]
) -> tuple[PairTriples, ...]:
    tables = []
    for (kernel, stream), by_rank in sorted(pairs.items()):
        present = [(position, by_rank[rank]) for position, rank in enumerate(ranks) if rank in by_rank]
        if present:
            tables.append(pair_triples(kernel, stream, present))
    return tuple(tables)


def pair_triples(
    kernel: str, stream: str, modes_by_rank: Sequence[tuple[int, Sequence[tuple[float, float, float]]]]
) -> PairTriples:
    """Pad (position of the rank, its modes as (p50, p99, count)) to rectangles."""
    width = max(len(modes) for _, modes in modes_by_rank)
    shape = (len(modes_by_rank), width)
    count, p50, p99 = np.zeros(shape), np.empty(shape), np.empty(shape)
    for row, (_, modes) in enumerate(modes_by_rank):
        used = len(modes)
        table: Floats = np.array(modes, dtype=np.float64)
        p50[row, :used], p99[row, :used], count[row, :used] = table.T
        p50[row, used:], p99[row, used:] = table[-1, 0], table[-1, 1]
    positions = np.array([position for position, _ in modes_by_rank], dtype=np.intp)
    return PairTriples(kernel, stream, positions, count, p50, p99)


def _natural(rank: str) -> tuple[int, str]:
    return (int(rank), "") if rank.isdigit() else (1 << 62, rank)
