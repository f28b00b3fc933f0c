"""One cycle: query, judge, write back. Keeps what must be known from one cycle to the next."""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from argus_core import catalogue, remote_write
from argus_core.remote_write import Labels
from argus_l3_worker import witnesses
from argus_l3_worker.config import Config
from argus_l3_worker.errors import PartialAnswer, QueryError
from argus_l3_worker.judge.group_shifts import GroupHistory, GroupShift
from argus_l3_worker.judge.groups import judge_groups
from argus_l3_worker.judge.role_judgement import RoleJudgement, judge_roles
from argus_l3_worker.judge.tails import of_the_data
from argus_l3_worker.judge.verdicts import History, Verdict, decide
from argus_l3_worker.log import LOGGER, fields
from argus_l3_worker.read.assemble import JobWindow, NotJudged, assemble, roles_of
from argus_l3_worker.read.fetch import fetch_window, mean_seconds
from argus_l3_worker.read.prometheus import Prometheus, Sample, selector
from argus_l3_worker.read.windows import Sighting, Span, due, sightings
from argus_l3_worker.roles import Abstention
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.traces.requests import TraceRequests
from argus_l3_worker.witnesses import Opinions, hear
from argus_l3_worker.write import results
from argus_l3_worker.write.delivery import Delivery

# Finest useful sampling of the window timeline, and its size bound (Prometheus refuses over 11,000 points).
_TIMELINE_STEP_LIMITS = (0.25, 5.0)
_TIMELINE_POINTS = 2_400
_REMEMBERED_WINDOWS = 64
# Of a window's time; the rest is for judging what came.
_ASKING_SHARE = 0.7
# Ranks that are asked what launches in the tail took.
_TAIL_SUSPECTS = 128
_TAIL_PEERS = 64


@dataclass(frozen=True)
class _DueWindow:
    """Unix time at which a window is looked at, when its steps were done, what to call once it is judged."""

    time: float
    span: Span | None
    judged: Callable[[], None]


@dataclass(frozen=True)
class LeftOut:
    """Published modes that were not taken in a job's newest window, and why."""

    training_job: str
    reason: str
    modes: int


@dataclass
class _RoleState:
    history: History
    latest: RoleJudgement | Abstention | None = None


@dataclass
class _JobState:
    """What is known of one job between cycles."""

    roles: dict[str, _RoleState] = field(default_factory=dict)
    judged: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_WINDOWS))
    not_judged: tuple[NotJudged, ...] = ()
    unmarked_until: float = 0.0
    abstentions: tuple[Abstention, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    groups: GroupHistory | None = None


@dataclass
class _Found:
    """What one window says."""

    outcomes: dict[str, RoleJudgement | Abstention]
    groups: list[GroupShift]

    @property
    def ranks(self) -> set[str]:
        """All that were judged."""
        return {rank for of in self._judgements() for rank in of.ranks}

    @property
    def in_tails(self) -> set[str]:
        """Those that have a tail, alone or with their host or rack."""
        alone = {of.ranks[at] for of in self._judgements() for at in np.flatnonzero(of.tail_evidence)}
        return alone | {rank for shift in self.groups if shift.in_tail for rank in shift.ranks}

    def set_tails(self, shifts: Mapping[str, float]) -> None:
        """Raise the evidence of tails to what was measured: log shift of the mean launch by rank."""
        for judgement in self._judgements():
            measured = np.array([shifts.get(rank, 0.0) for rank in judgement.ranks])
            evidence = judgement.tail_evidence
            evidence[:] = np.where(evidence > 0.0, np.maximum(evidence, measured), 0.0)
        for place, shift in enumerate(self.groups):
            of_ranks = [shifts[rank] for rank in shift.ranks if rank in shifts]
            if shift.in_tail and of_ranks:
                self.groups[place] = replace(shift, shift=max(shift.shift, statistics.median(of_ranks)))

    def _judgements(self) -> Iterator[RoleJudgement]:
        return (one for one in self.outcomes.values() if isinstance(one, RoleJudgement))


@dataclass(frozen=True)
class CycleReport:
    """What a cycle found: the newest judgement of each role, and the verdicts over the last windows.

    `delivered` is None where nothing was to be written; `problem` says why it is False.
    """

    time: float
    judgements: tuple[RoleJudgement, ...]
    abstentions: tuple[Abstention, ...]
    not_judged: tuple[NotJudged, ...]
    verdicts: tuple[Verdict, ...]
    group_shifts: tuple[GroupShift, ...]
    opinions: tuple[Opinions, ...]
    left_out: tuple[LeftOut, ...]
    windows_judged: int
    seconds: float
    delivered: bool | None = None
    problem: str = ""


class Worker:
    """Judges all jobs that Prometheus knows.

    Args:
        delivery: None judges without writing.
        traces: asks exporters for traces; None: nobody does.
        monotonic: clock for durations.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        delivery: Delivery | None,
        config: Config,
        telemetry: Telemetry,
        monotonic: Callable[[], float] = time.monotonic,
        traces: TraceRequests | None = None,
    ) -> None:
        self._traces = traces
        self._prometheus = prometheus
        self._delivery = delivery
        self._config = config
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._jobs: dict[str, _JobState] = {}
        self._live: set[Labels] | None = None
        self._last_success: float | None = None
        self._traces_restored = False

    async def cycle(self, stamp: float, at: float, budget: float | None = None) -> CycleReport:
        """Judge what Prometheus held at Unix time `at` and write results stamped `stamp`.

        Args:
            budget: seconds for queries and judging. Kernels that do not fit are left out, the smallest first,
                which an abstention says. None: as long as it takes.

        Raises:
            QueryError: Prometheus could not be asked; nothing is concluded, and nothing ends.
        """
        begun = self._monotonic()
        try:
            if self._delivery is not None and self._live is None:
                self._live = await self._series_of_earlier_workers(at)
            report = await self._judge(at, begun, budget)
        except Exception:
            self._telemetry.cycles.labels("failure").inc()
            self._telemetry.cycle_seconds.set(self._monotonic() - begun)
            raise
        await self._ask_for_traces(report, at)
        delivered, problem = None, ""
        if self._delivery is not None:
            delivered = await self._delivery.send(*self._encode(report, stamp))
            problem = self._delivery.problem
        self._telemetry.cycles.labels("success" if delivered is not False else "failure").inc()
        self._telemetry.cycle_seconds.set(self._monotonic() - begun)
        if delivered is not False:
            self._last_success = stamp
            self._telemetry.last_success.set(stamp)
        counts = {"culprit": 0, "victim": 0}
        for verdict in report.verdicts:
            counts[verdict.verdict] = counts.get(verdict.verdict, 0) + 1
        for verdict_name, count in counts.items():
            self._telemetry.anomalies.labels(verdict_name).set(count)
        return replace(report, delivered=delivered, problem=problem)

    def reconfigure(self, prometheus: Prometheus, delivery: Delivery, config: Config) -> None:
        """Go on with other settings between two cycles; what is known of jobs stays known."""
        self._prometheus, self._delivery, self._config = prometheus, delivery, config

    async def report_failure(self, stamp: float) -> None:
        """After a failed cycle: say when the last good one was, so that rules know how old verdicts are."""
        if self._delivery is not None and self._last_success is not None:
            series = results.of_cycle(0.0, self._last_success, self._config.replica)
            stamp_ms = round(stamp * 1000)
            await self._delivery.send(
                [
                    remote_write.encode_series(labels, value, stamp_ms)
                    for labels, value in series
                    if ("__name__", catalogue.L3_LAST_SUCCESS.name) in labels
                ]
            )

    async def _judge(self, at: float, begun: float, budget: float | None) -> CycleReport:
        matchers = {"training_job": self._config.training_job} if self._config.training_job else {}
        info = await self._prometheus.instant(selector(catalogue.RANK_INFO.name, matchers), at)
        jobs = sorted({sample.labels.get("training_job", "") for sample in info} - {""})
        for gone in self._jobs.keys() - set(jobs):
            del self._jobs[gone]
            with contextlib.suppress(KeyError):  # never had a window
                self._telemetry.kernels_left_out.remove(gone)
        windows_judged = 0
        opinions: list[Opinions] = []
        infos: dict[str, list[Sample]] = {}
        for sample in info:
            infos.setdefault(sample.labels.get("training_job", ""), []).append(sample)
        for number, job in enumerate(jobs):
            state = self._jobs.setdefault(job, _JobState())
            until = None if budget is None else self._share_of(begun + budget, len(jobs) - number)
            state.abstentions = ()
            try:
                windows_judged += await self._judge_job(job, state, infos[job], at, until)
                if self._config.witness.enabled:
                    roles = roles_of(infos[job])
                    opinions.append(await hear(self._prometheus, job, roles, at, self._config.witness))
            except PartialAnswer as error:
                # What was known still holds; the window is looked at again in the next cycle.
                state.abstentions = (Abstention(job, "all", "partial-answer", str(error)),)
        judgements: list[RoleJudgement] = []
        abstentions: list[Abstention] = []
        not_judged: list[NotJudged] = []
        left_out: list[LeftOut] = []
        verdicts: list[Verdict] = []
        group_shifts: list[GroupShift] = []
        for job in jobs:
            state = self._jobs[job]
            not_judged += state.not_judged
            left_out += state.left_out
            abstentions += state.abstentions
            for role_state in state.roles.values():
                if isinstance(role_state.latest, Abstention):
                    abstentions.append(role_state.latest)
                elif role_state.latest is not None:
                    judgements.append(role_state.latest)
            of_groups = state.groups.persistent() if state.groups is not None else []
            group_shifts += of_groups
            in_tails = {rank for shift in of_groups if shift.in_tail for rank in shift.ranks}
            histories = [(role, role_state.history) for role, role_state in state.roles.items()]
            verdicts += decide(job, histories, in_tails)
        return CycleReport(
            at,
            tuple(judgements),
            tuple(abstentions),
            tuple(not_judged),
            tuple(verdicts),
            tuple(group_shifts),
            tuple(opinions),
            tuple(left_out),
            windows_judged,
            self._monotonic() - begun,
        )

    def _share_of(self, deadline: float, parts: int) -> float:
        """When the next of `parts` must be done, so that the last is done by `deadline`."""
        now = self._monotonic()
        return now + (deadline - now) / parts

    async def _judge_job(
        self, job: str, state: _JobState, info: Sequence[Sample], at: float, until: float | None
    ) -> int:
        """Judge the job's windows that are new; return how many."""
        windows = await self._windows_to_judge(job, state, at)
        if not windows and not state.roles:
            roles = set(roles_of(info).values())
            state.abstentions = (
                Abstention(
                    job,
                    roles.pop() if len(roles) == 1 else "all",
                    "no-kernels",
                    f"none of {len(info)} ranks publishes kernel modes: is the kernel channel on?",
                ),
            )
        for number, next_due in enumerate(windows):
            asked_until = None
            if until is not None:
                mine = self._share_of(until, len(windows) - number)
                asked_until = self._monotonic() + _ASKING_SHARE * (mine - self._monotonic())
            fetched = await fetch_window(
                self._prometheus,
                job,
                next_due.time,
                self._config.prometheus,
                asked_until,
                self._monotonic,
                span=next_due.span,
            )
            window = await asyncio.to_thread(assemble, job, fetched.samples, self._config.judge.coordinates)
            found = await asyncio.to_thread(self._found, window)
            await self._measure_tails(job, next_due, found)
            self._take(state, window, found)
            next_due.judged()
            state.left_out = tuple(
                LeftOut(job, reason, modes) for reason, modes in sorted(window.left_out.items())
            )
            if fetched.left_out:
                state.abstentions = (_overload(job, fetched.left_out, fetched.kernels),)
            self._telemetry.kernels_left_out.labels(job).set(len(fetched.left_out))
        return len(windows)

    def _found(self, window: JobWindow) -> _Found:
        judge = self._config.judge
        outcomes: dict[str, RoleJudgement | Abstention] = {a.role: a for a in window.abstentions}
        outcomes |= judge_roles(window.roles, judge, of_the_data(window.roles, judge))
        return _Found(outcomes, judge_groups(window.roles, judge))

    async def _measure_tails(self, job: str, of: _DueWindow, found: _Found) -> None:
        """Replace how much longer launches in the tail took at least by what they took, where that is known.

        Modes say nothing of launches outside of them, the running totals of time do; asked of suspects and of
        some peers alone.
        """
        suspects = found.in_tails
        if not suspects:
            return
        peers = sorted(found.ranks - suspects)
        peers = peers[:: max(1, len(peers) // _TAIL_PEERS)]
        asked = [*sorted(suspects)[:_TAIL_SUSPECTS], *peers]
        mean = await mean_seconds(self._prometheus, job, asked, of.time, of.span)
        usual = [seconds for rank, seconds in mean.items() if rank in peers and seconds > 0.0]
        if usual:
            middle = statistics.median(usual)
            found.set_tails({rank: math.log(own / middle) for rank, own in mean.items() if own > middle})

    def _take(self, state: _JobState, window: JobWindow, found: _Found) -> None:
        judge = self._config.judge
        for gone in state.roles.keys() - found.outcomes.keys():
            del state.roles[gone]
        for name, outcome in found.outcomes.items():
            role_state = state.roles.setdefault(
                name, _RoleState(History(judge.windows, judge.windows_needed, judge.tail_windows))
            )
            role_state.latest = outcome
            role_state.history.add(None if isinstance(outcome, Abstention) else outcome)
        if state.groups is None:
            state.groups = GroupHistory(judge.windows, judge.windows_needed)
        state.groups.add(found.groups)
        state.not_judged = window.not_judged

    async def _windows_to_judge(self, job: str, state: _JobState, at: float) -> list[_DueWindow]:
        config = self._config
        in_job = {"training_job": job}
        steps = await self._prometheus.instant(selector(catalogue.KERNEL_WINDOW_STEPS.name, in_job), at)
        if not steps:
            return []
        if all(sample.value == 0 for sample in steps):
            return self._unmarked_windows(state, at)
        low, high = _TIMELINE_STEP_LIMITS
        step = min(max(config.cycle_seconds / 4.0, low), high)
        step = max(step, config.history_seconds / _TIMELINE_POINTS)
        last_step = selector(catalogue.KERNEL_WINDOW_LAST_STEP.name, in_job)
        timeline = await self._prometheus.range(
            f'count_values("last_step", {last_step})', at - config.history_seconds, at, step
        )
        seen = sightings(timeline)
        if seen and state.judged and seen[-1].last_step < max(state.judged):
            LOGGER.info(fields("job restarted, its history is forgotten", training_job=job))
            state.judged.clear()
            state.roles.clear()
            state.groups = None
        windows: list[Sighting] = due(
            seen, frozenset(state.judged), len(steps), at, config.cycle_seconds, config.judge.windows
        )
        return [
            _DueWindow(window.time, window.span, partial(state.judged.append, window.last_step))
            for window in windows
        ]

    def _unmarked_windows(self, state: _JobState, at: float) -> list[_DueWindow]:
        """Without marked steps windows are told apart by time alone: one each `unmarked_window_seconds`."""
        spacing = self._config.unmarked_window_seconds

        def judged(time: float) -> None:
            state.unmarked_until = time + spacing

        times = [at - back * spacing for back in reversed(range(self._config.judge.windows))]
        return [
            _DueWindow(time, Span(time, spacing), partial(judged, time))
            for time in times
            if time >= state.unmarked_until
        ]

    async def _ask_for_traces(self, report: CycleReport, at: float) -> None:
        """Traces of whom this worker or the rules accuse. Fails a cycle never."""
        if self._traces is None:
            return
        matchers = {"training_job": self._config.training_job} if self._config.training_job else {}
        try:
            if not self._traces_restored:
                own = {**matchers, "replica": self._config.replica}
                earlier = await self._prometheus.instant(selector(catalogue.L3_TRACE_INFO.name, own), at)
                self._traces.restore(earlier, at)
                self._traces_restored = True
            culprits = selector("rank:argus_verdict:active", {**matchers, "verdict": "culprit"})
            accused = await self._prometheus.instant(f"max by (training_job, rank) ({culprits})", at)
            info = await self._prometheus.instant(selector(catalogue.RANK_INFO.name, matchers), at)
        except QueryError as error:
            LOGGER.warning(fields("no traces asked for", reason=error))
            return
        suspects = [(one.training_job, one.rank) for one in report.verdicts if one.verdict == "culprit"]
        suspects += [(one.labels.get("training_job", ""), one.labels.get("rank", "")) for one in accused]
        await self._traces.update(suspects, info, at)

    async def _series_of_earlier_workers(self, at: float) -> set[Labels]:
        """Series that a worker before this one left: this one ends them when they no longer hold."""
        replica = {"replica": self._config.replica}
        found = await asyncio.gather(
            *(self._prometheus.instant(selector(name, replica), at) for name in results.ENDED_BY_ANY_WORKER)
        )
        return {tuple(sorted(sample.labels.items())) for samples in found for sample in samples}

    def _encode(self, report: CycleReport, stamp: float) -> tuple[list[bytes], list[bytes]]:
        """(all else that was found, what rules read)."""
        replica, stamp_ms = self._config.replica, round(stamp * 1000)
        series: dict[Labels, float] = {}
        for judgement in report.judgements:
            series.update(results.of_judgement(judgement, replica))
        series.update(results.of_verdicts(report.verdicts, replica))
        series.update(results.of_group_shifts(report.group_shifts, replica))
        for of_job in report.opinions:
            series.update(witnesses.series_of(of_job, replica))
        series.update(results.of_abstentions(report.abstentions, replica))
        series.update(results.of_cycle(report.seconds, stamp, replica))
        if self._traces is not None:
            series.update(self._traces.published(replica))
        ended = (self._live or set()) - series.keys()
        self._live = set(series)
        verdicts: list[bytes] = []
        others: list[bytes] = []
        for labels in sorted(ended):
            part = verdicts if dict(labels)["__name__"] in results.VERDICTS else others
            part.append(remote_write.encode_stale_marker(labels, stamp_ms))
        for labels, value in results.rounded(series).items():
            part = verdicts if dict(labels)["__name__"] in results.VERDICTS else others
            part.append(remote_write.encode_series(labels, value, stamp_ms))
        return others, verdicts


def _overload(job: str, left_out: Sequence[str], kernels: int) -> Abstention:
    named = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
    return Abstention(
        job,
        "all",
        "overload",
        f"{len(left_out)} of {kernels} kernels, the smallest, are left out ({named}): a cycle has too little "
        "time for them, or prometheus.max_kernels is reached; lengthen cycle_seconds, raise "
        "prometheus.concurrency, or give each training job its own worker",
    )
