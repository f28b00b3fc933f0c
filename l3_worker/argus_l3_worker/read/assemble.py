"""Samples into triples by role. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from argus_l3_worker.read.mode_columns import PLAUSIBLE_EVENTS, ModeColumns
from argus_l3_worker.read.prometheus import Sample
from argus_l3_worker.roles import ANY_ROLE, STAGE, Abstention, coordinates_of, natural
from argus_l3_worker.triples import Floats, Ints, PairTriples, RoleTriples, Window, rank_seconds

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
    return {rank: labels.get("role") or ANY_ROLE for rank, labels in _identities(rank_info).items()}


def _identities(rank_info: Iterable[Sample]) -> dict[str, Mapping[str, str]]:
    return {one.labels["rank"]: one.labels for one in rank_info if one.labels.get("rank")}


def _values(samples: Iterable[Sample]) -> dict[str, float]:
    """By rank."""
    return {one.labels["rank"]: one.value for one in samples if one.labels.get("rank")}


def _column(values: Mapping[str, float], ranks: Sequence[str]) -> Floats:
    """Of these ranks, NaN where there is none."""
    return np.array([values.get(rank, np.nan) for rank in ranks])


def _plausible(events: Floats) -> Floats:
    return np.where((events >= 0.0) & (events <= PLAUSIBLE_EVENTS), events, np.nan)


def assemble(training_job: str, samples: JobSamples, coordinates: Sequence[str] = ()) -> JobWindow:
    """Keep the ranks that describe the most common window and group their triples by role and pair.

    Args:
        coordinates: labels of `argus_rank_info` by which ranks may be grouped.
    """
    info, roles = _identities(samples.rank_info), roles_of(samples.rank_info)
    steps = _values(samples.steps)
    windows = {
        rank: Window(int(last_step), int(steps.get(rank, 0)))
        for rank, last_step in _values(samples.last_step).items()
    }
    members: dict[str, list[str]] = {}
    for rank in sorted(roles, key=natural):
        members.setdefault(roles[rank], []).append(rank)
    kept_of: dict[str, tuple[Window, tuple[str, ...]]] = {}
    abstentions: list[Abstention] = []
    not_judged: list[NotJudged] = []
    for role, ranks in sorted(members.items()):
        not_judged += [NotJudged(role, rank, "no kernel window") for rank in ranks if rank not in windows]
        window = _common_window(training_job, role, [windows.get(rank) for rank in ranks])
        if isinstance(window, Abstention):
            abstentions.append(window)
            continue
        kept_of[role] = window, tuple(rank for rank in ranks if windows.get(rank) == window)
        not_judged += [
            NotJudged(role, rank, f"other window: {windows[rank]} instead of {window}")
            for rank in ranks
            if rank in windows and windows[rank] != window
        ]
    tables_of = _tables([kept for _, kept in kept_of.values()], samples.modes)
    unpublished = _unpublished_share(samples)
    tails, work = _values(samples.tail_events), _values(samples.work)
    found: list[RoleTriples] = []
    for (role, (window, kept)), pairs in zip(kept_of.items(), tables_of, strict=True):
        found.append(
            RoleTriples(
                training_job,
                role,
                window,
                kept,
                pairs,
                _column(unpublished, kept) * rank_seconds(pairs, len(kept)),
                coordinates_of([info[rank] for rank in kept], (STAGE, *coordinates)),
                _plausible(_column(tails, kept)),
                _column(work, kept),
                tuple(info[rank].get("gpu_uuid", "") for rank in kept),
            )
        )
    left_out = Counter(samples.modes.left_out)
    known = np.array([rank in roles for rank in samples.modes.ranks], dtype=bool)
    if strangers := int((~known[samples.modes.rank]).sum()):
        left_out["of a rank without argus_rank_info"] = strangers
    return JobWindow(tuple(found), tuple(abstentions), tuple(not_judged), dict(left_out))


def _common_window(job: str, role: str, windows: Sequence[Window | None]) -> Window | Abstention:
    """The window that most ranks of a role describe, if these are enough; None: a rank describes none."""
    published = Counter(window for window in windows if window is not None)
    if not published:
        return Abstention(job, role, "no-kernels", f"none of {len(windows)} ranks publishes kernel modes")
    # On a tie the newer window: the older one will not be complete again.
    window, agreeing = max(published.items(), key=lambda item: (item[1], item[0].last_step))
    total = published.total()
    if agreeing < _DISAGREE_SHARE * total or (agreeing == 1 and total > 1):
        detail = f"{agreeing} of {total} ranks describe the same window ({window})"
        return Abstention(job, role, "windows-disagree", detail)
    return window


def _unpublished_share(samples: JobSamples) -> dict[str, float]:
    """Most that a rank spent in a pair that it does not publish, as a share of what it publishes, by rank.

    It says this cutoff as a share of all its kernel time, of which it publishes a part.
    """
    if not samples.complete:  # all its kernel time is not known
        return {}
    coverage = _values(samples.coverage)
    return {
        rank: cutoff / covered
        for rank, cutoff in _values(samples.cutoff).items()
        if 0.0 <= cutoff <= 1.0 and 0.0 < (covered := coverage.get(rank, 0.0)) <= 1.0
    }


def _tables(roles: Sequence[Sequence[str]], modes: ModeColumns) -> list[tuple[PairTriples, ...]]:
    """The pairs of each role, by kernel and stream; each role is given by its ranks."""
    borders = np.cumsum([0, *map(len, roles)])
    place = {rank: at for at, rank in enumerate(rank for ranks in roles for rank in ranks)}
    at = np.array([place.get(rank, -1) for rank in modes.ranks], dtype=np.intp)[modes.rank]
    rows = np.flatnonzero(at >= 0)
    rows = rows[np.lexsort((modes.p50[rows], at[rows], modes.pair[rows]))]
    fresh = np.flatnonzero(np.diff(modes.pair[rows])) + 1
    of_pairs = {modes.pairs[modes.pair[part[0]]]: part for part in np.split(rows, fresh) if part.size}
    tables: list[list[PairTriples]] = [[] for _ in roles]
    for (kernel, stream), part in sorted(of_pairs.items()):
        ranks, count, p50, p99 = _rectangles(at[part], modes, part)
        cuts = np.searchsorted(ranks, borders)
        for role in np.flatnonzero(np.diff(cuts)):
            own = slice(cuts[role], cuts[role + 1])
            tables[role].append(
                PairTriples(kernel, stream, ranks[own] - borders[role], count[own], p50[own], p99[own])
            )
    return [tuple(of_role) for of_role in tables]


def _rectangles(at: Ints, modes: ModeColumns, rows: Ints) -> tuple[Ints, Floats, Floats, Floats]:
    """(ranks, count, p50, p99) from the rows of one pair, sorted by rank and then by median."""
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
    return ranks, count, p50, p99
