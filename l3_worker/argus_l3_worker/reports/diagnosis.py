"""Who was accused in a job since a time, and what it cost: by what rules and worker have published.

Reads Prometheus only. Nothing is judged anew: a report says what the alerts were made of.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from argus_core import catalogue
from argus_core.abstentions import ABSTENTIONS
from argus_core.causes import HANGS
from argus_l3_worker.errors import ArgusWorkerError
from argus_l3_worker.read.fetch import together
from argus_l3_worker.read.prometheus import Prometheus, Sample, Series, selector
from argus_l3_worker.reports.costs import STALLED, Costs, Points, Ranks, costs_of, ranks_of
from argus_l3_worker.reports.subjects import (
    Accusation,
    Labels,
    Subject,
    listed,
    members_at,
    members_of_group,
    subjects,
)
from argus_l3_worker.roles import natural

_POINTS: Final = 5000
"""Of what accuses: Prometheus gives 11,000, and what lasts for less than a step may fall between two."""
_PLOTTED: Final = 360
"""Of what is only drawn, and reads a series of every rank."""
_FINEST_STEP: Final = 15.0  # the rules' interval
_WORST_FIRST: Final = ("both", "regression", "jitter", "stable")


@dataclass(frozen=True)
class Diagnosis:
    """All of it; times are Unix seconds.

    Attributes:
        job: its labels, `training_job` and `cluster` where that was said.
        clusters: that have a job with these labels.
        info: labels of `argus_rank_info` by rank, at the end where it is there.
        subjects: who was accused, what still holds first and then by cost.
        traces: (rank, key, suspect?).
        not_judged: of what nothing is said at the end, and why.
        rhythm: K-S distance of each rank to its peers at the end, farthest first; empty: not asked for.
        unlike: (rank, part of GPU time, share of the peers that it is unlike) at the end.
        farthest: (rank, kernel, W1 in seconds) of the rank that lies farthest from its role at the end.
        iteration: its duration over time, seconds.
    """

    job: Mapping[str, str]
    start: float
    end: float
    clusters: tuple[str, ...]
    info: Mapping[str, Labels]
    iteration_class: str
    subjects: tuple[Subject, ...]
    alerts: tuple[str, ...]
    costs: Costs
    traces: tuple[tuple[str, str, bool], ...]
    not_judged: tuple[str, ...]
    rhythm: tuple[tuple[str, float], ...]
    unlike: tuple[tuple[str, str, float], ...]
    farthest: tuple[str, str, float] | None
    iteration: Points

    @property
    def training_job(self) -> str:
        return self.job["training_job"]


@dataclass(frozen=True)
class _Job:
    """What every accusation is held against.

    Attributes:
        matchers: of its series.
        info: `argus_rank_info` by rank.
        latest: what has a sample since then holds at the end, Unix seconds.
        step: between two samples, seconds.
    """

    matchers: Mapping[str, str]
    info: Mapping[str, Labels]
    ranks: Ranks
    latest: float
    step: float

    def accusation(
        self, of: Labels, series: str, points: Points, cost: Points, ranks: tuple[str, ...] | None = None
    ) -> Accusation:
        """Args: series: matched by the labels too; cost: share of the time over time, empty: unknown."""
        rank, of_set, group, cause = (of.get(name, "") for name in ("rank", "set", "group", "cause"))
        # Not the largest: while a mean has not forgotten what was, two ways of measuring differ most.
        typical, _ = sorted(cost or points, key=lambda point: point[1])[len(cost or points) // 2]
        if ranks is None:
            ranks = (rank,) if rank else members_of_group(of_set or group, self.info)
        return Accusation(
            rank,
            of_set,
            "" if rank else group,
            cause,
            of.get("team", ""),
            of.get("level", "L3"),
            series,
            ranks,
            cost[-1][1] if cost else math.nan,
            sum(share * self.ranks.at(time) for time, share in cost) * self.step,
            typical,
            points[-1][0],
            points[-1][0] >= self.latest,
        )

    def selector(self, name: str, of: Labels, *labels: str, **more: str) -> str:
        """Of the series with these labels, empty ones as well."""
        return selector(name, {**self.matchers, **{label: of.get(label, "") for label in labels}, **more})


async def diagnose(prometheus: Prometheus, job: Mapping[str, str], start: float, end: float) -> Diagnosis:
    """Collect the story of the job with these labels from Unix time `start` to `end`.

    Raises:
        QueryError: Prometheus cannot be asked, or its answer is incomplete.
        ArgusWorkerError: there is no such job in that time.
    """
    step = _step(start, end, _POINTS)
    seconds = f"[{end - start:.0f}s]"

    def of(name: str, **matchers: str) -> str:
        return selector(name, {**job, **matchers})

    def largest(labels: str, series: str) -> str:
        """Whatever else tells series apart, such as the name of a worker, says the same."""
        return f"max by ({labels}) ({series})"

    verdicts = "rank:argus_verdict:active"
    hangs = selector(verdicts, {**job, "verdict": "culprit"}, cause=HANGS)
    now = (
        f"last_over_time({of(catalogue.RANK_INFO.name)}{seconds})",
        of(catalogue.RANK_INFO.name),
        f"last_over_time({of(catalogue.L3_TRACE_INFO.name)}{seconds})",
        of(catalogue.L3_ABSTAIN.name),
        largest("phase, group, cause", of(verdicts, verdict="abstain")),
        f"max_over_time({of('ALERTS', alertstate='firing')}{seconds})",
        largest("rank", of(catalogue.L3_RHYTHM.name)),
        largest("rank, part", of(catalogue.L3_PATTERN.name)),
        f"topk(1, {largest('rank, kernel', of(catalogue.L3_KERNEL_W1.name))})",
    )
    over = (
        of("job:argus_iteration:class"),
        largest("rank, set, group, cause, team, level", of("rank:argus_finding:lost_ratio")),
        largest("rank, group, cause, team, level", hangs),
        largest("training_job", of("job:argus_stalled:seconds")),
        largest("training_job", of("job:argus_ranks:count")),
        # Who comes late to a collective has less of it: below zero.
        largest("rank, cause, team", f"abs({of(catalogue.L3_ANOMALY.name, verdict='culprit')})"),
        largest("role, coordinate, value, cause, team", f"{of(catalogue.L3_GROUP_SHIFT.name)} > 0"),
    )
    pace = (
        f"max(rate({of(catalogue.ITERATION_DURATION.name + '_sum')}[2m]) / "
        f"rate({of(catalogue.ITERATION_DURATION.name + '_count')}[2m]))"
    )
    instants, ranges = await asyncio.gather(
        together(prometheus.instant(query, end) for query in now),
        together(
            [
                *(prometheus.until(query, start, end, step) for query in over),
                prometheus.range(pace, start, end, _step(start, end, _PLOTTED)),
            ]
        ),
    )
    info, info_now, traces, left_out, abstained, alerts, rhythm, unlike, apart = instants
    classes, findings, hanging, stalled, counts, anomalies, shifts, iteration = ranges
    labels = _by_rank(info) | _by_rank(info_now)  # one that moved is on both hosts in that time
    if not labels:
        raise ArgusWorkerError(
            f"no argus_rank_info of job {job['training_job']} in the time asked for: "
            "check its name, --since and --time"
        )
    ranks = ranks_of(counts, len(labels))
    known = _Job(job, labels, ranks, end - 2.0 * _FINEST_STEP, step)
    seen = {one.labels.get("class", "") for one in classes}
    kept = {
        (of_["rank"], of_["trace_key"], of_.get("suspect") == "true")
        for of_ in (one.labels for one in traces)
    }
    accusations = (
        *_of_rules(findings, known),
        *_hanging(hanging, stalled, known),
        *_of_worker(anomalies, shifts, known),
    )
    return Diagnosis(
        job,
        start,
        end,
        tuple(sorted({one.labels.get("cluster", "") for one in info})),
        labels,
        next((name for name in _WORST_FIRST if name in seen), "unknown"),
        subjects(accusations),
        tuple(sorted({one.labels.get("alertname", "") for one in alerts} - {""})),
        costs_of(findings, stalled, ranks, step),
        tuple(sorted(kept, key=lambda one: (not one[2], natural(one[0]), one[1]))),
        tuple(_not_judged(abstained, left_out)),
        tuple(sorted(((one.labels["rank"], one.value) for one in rhythm), key=lambda one: -one[1])),
        tuple(
            sorted(
                ((one.labels["rank"], one.labels["part"], one.value) for one in unlike),
                key=lambda one: (-one[2], natural(one[0]), one[1]),
            )
        ),
        next(((one.labels["rank"], one.labels["kernel"], one.value) for one in apart), None),
        iteration[0].points if iteration else (),
    )


async def info_at(prometheus: Prometheus, found: Diagnosis, at: float) -> Mapping[str, Labels]:
    """Labels of `argus_rank_info` by rank, of those that were there at Unix time `at` as they were then."""
    if at == found.end:
        return found.info
    then = await prometheus.instant(selector(catalogue.RANK_INFO.name, found.job), at)
    return {**found.info, **_by_rank(then)}


def _by_rank(info: Iterable[Sample]) -> dict[str, Labels]:
    return {one.labels["rank"]: one.labels for one in info if one.labels.get("rank")}


def _step(start: float, end: float, points: int) -> float:
    """Whole seconds between so many points at most."""
    return max(_FINEST_STEP, math.ceil((end - start) / points))


def _of_rules(findings: Iterable[Series], job: _Job) -> Iterator[Accusation]:
    for one in findings:
        series = job.selector(
            "rank:argus_finding:lost_ratio", one.labels, "rank", "set", "group", "cause", "level"
        )
        yield job.accusation(one.labels, series, one.points, one.points)


def _hanging(active: Iterable[Series], stalled: Iterable[Series], job: _Job) -> Iterator[Accusation]:
    """A job that stands still loses all of its time to whoever it waits for, or to nobody who is known."""
    told: set[float] = set()
    for one in active:
        series = job.selector(
            "rank:argus_verdict:active", one.labels, "rank", "group", "cause", verdict="culprit"
        )
        told |= {time for time, _ in one.points}
        everything = tuple((time, 1.0) for time, _ in one.points)
        yield job.accusation(one.labels, series, one.points, everything)
    for one in stalled:
        if one.points[-1][0] not in told:
            of = {"cause": STALLED, "team": "operations", "level": "L1"}
            series = job.selector("job:argus_stalled:seconds", {})
            yield job.accusation(of, series, one.points, tuple((time, 1.0) for time, _ in one.points))


def _of_worker(anomalies: Iterable[Series], shifts: Iterable[Series], job: _Job) -> Iterator[Accusation]:
    for one in anomalies:
        series = job.selector(catalogue.L3_ANOMALY.name, one.labels, "rank", "cause", verdict="culprit")
        yield job.accusation(one.labels, series, one.points, ())
    for one in shifts:
        role, coordinate, value = (one.labels.get(name, "") for name in ("role", "coordinate", "value"))
        series = job.selector(
            catalogue.L3_GROUP_SHIFT.name, one.labels, "role", "coordinate", "value", "cause"
        )
        where = f"{coordinate} {value}" if value else "ranks with nothing in common"
        members = members_at(role, coordinate, value, job.info)
        of = {**one.labels, "group": f"{where} of {role}"}
        yield job.accusation(of, series, one.points, (), members)


def _not_judged(by_rules: Iterable[Sample], by_worker: Iterable[Sample]) -> Iterator[str]:
    """Of what nothing is said at the end, and why."""

    def texts(found: Iterable[Sample], *names: str) -> list[tuple[str, ...]]:
        return sorted({tuple(one.labels.get(name, "") for name in names) for one in found})

    places: dict[str, list[str]] = defaultdict(list)
    for phase, group, cause in texts(by_rules, "phase", "group", "cause"):
        places[cause].append(" of ".join(filter(None, (phase, group))) or "the whole job")
    yield from (f"{ABSTENTIONS.get(cause, cause)}: {listed(where, 4)}" for cause, where in places.items())
    yield from (f"kernels of {': '.join(row)}" for row in texts(by_worker, "role", "reason"))
