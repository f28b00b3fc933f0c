"""What happened to a job since a time: everything that rules and worker have published, put together.

Reads Prometheus only. Nothing is judged anew: a report says what the alerts were made of.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from argus_core import catalogue
from argus_l3_worker.errors import ArgusWorkerError
from argus_l3_worker.read.fetch import together
from argus_l3_worker.read.prometheus import Prometheus, Series, selector
from argus_l3_worker.reports.findings import GroupFinding, Suspect
from argus_l3_worker.reports.subjects import Subject, members_at, members_of_group, subjects
from argus_l3_worker.roles import natural

Points = tuple[tuple[float, float], ...]
"""(Unix seconds, value)."""

_POINTS: Final = 360
_FINEST_STEP: Final = 15.0  # the rules' interval
_WORST_FIRST: Final = ("both", "regression", "jitter", "stable")
_WHOLE_RANK: Final = "all compute kernels"
_RHYTHM_STANDS_OUT: Final = 2.0  # times the median of the job


@dataclass(frozen=True)
class CrossCheck:
    """What EROICA or KAIR find in a rank; `against` is what is usual."""

    rank: str
    name: str
    about: str
    value: float
    against: float


@dataclass(frozen=True)
class Diagnosis:
    """All of it. `gpu_hours` by cause; times are Unix seconds, `changed` None where nothing did."""

    training_job: str
    start: float
    end: float
    ranks: int
    iteration_class: str
    changed: float | None
    slower_by: float
    suspects: tuple[Suspect, ...]
    groups: tuple[GroupFinding, ...]
    cross_checks: tuple[CrossCheck, ...]
    alerts: tuple[str, ...]
    gpu_hours: Mapping[str, float]
    traces: tuple[tuple[str, str, bool], ...]
    """(rank, key, suspect?)."""
    not_judged: tuple[str, ...]
    iteration: Points
    lost_gpus: Points
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


async def diagnose(prometheus: Prometheus, job: str, start: float, end: float) -> Diagnosis:
    """Collect the story of `job` from Unix time `start` to `end`.

    Raises:
        QueryError: Prometheus cannot be asked, or its answer is incomplete.
        ArgusWorkerError: there is no such job in that time.
    """
    step = max(_FINEST_STEP, (end - start) / _POINTS)
    in_job = {"training_job": job}
    seconds = f"{end - start:.0f}s"

    def of(name: str) -> str:
        return selector(name, in_job)

    def over_time(query: str) -> str:
        return f"last_over_time({query}[{seconds}])"

    now = (
        over_time(of(catalogue.RANK_INFO.name)),
        f"max_over_time({of(catalogue.L3_RHYTHM.name)}[{seconds}])",
        f"max_over_time({of(catalogue.L3_EROICA_DISTANCE.name)}[{seconds}])",
        over_time(of(catalogue.L3_TRACE_INFO.name)),
        of(catalogue.L3_ABSTAIN.name),
        f"max_over_time({selector('ALERTS', {**in_job, 'alertstate': 'firing'})}[{seconds}])",
    )
    over = (
        of("job:argus_iteration:class"),
        f"max by (training_job) ({of('job:argus_iteration:regression_ratio')})",
        f"max by (training_job) ({of('job:argus_iteration:regression_split_timestamp_seconds')})",
        of("rank:argus_verdict:active"),
        of("rank:argus_verdict:lost_ratio"),
        of(catalogue.L3_ANOMALY.name),
        of(catalogue.L3_GROUP_SHIFT.name),
        of("job:argus_lost_gpus:current"),
        f"max(rate({of(catalogue.ITERATION_DURATION.name + '_sum')}[2m]) / "
        f"rate({of(catalogue.ITERATION_DURATION.name + '_count')}[2m]))",
    )
    instants, ranges = await asyncio.gather(
        together(prometheus.instant(query, end) for query in now),
        together(prometheus.range(query, start, end, step) for query in over),
    )
    info, rhythm, eroica, traces, abstained, alerts = instants
    classes, ratios, splits, active, lost, anomalies, shifts, gpus, iteration = ranges
    labels = {one.labels["rank"]: one.labels for one in info if one.labels.get("rank")}
    if not labels:
        raise ArgusWorkerError(
            f"no argus_rank_info of job {job} in the time asked for: check --training-job, --since and --time"
        )
    latest = end - 2.0 * step
    nodes = {rank: of_rank.get("node", "") for rank, of_rank in labels.items()}
    costs = {_identity(one.labels): one.points for one in lost}
    suspects = [
        *_of_rules(active, costs, labels, latest, step),
        *_of_l3(anomalies, costs, labels, latest, step),
    ]
    change = _change(ratios, splits)
    usual = statistics.median(one.value for one in rhythm) if rhythm else math.nan
    cross_checks = [
        CrossCheck(one.labels.get("rank", ""), "rhythm", "completions over time", one.value, usual)
        for one in rhythm
        if one.value > _RHYTHM_STANDS_OUT * usual
    ]
    cross_checks += [
        CrossCheck(one.labels.get("rank", ""), "EROICA", one.labels.get("function", ""), one.value, 0.0)
        for one in eroica
        # 0: not as expected, but as all others.
        if one.labels.get("distance") == "differential" and one.value > 0
    ]
    return Diagnosis(
        job,
        start,
        end,
        len(labels),
        _worst_class(classes),
        change[0] if change else None,
        change[1] if change else 0.0,
        tuple(sorted(_merged(suspects), key=_by_weight)),
        tuple(_groups(shifts, labels, latest)),
        tuple(sorted(set(cross_checks), key=lambda one: (one.name, -one.value))),
        tuple(sorted({one.labels.get("alertname", "") for one in alerts} - {""})),
        _gpu_hours(gpus, step),
        tuple(
            sorted(
                {
                    (of_.get("rank", ""), of_.get("trace_key", ""), of_.get("suspect") == "true")
                    for of_ in (one.labels for one in traces)
                },
                key=lambda one: (not one[2], natural(one[0]), one[1]),
            )
        ),
        tuple(sorted({f"{one.labels.get('role', '')}: {one.labels.get('reason', '')}" for one in abstained})),
        iteration[0].points if iteration else (),
        _summed(gpus),
        nodes,
    )


_Costs = Mapping[tuple[tuple[str, str], ...], Points]
"""Share of the iteration over time, by the labels of the verdict."""


def _of_rules(
    active: Iterable[Series],
    costs: _Costs,
    info: Mapping[str, Mapping[str, str]],
    latest: float,
    step: float,
) -> Iterable[Suspect]:
    for one in active:
        of = one.labels
        if of.get("level") == "L3" or of.get("verdict") == "abstain":  # L3 says more about its own
            continue
        where = " ".join(filter(None, (of.get("phase", ""), of.get("group", ""))))
        cost = costs.get(_identity(of), ())
        yield _suspect(one, info, where, of.get("level", ""), math.nan, cost, latest, step)


def _of_l3(
    anomalies: Iterable[Series],
    costs: _Costs,
    info: Mapping[str, Mapping[str, str]],
    latest: float,
    step: float,
) -> Iterable[Suspect]:
    by_kernel = {_of_kernel(dict(labels)): points for labels, points in costs.items()}
    for one in anomalies:
        kernel, stream = one.labels.get("kernel", ""), one.labels.get("stream", "")
        where = _WHOLE_RANK if kernel == "all" else f"{kernel} on {stream}"
        shift = max((value for _, value in one.points), key=abs)
        cost = by_kernel.get(_of_kernel(one.labels), ())
        yield _suspect(one, info, where, "L3", shift, cost, latest, step)


def _of_kernel(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("rank", "kernel", "stream", "cause", "verdict"))


def _suspect(
    series: Series,
    info: Mapping[str, Mapping[str, str]],
    where: str,
    level: str,
    shift: float,
    cost: Points,
    latest: float,
    step: float,
) -> Suspect:
    of, points = series.labels, series.points
    rank, group = of.get("rank", ""), of.get("group", "")
    members = () if rank or not group else members_of_group(group, info)
    ranks = len(info) if not rank and not members else max(len(members), 1)
    return Suspect(
        rank,
        info.get(rank, {}).get("node", ""),
        level,
        of.get("verdict", ""),
        of.get("cause", ""),
        of.get("team", ""),
        where,
        shift,
        max((value for _, value in cost), default=math.nan),
        points[0][0],
        points[-1][0],
        points[-1][0] >= latest,
        "" if rank else group,
        members,
        ranks * step * sum(value for _, value in cost),
    )


def _merged(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Replicas and restarts say the same thing in several series: one suspect."""
    found: dict[tuple[str, ...], Suspect] = {}
    for one in suspects:
        key = one.rank, one.group, one.level, one.verdict, one.cause, one.team, one.where
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
        first=min(one.first, other.first),
        last=max(one.last, other.last),
        active=one.active or other.active,
        gpu_seconds=max(one.gpu_seconds, other.gpu_seconds),
    )


def _by_weight(one: Suspect) -> tuple[object, ...]:
    order = {"culprit": 0, "victim": 1}.get(one.verdict, 2)
    size = 0.0 if math.isnan(one.shift) else abs(one.shift)
    cost = 0.0 if math.isnan(one.lost) else one.lost
    weight = (-cost, one.level, one.where != _WHOLE_RANK, -size)
    return order, not one.active, *weight, natural(one.rank), one.where


def _groups(
    shifts: Iterable[Series], info: Mapping[str, Mapping[str, str]], latest: float
) -> list[GroupFinding]:
    found: dict[tuple[str, ...], GroupFinding] = {}
    for one in shifts:
        key = role, kernel, coordinate, value, cause, team = tuple(
            one.labels.get(name, "") for name in ("role", "kernel", "coordinate", "value", "cause", "team")
        )
        largest = max((shift for _, shift in one.points), key=abs)
        active = one.points[-1][0] >= latest
        members = members_at(role, coordinate, value, info)
        finding = GroupFinding(role, kernel, coordinate, value, cause, team, largest, active, members)
        if key not in found or abs(largest) > abs(found[key].shift):
            found[key] = finding
    return sorted(found.values(), key=lambda finding: (not finding.active, -abs(finding.shift)))


def _worst_class(classes: Iterable[Series]) -> str:
    seen = {one.labels.get("class", "") for one in classes}
    return next((name for name in _WORST_FIRST if name in seen), "unknown")


def _change(ratios: Sequence[Series], splits: Sequence[Series]) -> tuple[float, float] | None:
    """(when, how much slower) of the clearest change point."""
    when = {time: value for one in splits for time, value in one.points}
    known = [(ratio, when[time]) for one in ratios for time, ratio in one.points if time in when]
    if not known:
        return None
    ratio, split = max(known)
    return split, ratio - 1.0


def _gpu_hours(gpus: Iterable[Series], step: float) -> dict[str, float]:
    hours: dict[str, float] = {}
    for one in gpus:
        cause = one.labels.get("cause", "")
        hours[cause] = hours.get(cause, 0.0) + sum(value for _, value in one.points) * step / 3600.0
    return dict(sorted(hours.items(), key=lambda item: -item[1]))


def _summed(series: Iterable[Series]) -> Points:
    total: dict[float, float] = {}
    for one in series:
        for time, value in one.points:
            total[time] = total.get(time, 0.0) + value
    return tuple(sorted(total.items()))


def _identity(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in labels.items() if key != "__name__"))
