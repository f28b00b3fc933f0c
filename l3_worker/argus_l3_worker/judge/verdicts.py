"""From evidence in single windows to verdicts: what persists, who is to blame, and which team acts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from argus_l3_worker.judge.causes import (
    COLLECTIVE_LATE,
    COLLECTIVE_WAIT,
    GPU_MEMORY,
    OF_KIND,
    WORKLOAD,
    team_of,
)
from argus_l3_worker.judge.recurrence import KEPT, NONE, Occurrences, Visits, recurring, together
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.roles import natural
from argus_l3_worker.triples import kind_of

ALL_KERNELS = "all"
"""Value of `kernel` and `stream` where a verdict is about all compute kernels of a rank."""

Key = tuple[str, str, str]
"""(rank, kernel, stream)."""
_FORGOTTEN: Final = 0.01
"""Windows of a rank that count no more among those of a job."""


@dataclass(frozen=True)
class Verdict:
    """One `argus_l3_anomaly`.

    Attributes:
        shift: signed log shift in the newest window with evidence.
        windows, looked_at: windows with evidence, of how many.
    """

    training_job: str
    role: str
    rank: str
    kernel: str
    stream: str
    cause: str
    verdict: str
    team: str
    shift: float
    windows: int
    looked_at: int


@dataclass(frozen=True)
class WindowEvidence:
    """What one window said: signed log shifts by key, slower or faster.

    Attributes:
        classes: what else is known of a key: the cause of a tail, or `workload`.
        tails: log shift by rank of launches far beyond the usual, which come and go.
        ranks: how many were looked at for these.
        work_spread: log ratio of the busiest to the least busy ranks' work; 0 where work is even.
    """

    shifts: dict[Key, float] = field(default_factory=dict)
    classes: dict[Key, str] = field(default_factory=dict)
    tails: dict[str, float] = field(default_factory=dict)
    ranks: int = 0
    work_spread: float = 0.0


def evidence_of(judgement: RoleJudgement) -> WindowEvidence:
    """The evidence of one judged window."""
    ranks, spread = len(judgement.ranks), judgement.work_spread
    of_ranks = judgement.rank_evidence, judgement.own_evidence, judgement.tail_evidence, judgement.other_work
    # Of 2,560 roles nearly all have none: asked once, not array by array.
    if not np.concatenate([*of_ranks, *(pair.evidence for pair in judgement.pairs)]).any():
        return WindowEvidence(ranks=ranks, work_spread=spread)
    shifts: dict[Key, float] = {}
    # Against its peers; where these say nothing, against what the GPU itself was.
    peers, own = judgement.rank_evidence, judgement.own_evidence
    whole = np.where((peers > 0.0) | (own == 0.0), peers, own)
    for position in np.flatnonzero(whole):
        key = (judgement.ranks[position], ALL_KERNELS, ALL_KERNELS)
        shifts[key] = float(whole[position])
    classes: dict[Key, str] = {
        (judgement.ranks[position], ALL_KERNELS, ALL_KERNELS): WORKLOAD
        for position in np.flatnonzero(judgement.other_work)
    }
    for pair in judgement.pairs:
        for index in np.flatnonzero(pair.evidence):
            rank = judgement.ranks[pair.ranks[index]]
            key = rank, pair.kernel, pair.stream
            shifts[key] = float(pair.evidence[index])
            if pair.other_count[index] or judgement.other_work[pair.ranks[index]]:
                classes[key] = WORKLOAD
            elif pair.in_tail[index] and pair.kind == "compute":
                classes[key] = GPU_MEMORY
    tails = {
        judgement.ranks[position]: float(judgement.tail_evidence[position])
        for position in np.flatnonzero(judgement.tail_evidence)
    }
    return WindowEvidence(shifts, classes, tails, ranks, spread)


class History:
    """The last windows of one role; a verdict is what `needed` of them say with the same sign.

    Tails are looked for in the last `tail_windows`: between two bursts nothing is seen of them.
    """

    def __init__(self, windows: int, needed: int, tail_windows: int = 0) -> None:
        self._all: deque[WindowEvidence] = deque(maxlen=max(tail_windows, windows))
        self._past: dict[str, Occurrences] = {}
        self._past_looked_at = 0.0
        self._newest_past: frozenset[str] = frozenset()
        self._telling: deque[RoleJudgement] = deque(maxlen=windows)
        self._recent = windows
        self.needed = needed

    def add(self, judgement: RoleJudgement | None) -> None:
        """Take the next window; older ones fall out. None, a window that was not judged, has no evidence."""
        if len(self._all) == self._all.maxlen:
            self._remember(self._all[0])
        window = WindowEvidence() if judgement is None else evidence_of(judgement)
        self._all.append(window)
        if judgement is not None and (window.shifts or window.tails):
            self._telling.appendleft(judgement.telling())

    def telling(self) -> Sequence[RoleJudgement]:
        """The last judgements with evidence, newest first: one of them has what a verdict is about."""
        return self._telling

    def _remember(self, window: WindowEvidence) -> None:
        """The oldest window falls out: of its tails that remains what visits are like in this job."""
        self._past = {rank: one * KEPT for rank, one in self._past.items() if one.windows > _FORGOTTEN}
        for rank in window.tails:
            begun = float(rank not in self._newest_past)
            self._past[rank] = self._past.get(rank, NONE) + Occurrences(1.0, begun)
        self._newest_past = frozenset(window.tails)
        self._past_looked_at = KEPT * self._past_looked_at + window.ranks

    def add_older_tails(self, judgement: RoleJudgement | None) -> None:
        """Take the window before the oldest that is known, for its tails."""
        if len(self._all) != self._all.maxlen:
            whole = WindowEvidence() if judgement is None else evidence_of(judgement)
            self._all.appendleft(WindowEvidence(tails=whole.tails, ranks=whole.ranks))

    @property
    def _windows(self) -> list[WindowEvidence]:
        """Those in which all else than tails is looked for."""
        return list(self._all)[-self._recent :]

    @property
    def tail_windows(self) -> int:
        """Windows in which tails were looked for."""
        return len(self._all)

    def tails(self) -> dict[str, list[float]]:
        """Log shifts by rank in the windows that had launches far beyond the usual."""
        seen: dict[str, list[float]] = {}
        for window in self._all:
            for rank, shift in window.tails.items():
                seen.setdefault(rank, []).append(shift)
        return seen

    def visits(self) -> Visits:
        """The same as windows and runs of windows, by rank."""
        windows, runs = Counter[str](), Counter[str]()
        before = set[str]()
        for window in self._all:
            windows.update(window.tails.keys())
            runs.update(window.tails.keys() - before)
            before = set(window.tails)
        lately = {rank: Occurrences(windows[rank], runs[rank], len(self._all)) for rank in windows}
        return Visits(lately, sum(window.ranks for window in self._all))

    def past_visits(self) -> Visits:
        """Of the windows before the last ones."""
        return Visits(self._past, self._past_looked_at)

    def work_spread(self) -> tuple[float, int]:
        """(newest log spread of uneven work, windows that show it); 0 where too few do."""
        uneven = [window.work_spread for window in self._windows if window.work_spread > 0.0]
        return (uneven[-1], len(uneven)) if len(uneven) >= self.needed else (0.0, len(uneven))

    def class_of(self, key: Key) -> str:
        """The cause of a tail, or `workload`, where the newest window with evidence says so, else empty."""
        newest = next((window for window in reversed(self._windows) if key in window.shifts), None)
        return newest.classes.get(key, "") if newest is not None else ""

    def persistent(self) -> tuple[dict[Key, tuple[float, int]], int]:
        """(shift and windows by key, windows looked at)."""
        found: dict[Key, tuple[float, int]] = {}
        seen: dict[Key, list[float]] = {}
        for window in self._windows:
            for key, shift in window.shifts.items():
                seen.setdefault(key, []).append(shift)
        for key, shifts in seen.items():
            newest = shifts[-1]
            agreeing = sum(1 for shift in shifts if shift * newest > 0.0)
            if agreeing >= self.needed:
                found[key] = (newest, agreeing)
        return found, len(self._windows)


def decide(
    training_job: str,
    histories: Iterable[tuple[str, History]],
    in_tail_groups: Collection[str] = (),
) -> list[Verdict]:
    """Verdicts of one job over all its roles.

    * compute slower: culprit, gpu-compute. Faster kernels are no fault.
    * copies slower: culprit, gpu-transfer.
    * slower in the p99 alone, or in few launches far beyond the others: culprit, gpu-memory. A median would
      hide what comes in bursts. Where a whole host or rack has them (`in_tail_groups`), that is the finding.
    * slower, and with more work in the same steps: workload, which is for the algorithm team; the GPU may be
      sound. Work that is uneven over the role, at the same speed: workload of the job, which names no rank.
    * collectives are inverted: who enters late has the shortest one. They never accuse alone, since healthy
      ranks differ by factors (docs/evidence/real-traces.md): beside another verdict they confirm it
      (collective-late), or mark the rank that waits for it (collective-wait, victim).
    """
    accused: list[Verdict] = []
    collectives: list[Verdict] = []
    histories = list(histories)
    stuttering = _stuttering([history for _, history in histories], in_tail_groups)
    for role, history in histories:
        found, looked_at = history.persistent()

        def verdict(key: Key, cause: str, who: str, shift: float, windows: int, of: int) -> Verdict:
            rank, kernel, stream = key
            named = training_job, role, rank, kernel, stream  # noqa: B023, called at once
            return Verdict(*named, cause, who, team_of(cause), shift, windows, of)

        for key, (shift, windows) in sorted(found.items()):
            kind = kind_of(key[1])  # of all kernels: compute
            if kind == "collective":
                cause, who = (COLLECTIVE_LATE, "culprit") if shift < 0.0 else (COLLECTIVE_WAIT, "victim")
                collectives.append(verdict(key, cause, who, shift, windows, looked_at))
            elif shift > 0.0:
                cause = history.class_of(key) or OF_KIND[kind]
                accused.append(verdict(key, cause, "culprit", shift, windows, looked_at))
        slow = {one.rank for one in accused}
        for rank, shifts in sorted(history.tails().items()):
            if rank in stuttering and rank not in slow:
                stuttering -= {rank}  # one that moved between roles is told of once
                key, of = (rank, ALL_KERNELS, ALL_KERNELS), history.tail_windows
                accused.append(verdict(key, GPU_MEMORY, "culprit", max(shifts), len(shifts), of))
        spread, windows = history.work_spread()
        if spread > 0.0:
            key = "", ALL_KERNELS, ALL_KERNELS
            accused.append(verdict(key, WORKLOAD, "culprit", spread, windows, looked_at))
    guilty = {one.rank for one in accused if one.rank}
    confirming = [one for one in collectives if guilty and (one.verdict == "culprit") == (one.rank in guilty)]
    return accused + confirming


def _stuttering(histories: Sequence[History], in_tail_groups: Collection[str]) -> frozenset[str]:
    """Ranks to which launches far beyond the usual come back, more than to the others of the job."""
    needed = min((history.needed for history in histories), default=0)
    lately = together((history.visits() for history in histories), in_tail_groups)
    past = together((history.past_visits() for history in histories), in_tail_groups)
    return recurring(lately, past, needed)


def culprits(verdicts: Sequence[Verdict]) -> list[str]:
    """Ranks that some verdict calls the culprit, in order."""
    ranks = {verdict.rank for verdict in verdicts if verdict.verdict == "culprit" and verdict.rank}
    return sorted(ranks, key=natural)
