"""What happened to a job since a time: everything that rules and worker have published, put together.

Reads Prometheus only. Nothing is judged anew: a report says what the alerts were made of.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from argus_core import catalogue
from argus_core.causes import HANGS, WORDS
from argus_l3_worker.errors import ArgusWorkerError
from argus_l3_worker.read.fetch import together
from argus_l3_worker.read.prometheus import Prometheus, Sample, Series, selector
from argus_l3_worker.reports.costs import Costs, Ranks, costs_of, ranks_of
from argus_l3_worker.reports.findings import Excuse, GroupFinding, Points, Suspect, Told
from argus_l3_worker.reports.subjects import Subject, members_at, members_of_group, subjects
from argus_l3_worker.roles import natural

_POINTS: Final = 360
_FINEST_STEP: Final = 15.0  # the rules' interval
_WORST_FIRST: Final = ("both", "regression", "jitter", "stable")
_WHOLE_RANK: Final = "all compute kernels"
_RHYTHM_STANDS_OUT: Final = 2.0  # times the median of the job
_LONGEST_HOLE: Final = 300.0
"""Seconds without evidence that part two regressions: so long rules look back themselves."""
_JUDGES_NOBODY: Final = ("activity", "stall", "coverage")
"""What excuses everybody, as nothing can be said: `abstain` tells of it."""
_FINDING: Final = ("rank", "set", "group", "cause", "level")
"""Labels that tell findings apart."""


@dataclass(frozen=True)
class CrossCheck:
    """What EROICA or KAIR find in a rank; `against` is what is usual."""

    rank: str
    name: str
    about: str
    value: float
    against: float


@dataclass(frozen=True)
class Slowdown:
    """The job needed `by` times more for an iteration than before (0.1: 10 %), Unix seconds.

    `before`: it did so already when the time began that was asked for. `until`: None where it still does.
    """

    by: float
    since: float
    before: bool
    until: float | None


@dataclass(frozen=True)
class Diagnosis:
    """All of it; times are Unix seconds."""

    training_job: str
    start: float
    end: float
    ranks: int
    iteration_class: str
    slower: Slowdown | None
    suspects: tuple[Suspect, ...]
    groups: tuple[GroupFinding, ...]
    excused: tuple[Excuse, ...]
    cross_checks: tuple[CrossCheck, ...]
    alerts: tuple[str, ...]
    costs: Costs
    traces: tuple[tuple[str, str, bool], ...]
    """(rank, key, suspect?)."""
    not_judged: tuple[str, ...]
    iteration: Points
    nodes: Mapping[str, str]

    @property
    def culprits(self) -> tuple[Suspect, ...]:
        return tuple(one for one in self.suspects if one.verdict == "culprit")

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Who is accused, what still holds first and then by cost."""
        return subjects(self.culprits, self.groups, self.nodes)

    @property
    def hosts(self) -> Mapping[str, tuple[str, ...]]:
        """Accused ranks by host."""
        found: dict[str, set[str]] = {}
        for subject in self.subjects:
            for rank in subject.ranks:
                found.setdefault(self.nodes.get(rank) or "unknown host", set()).add(rank)
        return {host: tuple(sorted(ranks, key=natural)) for host, ranks in sorted(found.items())}


@dataclass(frozen=True)
class _Job:
    """What every finding is held against.

    Attributes:
        info: `argus_rank_info` by rank.
        latest: what has a sample since then holds at the end, Unix seconds.
        step: between two samples, seconds.
    """

    info: Mapping[str, Mapping[str, str]]
    ranks: Ranks
    latest: float
    step: float

    def active(self, points: Points) -> bool:
        return points[-1][0] >= self.latest

    def peak(self, points: Points) -> tuple[float, float]:
        """(time, value) of the end, or of the largest where that is over."""
        return points[-1] if self.active(points) else max(points, key=lambda point: point[1])

    def members(self, group: str) -> tuple[str, ...]:
        return members_of_group(group, self.info) if group else ()


async def diagnose(prometheus: Prometheus, job: str, start: float, end: float) -> Diagnosis:
    """Collect the story of `job` from Unix time `start` to `end`.

    Raises:
        QueryError: Prometheus cannot be asked, or its answer is incomplete.
        ArgusWorkerError: there is no such job in that time.
    """
    step = max(_FINEST_STEP, (end - start) / _POINTS)
    in_job = {"training_job": job}
    seconds = f"[{end - start:.0f}s]"

    def of(name: str, **matchers: str) -> str:
        return selector(name, {**in_job, **matchers})

    def largest(labels: str, series: str) -> str:
        """Whatever else tells series apart, such as the cluster, is the job's."""
        return f"max by ({labels}) ({series})"

    excuses = selector("rank:argus_exclusion:lost_ratio", in_job, excluded={"by": _JUDGES_NOBODY})
    excused = "rank, group, set, cause, by, by_rank"
    verdicts = "rank:argus_verdict:active"
    hangs = selector(verdicts, {**in_job, "verdict": "culprit"}, cause=HANGS)
    now = (
        f"last_over_time({of(catalogue.RANK_INFO.name)}{seconds})",
        f"max_over_time({of(catalogue.L3_RHYTHM.name)}{seconds})",
        f"max_over_time({of(catalogue.L3_EROICA_DISTANCE.name)}{seconds})",
        f"last_over_time({of(catalogue.L3_TRACE_INFO.name)}{seconds})",
        of(catalogue.L3_ABSTAIN.name),
        largest("phase, group, cause", of(verdicts, verdict="abstain")),
        f"max_over_time({of('ALERTS', alertstate='firing')}{seconds})",
        largest(excused, excuses),
        largest(excused, f"last_over_time({excuses}{seconds})"),
    )
    over = (
        of("job:argus_iteration:class"),
        largest("training_job", of("job:argus_iteration:regression_ratio")),
        largest("training_job", of("rank:argus_evidence:lost_ratio", cause="regression")),
        largest("rank, set, group, cause, team, level", of("rank:argus_finding:lost_ratio")),
        largest("rank, set, group, phase, row, cause, level", of("rank:argus_verdict:lost_ratio")),
        largest("rank, set, group, cause, level, severity", of("rank:argus_decision:lost_ratio")),
        largest("rank, phase, group, cause, team, level", hangs),
        largest("training_job", of("job:argus_stalled:seconds")),
        largest("training_job", of("job:argus_ranks:count")),
        of(catalogue.L3_ANOMALY.name),
        of(catalogue.L3_GROUP_SHIFT.name),
        f"max(rate({of(catalogue.ITERATION_DURATION.name + '_sum')}[2m]) / "
        f"rate({of(catalogue.ITERATION_DURATION.name + '_count')}[2m]))",
    )
    instants, ranges = await asyncio.gather(
        together(prometheus.instant(query, end) for query in now),
        together(prometheus.range(query, start, end, step) for query in over),
    )
    info, rhythm, eroica, traces, left_out, abstained, alerts, excused_now, excused_once = instants
    classes, ratios, regressed, findings, parts, decisions, hanging, stalled, counts, *of_worker = ranges
    anomalies, shifts, iteration = of_worker
    labels = {one.labels["rank"]: one.labels for one in info if one.labels.get("rank")}
    if not labels:
        raise ArgusWorkerError(
            f"no argus_rank_info of job {job} in the time asked for: check --training-job, --since and --time"
        )
    ranks = ranks_of(counts, len(labels))
    known = _Job(labels, ranks, end - 2.0 * step, step)
    suspects = [
        *_of_rules(findings, parts, decisions, known),
        *_hanging(hanging, known),
        *_of_l3(anomalies, known),
    ]
    return Diagnosis(
        job,
        start,
        end,
        len(labels),
        _worst_class(classes),
        _slowdown(ratios, regressed, start, known),
        tuple(sorted(_merged(suspects), key=_by_weight)),
        tuple(_groups(shifts, known)),
        tuple(_excused(excused_now, excused_once)),
        tuple(sorted(set(_cross_checks(rhythm, eroica)), key=lambda one: (one.name, -one.value))),
        tuple(sorted({one.labels.get("alertname", "") for one in alerts} - {""})),
        costs_of(findings, stalled, ranks, step),
        tuple(
            sorted(
                {
                    (of_.get("rank", ""), of_.get("trace_key", ""), of_.get("suspect") == "true")
                    for of_ in (one.labels for one in traces)
                },
                key=lambda one: (not one[2], natural(one[0]), one[1]),
            )
        ),
        tuple(_not_judged(abstained, left_out)),
        iteration[0].points if iteration else (),
        {rank: of_rank.get("node", "") for rank, of_rank in labels.items()},
    )


def _labels(one: Series | Sample, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(one.labels.get(name, "") for name in names)


def _of_rules(
    findings: Iterable[Series], parts: Iterable[Series], decisions: Iterable[Series], job: _Job
) -> Iterator[Suspect]:
    """Findings, each with the phases that it is the sum of, and the alerts about it."""
    phases: dict[tuple[str, ...], list[Series]] = {}
    for one in parts:
        phases.setdefault(_labels(one, (*_whose(one), "cause", "level")), []).append(one)
    alerts: dict[tuple[str, ...], list[Told]] = {}
    for one in decisions:
        points, active = one.points, job.active(one.points)
        told = Told(one.labels.get("severity", ""), points[0][0], points[-1][0], active)
        alerts.setdefault(_labels(one, _FINDING), []).append(told)
    for one in findings:
        mine = phases.get(_labels(one, (*_whose(one), "cause", "level")), [])
        where: dict[str, float] = {}
        for part in mine:
            if part.labels.get("phase") != "all":
                name = " of ".join(filter(None, _labels(part, ("phase", "group"))))
                where[name] = max(where.get(name, 0.0), job.peak(part.points)[1])
        row = mine[0].labels.get("row", "") if mine else ""
        yield replace(
            _suspect(one, job, one.points),
            words=_words(row, one.labels.get("cause", "")),
            where=tuple(sorted(where.items(), key=lambda item: -item[1])),
            told=tuple(sorted(alerts.get(_labels(one, _FINDING), ()), key=lambda told: told.first)),
        )


def _whose(one: Series) -> tuple[str, ...]:
    """The labels that say whom a verdict is about: what is of a rank may lie in several groups."""
    return next(((name,) for name in ("set", "rank", "group") if one.labels.get(name)), ("rank",))


def _hanging(active: Iterable[Series], job: _Job) -> Iterator[Suspect]:
    """A job that stands still loses all of its time, to whoever it waits for."""
    for one in active:
        where = " of ".join(filter(None, _labels(one, ("phase", "group"))))
        everything = tuple((time, 1.0) for time, _ in one.points)
        found = _suspect(one, job, everything)
        yield replace(found, words=_words("", found.cause), where=((where, 1.0),) if where else ())


def _of_l3(anomalies: Iterable[Series], job: _Job) -> Iterator[Suspect]:
    for one in anomalies:
        kernel, stream = one.labels.get("kernel", ""), one.labels.get("stream", "")
        where = _WHOLE_RANK if kernel == "all" else f"{kernel} on {stream}"
        shift = max((value for _, value in one.points), key=abs)
        found = _suspect(one, job, ())
        yield replace(
            found, level="L3", words=_words("", found.cause), where=((where, math.nan),), shift=shift
        )


def _words(row: str, cause: str) -> str:
    """What people read: of the row of the table, where it is known; those of a family begin with its name."""
    return WORDS.get(f"{row}-{cause}") or WORDS.get(row) or WORDS.get(cause, "")


def _suspect(series: Series, job: _Job, cost: Points) -> Suspect:
    """Whom a series is about, since when, and what it costs: `cost` is a share of the time."""
    rank, group, of_set, verdict, cause, team, level = _labels(
        series, ("rank", "group", "set", "verdict", "cause", "team", "level")
    )
    points = series.points
    at, lost = job.peak(cost) if cost else (0.0, math.nan)
    return Suspect(
        rank,
        job.info.get(rank, {}).get("node", ""),
        level,
        verdict or "culprit",  # whom rules find has no other
        cause,
        team,
        "",
        (),
        math.nan,
        lost,
        lost * job.ranks.at(at),
        points[0][0],
        points[-1][0],
        job.active(points),
        "" if rank else group,
        of_set,
        () if rank else job.members(of_set or group),
        sum(share * job.ranks.at(time) for time, share in cost) * job.step,
    )


def _merged(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Replicas and restarts say the same thing in several series: one suspect."""
    found: dict[tuple[object, ...], Suspect] = {}
    for one in suspects:
        # What kernels say is apart by kernel; what rules find has all of its phases.
        kernel = one.where if not math.isnan(one.shift) else ()
        key = one.rank, one.set, one.group, one.level, one.verdict, one.cause, one.team, str(kernel)
        known = found.get(key)
        found[key] = one if known is None else _both(known, one)
    return list(found.values())


def _both(one: Suspect, other: Suspect) -> Suspect:
    def larger(first: float, second: float) -> float:
        return max(first, second, key=lambda value: -1.0 if math.isnan(value) else abs(value))

    return replace(
        one,
        shift=larger(one.shift, other.shift),
        lost=larger(one.lost, other.lost),
        gpus=larger(one.gpus, other.gpus),
        first=min(one.first, other.first),
        last=max(one.last, other.last),
        active=one.active or other.active,
        gpu_seconds=max(one.gpu_seconds, other.gpu_seconds),
    )


def _by_weight(one: Suspect) -> tuple[object, ...]:
    order = {"culprit": 0, "victim": 1}.get(one.verdict, 2)
    size = 0.0 if math.isnan(one.shift) else abs(one.shift)
    cost = 0.0 if math.isnan(one.lost) else one.lost
    whole = any(where == _WHOLE_RANK for where, _ in one.where)
    weight = (-cost, one.level, not whole, -size)
    return order, not one.active, *weight, natural(one.rank), str(one.where)


def _groups(shifts: Iterable[Series], job: _Job) -> list[GroupFinding]:
    found: dict[tuple[str, ...], GroupFinding] = {}
    for one in shifts:
        key = role, kernel, coordinate, value, cause, team = _labels(
            one, ("role", "kernel", "coordinate", "value", "cause", "team")
        )
        largest = max((shift for _, shift in one.points), key=abs)
        members = members_at(role, coordinate, value, job.info)
        finding = GroupFinding(
            role, kernel, coordinate, value, cause, team, largest, job.active(one.points), members
        )
        if key not in found or abs(largest) > abs(found[key].shift):
            found[key] = finding
    return sorted(found.values(), key=lambda finding: (not finding.active, -abs(finding.shift)))


def _excused(now: Iterable[Sample], once: Iterable[Sample]) -> Iterator[Excuse]:
    """Who looked guilty, and what explains it: those who are excused at the end first."""
    names = ("rank", "group", "set", "cause", "by", "by_rank")
    still = {_labels(one, names) for one in now}
    before = {_labels(one, names) for one in once} - still
    for found, active in ((still, True), (before, False)):
        for key in sorted(found, key=lambda key: (natural(key[0]), key[1:])):
            rank, group, of_set, cause, by, by_rank = key
            yield Excuse(rank, group, of_set, cause, by, by_rank, active)


def _cross_checks(rhythm: Sequence[Sample], eroica: Iterable[Sample]) -> Iterator[CrossCheck]:
    usual = statistics.median(one.value for one in rhythm) if rhythm else math.nan
    for one in rhythm:
        if one.value > _RHYTHM_STANDS_OUT * usual:
            yield CrossCheck(one.labels.get("rank", ""), "rhythm", "completions over time", one.value, usual)
    for one in eroica:
        rank, function, distance = _labels(one, ("rank", "function", "distance"))
        # 0: not as expected, but as all others.
        if distance == "differential" and one.value > 0:
            yield CrossCheck(rank, "EROICA", function, one.value, 0.0)


def _not_judged(by_rules: Iterable[Sample], by_worker: Iterable[Sample]) -> Iterator[str]:
    """Of what nothing is said at the end, and why."""
    for phase, group, cause in sorted({_labels(one, ("phase", "group", "cause")) for one in by_rules}):
        yield f"{' of '.join(filter(None, (phase, group))) or 'the whole job'}: {cause}"
    yield from sorted({": ".join(_labels(one, ("role", "reason"))) for one in by_worker})


def _worst_class(classes: Iterable[Series]) -> str:
    seen = {one.labels.get("class", "") for one in classes}
    return next((name for name in _WORST_FIRST if name in seen), "unknown")


def _slowdown(
    ratios: Iterable[Series], evidence: Iterable[Series], start: float, job: _Job
) -> Slowdown | None:
    """The last regression: it began with the first evidence of it, within what was asked for."""
    points = sorted(point for one in evidence for point in one.points)
    if not points:
        return None
    since = points[-1][0]
    for time, _ in reversed(points):
        if since - time > max(_LONGEST_HOLE, 2.0 * job.step):
            break
        since = time
    ratio = [value for one in ratios for time, value in one.points if time >= since]
    lost = max(value for time, value in points if time >= since)
    by = max(ratio, default=1.0 / (1.0 - lost)) - 1.0
    until = None if job.active(tuple(points)) else points[-1][0]
    return Slowdown(by, since, since < start + job.step, until)
