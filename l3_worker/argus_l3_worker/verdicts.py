"""From evidence in single windows to verdicts: what persists, who is to blame, and which team acts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from argus_l3_worker.judge import RoleJudgement

ALL_KERNELS = "all"
"""Value of `kernel` and `stream` where a verdict is about all compute kernels of a rank."""

Key = tuple[str, str, str]
"""(rank, kernel, stream)."""


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

    `classes` names what else is known of a key: `tail` or `workload`.
    """

    shifts: dict[Key, float]
    kinds: dict[tuple[str, str], str]
    classes: dict[Key, str] = field(default_factory=dict)


def evidence_of(judgement: RoleJudgement) -> WindowEvidence:
    """The evidence of one judged window."""
    shifts: dict[Key, float] = {}
    for position in np.flatnonzero(judgement.rank_evidence):
        key = (judgement.ranks[position], ALL_KERNELS, ALL_KERNELS)
        shifts[key] = float(judgement.rank_evidence[position])
    kinds: dict[tuple[str, str], str] = {(ALL_KERNELS, ALL_KERNELS): "compute"}
    classes: dict[Key, str] = {}
    for pair in judgement.pairs:
        kinds[pair.kernel, pair.stream] = pair.kind
        for index in np.flatnonzero(pair.evidence):
            rank = judgement.ranks[pair.ranks[index]]
            key = rank, pair.kernel, pair.stream
            shifts[key] = float(pair.evidence[index])
            if pair.other_count[index]:
                classes[key] = "workload"
            elif pair.in_tail[index]:
                classes[key] = "tail"
    return WindowEvidence(shifts, kinds, classes)


class History:
    """The last windows of one role; a verdict is what `needed` of them say with the same sign."""

    def __init__(self, windows: int, needed: int) -> None:
        self._windows: deque[WindowEvidence] = deque(maxlen=windows)
        self._needed = needed

    def add(self, judgement: RoleJudgement | None) -> None:
        """Take the next window; older ones fall out. None, a window that was not judged, has no evidence."""
        self._windows.append(WindowEvidence({}, {}) if judgement is None else evidence_of(judgement))

    def class_of(self, key: Key) -> str:
        """`tail` or `workload` where the newest window with evidence says so, else empty."""
        newest = next((window for window in reversed(self._windows) if key in window.shifts), None)
        return newest.classes.get(key, "") if newest is not None else ""

    def persistent(self) -> tuple[dict[Key, tuple[float, int]], dict[tuple[str, str], str], int]:
        """(shift and windows by key, kinds, windows looked at)."""
        found: dict[Key, tuple[float, int]] = {}
        kinds: dict[tuple[str, str], str] = {}
        seen: dict[Key, list[float]] = {}
        for window in self._windows:
            kinds.update(window.kinds)
            for key, shift in window.shifts.items():
                seen.setdefault(key, []).append(shift)
        for key, shifts in seen.items():
            newest = shifts[-1]
            agreeing = sum(1 for shift in shifts if shift * newest > 0.0)
            if agreeing >= self._needed:
                found[key] = (newest, agreeing)
        return found, kinds, len(self._windows)


def decide(training_job: str, histories: Iterable[tuple[str, History]]) -> list[Verdict]:
    """Verdicts of one job over all its roles.

    * compute slower: culprit, gpu-compute. Faster kernels are no fault.
    * copies slower: culprit, gpu-transfer.
    * slower in the p99 alone: culprit, tail. A median would hide what comes in bursts.
    * slower, and run another number of times in the same steps: workload. The rank has other work to do,
      which is for the algorithm team; its GPU may be sound.
    * collectives are inverted: who enters late has the shortest one. They never accuse alone, since healthy
      ranks differ by 100-220 % (traces/README.md): beside another verdict they confirm it (collective-late),
      or mark the rank that waits for it (collective-wait, victim).
    """
    accused: list[Verdict] = []
    collectives: list[Verdict] = []
    for role, history in histories:
        found, kinds, looked_at = history.persistent()
        for (rank, kernel, stream), (shift, windows) in sorted(found.items()):
            kind = kinds[kernel, stream]
            if kind == "collective":
                cause, verdict = (
                    ("collective-late", "culprit") if shift < 0.0 else ("collective-wait", "victim")
                )
            else:
                by_kind = "gpu-transfer" if kind == "transfer" else "gpu-compute"
                cause, verdict = history.class_of((rank, kernel, stream)) or by_kind, "culprit"
            one = Verdict(
                training_job,
                role,
                rank,
                kernel,
                stream,
                cause,
                verdict,
                "algorithm" if cause == "workload" else "operations",
                shift,
                windows,
                looked_at,
            )
            if kind == "collective":
                collectives.append(one)
            elif shift > 0.0:
                accused.append(one)
    guilty = {verdict.rank for verdict in accused}
    confirming = [one for one in collectives if guilty and (one.verdict == "culprit") == (one.rank in guilty)]
    return accused + confirming


def culprits(verdicts: Sequence[Verdict]) -> list[str]:
    """Ranks that some verdict calls the culprit, in order."""
    ranks = {verdict.rank for verdict in verdicts if verdict.verdict == "culprit"}
    return sorted(ranks, key=lambda rank: (len(rank), rank))
