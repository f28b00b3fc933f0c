"""One training job: its windows judged one after the other, and what they say together."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from argus_core import catalogue
from argus_core.log import Log
from argus_l3_worker.config import LONGEST_CYCLE_SECONDS, Config
from argus_l3_worker.errors import PartialAnswer, QueryError
from argus_l3_worker.judge.baseline import own_evidence
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.group_shifts import GroupHistory, GroupShift
from argus_l3_worker.judge.groups import judge_groups
from argus_l3_worker.judge.job_triples import JobTriples
from argus_l3_worker.judge.methods import judged_by_method
from argus_l3_worker.judge.role_judgement import RoleJudgement, judge_roles
from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.judge.tails import explained_by_work, of_the_data
from argus_l3_worker.judge.verdicts import History, Verdict, decide
from argus_l3_worker.presence import Presence
from argus_l3_worker.read.assemble import JobWindow, NotJudged, assemble, roles_of
from argus_l3_worker.read.fetch import Fetched, fetch_window, mean_seconds
from argus_l3_worker.read.past_shifts import BLOCKS, RECENT_BLOCKS, Gpu, PastShifts
from argus_l3_worker.read.prometheus import Prometheus, Sample, selector
from argus_l3_worker.read.windows import Span, due, published_windows
from argus_l3_worker.roles import AbstainReason, Abstention
from argus_l3_worker.telemetry import Telemetry

log = Log(__name__)

# Finest useful sampling of the window timeline, and its size bound (Prometheus refuses over 11,000 points).
_TIMELINE_STEP_LIMITS = (0.25, 5.0)
_TIMELINE_POINTS = 2_400
# Of a window's time; the rest is for judging what came.
_ASKING_SHARE = 0.7
# Ranks that are asked what launches in the tail took.
_TAIL_SUSPECTS = 128
_TAIL_PEERS = 64
# What was judged so many windows ago is withdrawn, as after the time that windows are looked for.
_OUTLIVED_WINDOWS = 3.0


@dataclass(frozen=True)
class _DueWindow:
    """Unix time at which a window is looked at, when its steps were done, its last; None: steps unmarked."""

    time: float
    span: Span | None
    last_step: int | None = None


@dataclass(frozen=True)
class SkippedModes:
    """Published modes that were not taken in a job's newest window, and why."""

    training_job: str
    reason: str
    modes: int


@dataclass
class _RoleState:
    history: History
    latest: RoleJudgement | Abstention | None = None


@dataclass
class Found:
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

    def compare_with_past(self, shifts: PastShifts, judge: JudgeConfig) -> None:
        """Hold each GPU against what it was itself."""
        judgements = list(self._judgements())
        gpus = [(gpu, of.role) for of in judgements for gpu in of.gpus]
        if not shifts.past or not gpus:
            return
        by_role = Segments([len(of.ranks) for of in judgements])
        unknown = np.full(BLOCKS, np.nan)
        evidence = own_evidence(
            np.concatenate([of.rank_shift for of in judgements]),
            np.array([shifts.recent.get(gpu, np.nan) for gpu in gpus]),
            np.array([shifts.past.get(gpu, unknown) for gpu in gpus]),
            by_role,
            judge,
            RECENT_BLOCKS,
        )
        for of, own in zip(judgements, by_role.slices, strict=True):
            of.own_evidence[:] = evidence[own]
            alone = (of.own_evidence > 0.0) & (of.rank_evidence <= 0.0)
            of.other_work[:] |= alone & explained_by_work(of.own_evidence, of.more_work)

    def _judgements(self) -> Iterator[RoleJudgement]:
        return (one for one in self.outcomes.values() if isinstance(one, RoleJudgement))


@dataclass(frozen=True)
class CycleContext:
    """What judging needs, as it is in this cycle. `monotonic`: clock for durations."""

    prometheus: Prometheus
    config: Config
    telemetry: Telemetry
    monotonic: Callable[[], float]

    def share_of(self, deadline: float, parts: int) -> float:
        """When the next of `parts` must be done, so that the last is done by `deadline`."""
        now = self.monotonic()
        return now + (deadline - now) / parts


class Job:
    """One training job: judges the windows that are new, and remembers what the last ones said."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._roles: dict[str, _RoleState] = {}
        self._judged = -1
        """Last step of the newest window that was judged."""
        self._unmarked_until = 0.0
        self._newest_two = (math.nan, math.nan)
        """When the last two windows that were judged were published, Unix time."""
        self._older: list[_DueWindow] = []
        """Windows from before a start in which tails are still to be looked for, oldest first."""
        self._groups: GroupHistory | None = None
        self._past = PastShifts()
        self._presence = Presence()
        self._not_looked_at: tuple[Abstention, ...] = ()
        self.not_judged: tuple[NotJudged, ...] = ()
        self.left_out: tuple[SkippedModes, ...] = ()

    @property
    def judgements(self) -> list[RoleJudgement]:
        """The newest of each role."""
        return [role.latest for role in self._roles.values() if isinstance(role.latest, RoleJudgement)]

    @property
    def abstentions(self) -> list[Abstention]:
        """Of the whole job, and of its roles."""
        of_roles = [role.latest for role in self._roles.values() if isinstance(role.latest, Abstention)]
        return [*self._not_looked_at, *of_roles]

    @property
    def telling(self) -> dict[tuple[str, str], list[RoleJudgement]]:
        """By job and role: the newest judgement and the last with evidence, from which verdicts are shown."""
        found: dict[tuple[str, str], list[RoleJudgement]] = {}
        for role, state in self._roles.items():
            latest = [state.latest] if isinstance(state.latest, RoleJudgement) else []
            found[self.name, role] = [*latest, *state.history.telling()]
        return found

    @property
    def group_shifts(self) -> list[GroupShift]:
        """Those that persist over the last windows."""
        return self._groups.persistent() if self._groups is not None else []

    @property
    def verdicts(self) -> list[Verdict]:
        """Over the last windows."""
        in_tails = {rank for shift in self.group_shifts if shift.in_tail for rank in shift.ranks}
        return decide(self.name, [(role, state.history) for role, state in self._roles.items()], in_tails)

    def could_not_be_judged(self, error: Exception) -> None:
        """What was known still holds; the window is looked at again in the next cycle."""
        reason: AbstainReason = "failed"
        if isinstance(error, QueryError):
            reason = "partial-answer" if isinstance(error, PartialAnswer) else "not-answered"
        self._not_looked_at = (Abstention(self.name, "all", reason, str(error)),)

    def is_not_one(self, why: str) -> None:
        """Several jobs have one name: as one they are not judged, and nothing is said of them."""
        self._forget()
        self._not_looked_at = (Abstention(self.name, "all", "not-one-job", why),)

    async def judge(
        self, context: CycleContext, info: Sequence[Sample], at: float, until: float | None
    ) -> int:
        """Judge the job's windows that are new; return how many.

        Args:
            info: `argus_rank_info` of the job.
            at: Unix time.
            until: of `context.monotonic`; kernels that do not fit are left out, the smallest first.

        Raises:
            QueryError: Prometheus could not be asked, or answered in part.
        """
        job, judge = self.name, context.config.judge
        self._not_looked_at = ()
        published = await self._windows_to_judge(context, at)
        windows = published or []
        here = [one.labels.get("rank", "") for one in info]
        absence = await self._presence.absence(context.prometheus, job, here, at)
        if absence is not None:
            self._not_looked_at = (Abstention(job, "all", "ranks-missing", str(absence)),)
            if not absence.waited:
                return 0
        if self._roles:
            del self._older[: len(windows)]
        else:
            self._older, windows = windows[: -judge.windows], windows[-judge.windows :]
        if self._roles and not windows and self._outlived(context.config, at):
            log.info("no window of kernels comes any more, verdicts are withdrawn", training_job=job)
            self._forget_windows()
        if not windows and not self._roles:
            self._not_looked_at = (_without_windows(job, info, published is not None, self._judged),)
        said, begun = self._not_looked_at, context.monotonic()
        for number, next_due in enumerate(windows):
            asked_until = None
            if until is not None:
                mine = context.share_of(until, len(windows) - number)
                asked_until = context.monotonic() + _ASKING_SHARE * (mine - context.monotonic())
            fetched, window, found = await _look(context, job, next_due, asked_until)
            await self.compare_with_past(context.prometheus, next_due.time, found, context.config)
            self.take(window, found, judge)
            if next_due.last_step is None:
                self._unmarked_until = next_due.time + context.config.unmarked_window_seconds
            else:
                self._judged = next_due.last_step
            self._newest_two = (self._newest_two[1], next_due.time)
            self.left_out = tuple(
                SkippedModes(job, reason, modes) for reason, modes in sorted(window.left_out.items())
            )
            if fetched.left_out:
                self._not_looked_at = (
                    *said,
                    _overload(job, fetched.left_out, fetched.kernels),
                )
            context.telemetry.kernels_left_out.labels(job).set(len(fetched.left_out))
        each = (context.monotonic() - begun) / max(len(windows), 1)
        await self._look_for_older_tails(context, until, each)
        return len(windows)

    async def _look_for_older_tails(self, context: CycleContext, until: float | None, each: float) -> None:
        """After a start: bursts of the windows before those that were judged, newest first.

        Else a restart of the worker would withdraw what it takes twelve windows to see. In a large job they
        take several cycles: each as many as there is time for. `each`: seconds that a window takes.
        """
        while self._older and (until is None or context.monotonic() + each < until):
            try:
                _, _, found = await _look(context, self.name, self._older.pop(), until)
            except QueryError as error:
                # What the new windows say is written all the same.
                log.warning("windows before the start not read", training_job=self.name, error=error)
                self._older.clear()
                return
            for name, state in self._roles.items():
                outcome = found.outcomes.get(name)
                state.history.add_older_tails(outcome if isinstance(outcome, RoleJudgement) else None)

    async def compare_with_past(
        self, prometheus: Prometheus, at: float, found: Found, config: Config
    ) -> None:
        """Hold each GPU against what it was itself, as this worker or one before it has written.

        Where that cannot be asked for, peers alone are compared.
        """
        if config.judge.method != "modes":
            return
        accused: set[Gpu] = {
            (of.gpus[place], of.role) for of in self.judgements for place in np.flatnonzero(of.own_evidence)
        }
        try:
            await self._past.read(prometheus, self.name, at, config.cycle_seconds, accused)
        except QueryError as error:
            log.warning("past of GPUs not read", training_job=self.name, error=error)
            return
        await asyncio.to_thread(found.compare_with_past, self._past, config.judge)

    def take(self, window: JobWindow, found: Found, judge: JudgeConfig) -> None:
        """The window was judged: what it says counts among the last ones."""
        for gone in self._roles.keys() - found.outcomes.keys():
            del self._roles[gone]
        for name, outcome in found.outcomes.items():
            role_state = self._roles.get(name)
            if role_state is None:
                history = History(judge.windows, judge.windows_needed, judge.tail_windows)
                role_state = self._roles[name] = _RoleState(history)
            role_state.latest = outcome
            role_state.history.add(None if isinstance(outcome, Abstention) else outcome)
        if self._groups is None:
            self._groups = GroupHistory(judge.windows, judge.windows_needed)
        self._groups.add(found.groups)
        self.not_judged = window.not_judged

    async def _windows_to_judge(self, context: CycleContext, at: float) -> list[_DueWindow] | None:
        """None: no rank publishes any."""
        config, prometheus = context.config, context.prometheus
        limit = config.judge.windows if self._roles else config.judge.tail_windows
        in_job = {"training_job": self.name}
        steps = await prometheus.instant(selector(catalogue.KERNEL_WINDOW_STEPS.name, in_job), at)
        if not steps:
            return None
        if all(sample.value == 0 for sample in steps):
            return self._unmarked_windows(config, at, limit)
        low, high = _TIMELINE_STEP_LIMITS
        step = min(max(config.cycle_seconds / 4.0, low), high)
        step = max(step, config.history_seconds / _TIMELINE_POINTS)
        last_step = selector(catalogue.KERNEL_WINDOW_LAST_STEP.name, in_job)
        timeline = await prometheus.until(
            f'count_values("last_step", {last_step})', at - config.history_seconds, at, step
        )
        seen = published_windows(timeline)
        if seen and seen[-1].last_step < self._judged:
            log.info("job restarted, its history is forgotten", training_job=self.name)
            self._forget()
        windows = due(seen, self._judged, len(steps), at, config.cycle_seconds, limit)
        return [_DueWindow(window.time, window.span, window.last_step) for window in windows]

    def _forget(self) -> None:
        self._judged = -1
        self._presence = Presence()
        self._forget_windows()

    def _forget_windows(self) -> None:
        self._roles.clear()
        self._groups = None
        self.not_judged = self.left_out = ()

    def _outlived(self, config: Config, at: float) -> bool:
        """Whether what was judged says nothing of now: where windows take long, three of them may."""
        before, newest = self._newest_two
        return at - newest > max(config.history_seconds, _OUTLIVED_WINDOWS * (newest - before))

    def _unmarked_windows(self, config: Config, at: float, limit: int) -> list[_DueWindow]:
        """Without marked steps windows are told apart by time alone: one each `unmarked_window_seconds`."""
        spacing = config.unmarked_window_seconds
        oldest = max(self._unmarked_until, at - config.history_seconds)
        times = [at - back * spacing for back in reversed(range(limit))]
        return [_DueWindow(time, Span(time, spacing)) for time in times if time >= oldest]


def find(window: JobWindow, judge: JudgeConfig) -> Found:
    """All that is judged of one window."""
    outcomes: dict[str, RoleJudgement | Abstention] = {one.role: one for one in window.abstentions}
    if not window.roles:
        return Found(outcomes, [])
    job = JobTriples(window.roles)
    tails_of_data = of_the_data(job, judge)
    for role, of in judge_roles(job, judge, tails_of_data).items():
        outcomes[role] = judged_by_method(of, judge) if isinstance(of, RoleJudgement) else of
    return Found(outcomes, judge_groups(job, judge, tails_of_data) if judge.method == "modes" else [])


async def _look(
    context: CycleContext, job: str, of: _DueWindow, asked_until: float | None
) -> tuple[Fetched, JobWindow, Found]:
    """What a window says by itself."""
    config, prometheus = context.config, context.prometheus
    fetched = await fetch_window(
        prometheus, job, of.time, config.prometheus, asked_until, context.monotonic, span=of.span
    )
    window = await asyncio.to_thread(assemble, job, fetched.samples, config.judge.coordinates)
    found = await asyncio.to_thread(find, window, config.judge)
    await _measure_tails(prometheus, job, of, found)
    return fetched, window, found


async def _measure_tails(prometheus: Prometheus, job: str, of: _DueWindow, found: Found) -> None:
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
    mean = await mean_seconds(prometheus, job, asked, of.time, of.span)
    usual = [seconds for rank, seconds in mean.items() if rank in peers and seconds > 0.0]
    if usual:
        middle = statistics.median(usual)
        found.set_tails({rank: math.log(own / middle) for rank, own in mean.items() if own > middle})


def _without_windows(job: str, info: Sequence[Sample], published: bool, judged: int) -> Abstention:
    """Why nothing is known of a job; `judged`: last step of the window that was judged last."""
    roles = set(roles_of(info).values())
    role = roles.pop() if len(roles) == 1 else "all"
    if not published:
        detail = f"none of {len(info)} ranks publishes kernel modes: is the kernel channel on?"
    elif judged >= 0:
        detail = f"no window of kernels came after that of step {judged}: is the kernel channel on?"
    else:
        detail = f"no window of kernels is published by most of {len(info)} ranks yet"
        return Abstention(job, role, "windows-disagree", detail)
    return Abstention(job, role, "no-kernels", detail)


def _overload(job: str, left_out: Sequence[str], kernels: int) -> Abstention:
    named = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
    return Abstention(
        job,
        "all",
        "overload",
        f"{len(left_out)} of {kernels} kernels, the smallest, are left out ({named}): a cycle has too little "
        "time for them, or there are too many; raise prometheus.concurrency, lengthen "
        f"cycle_seconds (up to {LONGEST_CYCLE_SECONDS:.0f}), or give each training job a worker "
        "(--training-job) and name (--worker) of its own",
    )
