"""Samples into triples by role. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from argus_l3_worker.read.mode_columns import PLAUSIBLE_EVENTS, ModeColumns
from argus_l3_worker.read.prometheus import Sample
from argus_l3_worker.roles import ANY_ROLE, STAGE, Abstention, coordinates_of, natural
from argus_l3_worker.triples import Floats, Ints, PairTriples, RoleTriples, Window

_DISAGREE_SHARE = 0.5


@dataclass(frozen=True)
class NotJudged:
    """A rank that took no part in a window's judgement."""

    role: str
    rank: str
    reason: str


@dataclass(frozen=True)
class JobSamples:
    """What Prometheus said about one job at one time.

    `complete` is false where kernels were left out of `modes`.
    """

    rank_info: Sequence[Sample]
    last_step: Sequence[Sample]
    steps: Sequence[Sample]
    modes: ModeColumns
    cutoff: Sequence[Sample] = ()
    coverage: Sequence[Sample] = ()
    tail_events: Sequence[Sample] = ()
    work: Sequence[Sample] = ()
    complete: bool = True


@dataclass(frozen=True)
class JobWindow:
    """One window of one job, ready to be judged.

    `left_out`: modes that were published but not taken, by reason.
    """

    roles: tuple[RoleTriples, ...]
    abstentions: tuple[Abstention, ...]
    not_judged: tuple[NotJudged, ...]
    left_out: Mapping[str, int]


def roles_of(rank_info: Iterable[Sample]) -> dict[str, str]:
    """Role by rank."""
    return {rank: sample.labels.get("role") or ANY_ROLE for rank, sample in _by_rank(rank_info).items()}


def _by_rank(samples: Iterable[Sample]) -> dict[str, Sample]:
    return {sample.labels["rank"]: sample for sample in samples if sample.labels.get("rank")}


def assemble(training_job: str, samples: JobSamples, coordinates: Sequence[str] = ()) -> JobWindow:
    """Keep the ranks that describe the most common window and group their triples by role and pair.

    Args:
        coordinates: labels of `argus_rank_info` by which ranks may be grouped.
    """
    info = {rank: sample.labels for rank, sample in _by_rank(samples.rank_info).items()}
    roles = roles_of(samples.rank_info)
    steps = {rank: int(sample.value) for rank, sample in _by_rank(samples.steps).items()}
    windows = {
        rank: Window(int(sample.value), steps.get(rank, 0))
        for rank, sample in _by_rank(samples.last_step).items()
    }
    tail_events = {
        rank: sample.value
        for rank, sample in _by_rank(samples.tail_events).items()
        if 0.0 <= sample.value <= PLAUSIBLE_EVENTS
    }
    work = {rank: sample.value for rank, sample in _by_rank(samples.work).items()}
    members: dict[str, list[str]] = {}
    for rank in sorted(roles, key=natural):
        members.setdefault(roles[rank], []).append(rank)
    kept_of: dict[str, tuple[Window, tuple[str, ...]]] = {}
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
        kept_of[role] = window, kept
    tables_of = _tables([kept for _, kept in kept_of.values()], samples.modes)
    for (role, (window, kept)), tables in zip(kept_of.items(), tables_of, strict=True):
        common = coordinates_of([info[rank] for rank in kept], (STAGE, *coordinates))
        bound = _unpublished(kept, tables, samples)
        tails = np.array([tail_events.get(rank, np.nan) for rank in kept])
        units = np.array([work.get(rank, np.nan) for rank in kept])
        gpus = tuple(info[rank].get("gpu_uuid", "") for rank in kept)
        found.append(RoleTriples(training_job, role, window, kept, tables, bound, common, tails, units, gpus))
    left_out = Counter(samples.modes.left_out)
    known = np.array([rank in roles for rank in samples.modes.ranks], dtype=bool)
    if strangers := int((~known[samples.modes.rank]).sum()):
        left_out["of a rank without argus_rank_info"] = strangers
    return JobWindow(tuple(found), tuple(abstentions), tuple(not_judged), dict(left_out))


def _unpublished(ranks: Sequence[str], pairs: Iterable[PairTriples], samples: JobSamples) -> Floats:
    """Most seconds of a pair that a rank does not publish: its cutoff share of all its kernel time."""
    if not samples.complete:  # all its kernel time is not known
        return np.full(len(ranks), np.nan)
    seconds = np.zeros(len(ranks))
    for pair in pairs:
        seconds[pair.ranks] += pair.seconds
    cutoff = {rank: sample.value for rank, sample in _by_rank(samples.cutoff).items()}
    coverage = {rank: sample.value for rank, sample in _by_rank(samples.coverage).items()}
    share = np.array([cutoff.get(rank, np.nan) for rank in ranks])
    covered = np.array([coverage.get(rank, np.nan) for rank in ranks])
    known = (covered > 0.0) & (covered <= 1.0) & (share >= 0.0) & (share <= 1.0)
    return np.where(known, share * seconds / np.where(known, covered, 1.0), np.nan)


def _tables(roles: Sequence[Sequence[str]], modes: ModeColumns) -> list[tuple[PairTriples, ...]]:
    """The pairs of each role, by kernel and stream; each role is given by its ranks."""
    place = {rank: (role, at) for role, ranks in enumerate(roles) for at, rank in enumerate(ranks)}
    nowhere = (-1, -1)
    role_of, at_of = (
        np.array([place.get(rank, nowhere) for rank in modes.ranks], dtype=np.intp).reshape(-1, 2).T
    )
    order_of_pairs = np.argsort(np.array([_pair_order(pair) for pair in modes.pairs], dtype=object))
    place_of_pair = np.empty(len(modes.pairs), dtype=np.intp)
    place_of_pair[order_of_pairs] = np.arange(len(modes.pairs))
    role, at, pair = role_of[modes.rank], at_of[modes.rank], place_of_pair[modes.pair]
    rows = np.flatnonzero(role >= 0)
    rows = rows[np.lexsort((modes.p50[rows], at[rows], pair[rows], role[rows]))]
    tables: list[list[PairTriples]] = [[] for _ in roles]
    if rows.size:
        fresh = (np.diff(role[rows]) != 0) | (np.diff(pair[rows]) != 0)
        for part in np.split(rows, np.flatnonzero(fresh) + 1):
            kernel, stream = modes.pairs[modes.pair[part[0]]]
            tables[role[part[0]]].append(_rectangle(kernel, stream, at[part], modes, part))
    return [tuple(of_role) for of_role in tables]


def _pair_order(pair: tuple[str, str]) -> str:
    return "\0".join(pair)


def _rectangle(kernel: str, stream: str, at: Ints, modes: ModeColumns, rows: Ints) -> PairTriples:
    """Rows of one pair, sorted by position of the rank and then by median, as rectangles."""
    ranks, begin, sizes = np.unique(at, return_index=True, return_counts=True)
    row = np.repeat(np.arange(len(ranks)), sizes)
    column = np.arange(len(rows)) - begin[row]
    last = rows[begin + sizes - 1]  # what fills up the modes that a rank lacks
    shape = (len(ranks), int(sizes.max()))
    count = np.zeros(shape)
    p50 = np.repeat(modes.p50[last, None], shape[1], axis=1)
    p99 = np.repeat(modes.p99[last, None], shape[1], axis=1)
    count[row, column], p50[row, column], p99[row, column] = (
        modes.count[rows], modes.p50[rows], modes.p99[rows]
    )  # fmt: skip
    return PairTriples(kernel, stream, ranks.astype(np.intp), count, p50, p99)


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
