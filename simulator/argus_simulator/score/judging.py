"""From what was said about a job, and the truth, to a line of the score.

The rules are those of docs/fault-lab.md, "The score", and they are strict on purpose: an `info` that names
the wrong rank counts against precision, though only a ticket or a page counts as a detection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from argus_simulator.lab.truth import Truth
from argus_simulator.score.claims import SEVERITIES, Claim, incidents, sentences
from argus_simulator.score.job_timeline import JobTimeline
from argus_simulator.score.scene import COMPRESSED, Pace


@dataclass(frozen=True)
class Judgement:
    """What was right and what was not. None: the question does not arise.

    Attributes:
        detected: an alert above info in the fault's interval; None for a control.
        steps, seconds: from the onset to it; None while not detected.
        named: whom any alert of the interval accuses.
        precision, recall: of the accused ranks; recall counts what is above info.
        causes, teams: of the loudest alerts of the interval.
        victims: ranks accused that are none of the culprits.
        accusations: false ones, in words, one for each incident: before the onset, and anywhere in a control.
        alerts: how many alerts those were, not grouped.
        healthy_hours: job-hours in which every accusation is false.
        said: everything that the interval's alerts said.
        alone: whom alerts above info name, but as members of a set of suspects; None: not known.
        sets: the sets of suspects that alerts above info name.
    """

    detected: bool | None
    steps: int | None
    seconds: float | None
    named: tuple[int, ...]
    precision: float | None
    recall: float | None
    causes: tuple[str, ...]
    cause_right: bool | None
    teams: tuple[str, ...]
    team_right: bool | None
    victims: tuple[int, ...]
    accusations: tuple[str, ...]
    alerts: int
    healthy_hours: float
    said: tuple[str, ...]
    alone: tuple[int, ...] | None = None
    sets: tuple[tuple[int, ...], ...] = ()

    def after(self, healthy: Judgement) -> Judgement:
        """With what was falsely said in a healthy run before."""
        return dataclasses.replace(
            self,
            accusations=healthy.accusations + self.accusations,
            alerts=healthy.alerts + self.alerts,
            healthy_hours=healthy.healthy_hours + self.healthy_hours,
        )


def judge_healthy(
    truth: Truth, start: float, end: float, claims: Iterable[Claim], pace: Pace = COMPRESSED
) -> Judgement:
    """A run in which nothing is wrong, whatever is wrong in the scenario."""
    healthy = dataclasses.replace(truth, control=True, findings=())
    return judge(healthy, JobTimeline(start, end, ()), claims, pace)


def judge(truth: Truth, timeline: JobTimeline, claims: Iterable[Claim], pace: Pace = COMPRESSED) -> Judgement:
    """Compare what was said with the truth."""
    about = [claim for claim in claims if claim.about_training]
    onset = timeline.end if truth.control else timeline.begins(_onset_step(truth))
    false = [claim for claim in about if claim.start < onset and _accuses(claim, truth)]
    if truth.control:
        false = [claim for claim in about if _accuses(claim, truth)]
    grouped = incidents(false, apart_s=pace.grace_s)
    accusations = tuple("; ".join(sentences(group)) for group in grouped)
    until = _until(truth, timeline) + pace.grace_s
    during = [] if truth.control else [c for c in about if onset <= c.start <= until]
    loud = [claim for claim in during if claim.above_info]
    first = min((claim.start for claim in loud), default=None)
    named = _ranks(during)
    precision, recall = (None, None) if truth.control else _localisation(truth, named, loud)
    finding = _loudest(loud)
    causes = tuple(sorted({claim.cause for claim in finding} - {""}))
    teams = tuple(sorted({claim.team for claim in finding} - {""}))
    return Judgement(
        detected=None if truth.control else bool(loud),
        steps=timeline.steps_between(onset, first) if first is not None else None,
        seconds=round(first - onset, 3) if first is not None else None,
        named=tuple(sorted(named)),
        precision=precision,
        recall=recall,
        causes=causes,
        cause_right=None if truth.control else _cause_right(truth, causes, loud),
        teams=teams,
        team_right=None if truth.control else _team_right(truth, teams),
        victims=tuple(sorted(named - truth.culprits)),
        accusations=accusations,
        alerts=len(false),
        healthy_hours=max(0.0, onset - timeline.start) / 3600,
        said=sentences(about if truth.control else during),
        alone=tuple(sorted(_ranks(claim for claim in loud if not claim.suspects))),
        sets=tuple(sorted({tuple(sorted(claim.ranks)) for claim in loud if claim.suspects})),
    )


def _onset_step(truth: Truth) -> int:
    return min((finding.onset_step for finding in truth.findings), default=0)


def _until(truth: Truth, timeline: JobTimeline) -> float:
    """The end of the last fault."""
    ends = [finding.end_step for finding in truth.findings]
    return max((timeline.end if end is None else timeline.begins(end) for end in ends), default=timeline.end)


def _accuses(claim: Claim, truth: Truth) -> bool:
    """Whether a healthy job may not be told this: it is louder than info, or it names somebody."""
    if claim.alert in truth.allowed:
        return False
    return claim.above_info or bool(claim.ranks)


def _ranks(claims: Iterable[Claim]) -> frozenset[int]:
    return frozenset[int]().union(*(claim.ranks for claim in claims))


def _loudest(claims: Sequence[Claim]) -> list[Claim]:
    """What the on-call engineer acts on: the pages, or where there is none, the tickets."""
    loudest = max((SEVERITIES.index(claim.severity) for claim in claims), default=0)
    return [claim for claim in claims if SEVERITIES.index(claim.severity) == loudest]


def _localisation(truth: Truth, named: frozenset[int], loud: Sequence[Claim]) -> tuple[float | None, float]:
    """Precision and recall on rank sets. Where nobody alone is to blame, naming nobody is 1 and 1, and naming
    anybody 0 and 0; precision is unknown where nobody was named who should have been."""
    if not truth.culprits:
        if named:
            return 0.0, 0.0
        return (1.0, 1.0) if loud else (None, 0.0)
    precision = len(named & truth.culprits) / len(named) if named else None
    return precision, len(_ranks(loud) & truth.culprits) / len(truth.culprits)


def _cause_right(truth: Truth, causes: Sequence[str], loud: Sequence[Claim]) -> bool:
    """The loudest alerts know only true causes, and of several faults at once none goes unnamed."""
    named = {claim.cause for claim in loud}
    true = {cause for finding in truth.findings for cause in finding.causes}
    every = all(named & set(finding.causes) for finding in truth.findings)
    return bool(causes) and set(causes) <= true and every


def _team_right(truth: Truth, teams: Sequence[str]) -> bool:
    true = {team for finding in truth.findings for team in finding.teams}
    return bool(teams) and set(teams) <= true
