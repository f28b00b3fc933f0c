"""One cycle: query, judge, write back. Keeps what must be known from one cycle to the next."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from argus_core import catalogue, remote_write
from argus_core.log import Log
from argus_core.remote_write import Labels
from argus_l3_worker.config import Config
from argus_l3_worker.cross_checks import CrossChecks, cross_checks
from argus_l3_worker.cross_checks import series_of as series_of_cross_checks
from argus_l3_worker.errors import PartialAnswer, QueryError
from argus_l3_worker.identity import ambiguity
from argus_l3_worker.job import CycleContext, Job, SkippedModes
from argus_l3_worker.judge.group_shifts import GroupShift
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.verdicts import Verdict
from argus_l3_worker.read.assemble import NotJudged
from argus_l3_worker.read.prometheus import Prometheus, Sample, selector
from argus_l3_worker.roles import Abstention, stage_of
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.traces.requests import TraceRequests
from argus_l3_worker.write import results
from argus_l3_worker.write.delivery import Delivery

log = Log(__name__)
_Told = TypeVar("_Told", Verdict, GroupShift)


@dataclass(frozen=True, repr=False)  # asyncio.run writes out what its task returns: 25 s of 10,240 ranks
class CycleReport:
    """What a cycle found: the newest judgement of each role, and the verdicts over the last windows.

    `delivered` is None where nothing was to be written; `problem` says why it is False.
    """

    time: float
    judgements: tuple[RoleJudgement, ...]
    telling: Mapping[tuple[str, str], Sequence[RoleJudgement]]
    abstentions: tuple[Abstention, ...]
    not_judged: tuple[NotJudged, ...]
    verdicts: tuple[Verdict, ...]
    group_shifts: tuple[GroupShift, ...]
    cross_checks: tuple[CrossChecks, ...]
    left_out: tuple[SkippedModes, ...]
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
        self._jobs: dict[str, Job] = {}
        self._clusters: dict[str, list[str]] = {}
        """Of each job, as its ranks' series say."""
        self._live: set[Labels] | None = None
        self._last_success: float | None = None
        self._traces_restored = False
        self._of_no_job: tuple[Abstention, ...] = ()
        """Why nothing was judged in the last cycle, where no job is known."""

    async def cycle(self, stamp: float, at: float, budget: float | None = None) -> CycleReport:
        """Judge what Prometheus held at Unix time `at` and write results stamped `stamp`.

        Args:
            budget: seconds for queries and judging. Kernels that do not fit are left out, the smallest first,
                which an abstention says. None: as long as it takes.

        Raises:
            QueryError: Prometheus could not be asked; nothing is concluded, and nothing ends.
        """
        begun = self._monotonic()
        self._of_no_job = ()
        try:
            if self._delivery is not None and self._live is None:
                self._live = await self._series_of_earlier_workers(at)
            info = await self._prometheus.instant(
                selector(catalogue.RANK_INFO.name, self._config.matchers), at
            )
            report = await self._judge(info, at, begun, budget)
        except Exception as error:
            if isinstance(error, PartialAnswer):  # about all jobs: that about one is its own reason alone
                for job in self._jobs.values():
                    job.could_not_be_judged(error)
                if not self._jobs:
                    self._of_no_job = (Abstention("", "all", "partial-answer", str(error)),)
            self._telemetry.cycles.labels("failure").inc()
            self._telemetry.cycle_seconds.set(self._monotonic() - begun)
            raise
        await self._ask_for_traces(report, info, at)
        delivered, problem = None, ""
        if self._delivery is not None:
            encoded = await asyncio.to_thread(self._encode, report, stamp)
            delivered = await self._delivery.send(*encoded)
            problem = self._delivery.problem
        self._telemetry.cycles.labels("success" if delivered is not False else "failure").inc()
        self._telemetry.cycle_seconds.set(self._monotonic() - begun)
        if delivered is not False:
            self._last_success = stamp
            self._telemetry.last_success.set(stamp)
        said = [verdict.verdict for verdict in report.verdicts]
        for who in ("culprit", "victim"):
            self._telemetry.anomalies.labels(who).set(said.count(who))
        return replace(report, delivered=delivered, problem=problem)

    def reconfigure(self, prometheus: Prometheus, delivery: Delivery, config: Config) -> None:
        """Go on with other settings between two cycles; what is known of jobs stays known."""
        self._prometheus, self._delivery, self._config = prometheus, delivery, config

    async def report_failure(self, stamp: float) -> None:
        """After a failed cycle: say when the last good one was, so that rules know how old verdicts are.

        And why no job was judged, if it came so far; the next good cycle ends that.
        """
        if self._delivery is None:
            return
        name, stamp_ms = self._config.worker, round(stamp * 1000)
        said = [*self._of_no_job, *(one for job in self._jobs.values() for one in job.abstentions)]
        abstained = {self._placed(labels): value for labels, value in results.of_abstentions(said, name)}
        if self._live is not None:
            self._live |= abstained.keys()
        reasons = [remote_write.encode_series(*one, stamp_ms) for one in abstained.items()]
        success = []
        if self._last_success is not None:
            labels = remote_write.labels_of(catalogue.L3_LAST_SUCCESS.name, worker=name)
            success = [remote_write.encode_series(labels, self._last_success, stamp_ms)]
        await self._delivery.send(reasons, success)

    async def _judge(
        self, info: Sequence[Sample], at: float, begun: float, budget: float | None
    ) -> CycleReport:
        infos: dict[str, list[Sample]] = {}
        for sample in info:
            infos.setdefault(sample.labels.get("training_job", ""), []).append(sample)
        names = sorted(infos.keys() - {""})
        self._clusters = {
            name: sorted({one.labels.get("cluster", "") for one in infos[name]}) for name in names
        }
        for gone in self._jobs.keys() - infos.keys():
            del self._jobs[gone]
            with contextlib.suppress(KeyError):  # never had a window
                self._telemetry.kernels_left_out.remove(gone)
        context = CycleContext(self._prometheus, self._config, self._telemetry, self._monotonic)
        windows_judged = 0
        checked: list[CrossChecks] = []
        asked, failed = 0, []
        for number, name in enumerate(names):
            job = self._jobs.setdefault(name, Job(name))
            if why := ambiguity(infos[name]):
                job.is_not_one(why)
                continue
            until = None if budget is None else context.share_of(begun + budget, len(names) - number)
            asked += 1
            try:
                windows_judged += await job.judge(context, infos[name], at, until)
            except PartialAnswer as error:
                job.could_not_be_judged(error)
            except Exception as error:
                # One job with too many series, or a surprise, must not end the watch over the others.
                say = log.error if isinstance(error, QueryError) else log.exception
                say("job not judged, tried again in the next cycle", training_job=name, error=error)
                job.could_not_be_judged(error)
                failed.append(error)
        if failed and len(failed) == asked:
            raise failed[-1]
        if self._config.witness.enabled:
            one_each = {name: infos[name] for name in names if not ambiguity(infos[name])}
            checked = await self._cross_checked(one_each, at, None if budget is None else begun + budget)
        jobs = [self._jobs[name] for name in names]
        return CycleReport(
            at,
            tuple(one for job in jobs for one in job.judgements),
            {role: judgements for job in jobs for role, judgements in job.telling.items()},
            tuple(one for job in jobs for one in job.abstentions),
            tuple(one for job in jobs for one in job.not_judged),
            tuple(self._for_team(one) for job in jobs for one in job.verdicts),
            tuple(self._for_team(one) for job in jobs for one in job.group_shifts),
            tuple(checked),
            tuple(one for job in jobs for one in job.left_out),
            windows_judged,
            self._monotonic() - begun,
        )

    async def _cross_checked(
        self, jobs: Mapping[str, Sequence[Sample]], at: float, until: float | None
    ) -> list[CrossChecks]:
        """In what is left of the cycle. What makes no verdict takes none back either, if it fails."""
        checked: list[CrossChecks] = []
        try:
            async with asyncio.timeout(None if until is None else max(until - self._monotonic(), 0.0)):
                async for one in cross_checks(self._prometheus, jobs, at, self._config.witness):
                    checked.append(one)  # noqa: PERF401, what is there stays if the rest fails
        except TimeoutError:
            log.warning("no time for all cross-checks in this cycle", checked=len(checked), jobs=len(jobs))
        except Exception as error:
            say = log.warning if isinstance(error, QueryError) else log.exception
            say("cross-checks left out in this cycle", checked=len(checked), jobs=len(jobs), error=error)
        return checked

    def _for_team(self, one: _Told) -> _Told:
        """With the team that the configuration names, where it does."""
        return replace(one, team=self._config.teams.get(one.cause, one.team))

    async def _ask_for_traces(self, report: CycleReport, info: Sequence[Sample], at: float) -> None:
        """Traces of whom this worker or the rules accuse, ranks or a whole job. Fails a cycle never."""
        if self._traces is None:
            return
        matchers = self._config.matchers
        try:
            if not self._traces_restored:
                own = {**matchers, "worker": self._config.worker}
                earlier = await self._prometheus.instant(selector(catalogue.L3_TRACE_INFO.name, own), at)
                self._traces.restore(earlier, at)
                self._traces_restored = True
            accused = await self._prometheus.instant(_accused_by_rules(matchers), at)
            slow = await self._prometheus.instant(_slow_as_a_whole(matchers), at)
        except QueryError as error:
            log.warning("no traces asked for", error=error)
            return
        suspects = [(one.training_job, one.rank) for one in report.verdicts if one.verdict == "culprit"]
        suspects += [(one.labels.get("training_job", ""), one.labels.get("rank", "")) for one in accused]
        slow_jobs = {one.labels.get("training_job", "") for one in slow}
        await self._traces.update(suspects, info, at, slow_jobs)

    async def _series_of_earlier_workers(self, at: float) -> set[Labels]:
        """Series that a worker before this one left: this one ends them when they no longer hold."""
        own = {**self._config.matchers, "worker": self._config.worker}
        found = await asyncio.gather(
            *(self._prometheus.instant(selector(name, own), at) for name in results.ENDED_BY_ANY_WORKER)
        )
        return {results.own_labels(sample.labels) for samples in found for sample in samples}

    def _encode(self, report: CycleReport, stamp: float) -> tuple[list[bytes], list[bytes]]:
        """(all else that was found, what rules read)."""
        name, stamp_ms = self._config.worker, round(stamp * 1000)
        series: dict[Labels, float] = {}
        verdicts_of, shifts_of = _by_role(report.verdicts), _by_role(report.group_shifts)
        for judgement in report.judgements:
            series.update(results.of_ranks(judgement, name))
        for (job, role), judgements in report.telling.items():
            shifts = [one for scope in {role, stage_of(role)} for one in shifts_of[job, scope]]
            series.update(results.of_deviations(judgements, verdicts_of[job, role], shifts, name))
        series.update(results.of_verdicts(report.verdicts, name))
        series.update(results.of_group_shifts(report.group_shifts, name))
        for of_job in report.cross_checks:
            series.update(series_of_cross_checks(of_job, name))
        series.update(results.of_abstentions(report.abstentions, name))
        series.update(results.of_cycle(report.seconds, stamp, name))
        if self._traces is not None:
            series.update(self._traces.published(name))
        series = {self._placed(labels): value for labels, value in series.items()}
        ended = (self._live or set()) - series.keys()
        self._live = set(series)
        encoded = [(labels, remote_write.encode_stale_marker(labels, stamp_ms)) for labels in sorted(ended)]
        encoded += [
            (labels, remote_write.encode_series(labels, value, stamp_ms))
            for labels, value in results.rounded(series).items()
        ]
        verdicts: list[bytes] = []
        others: list[bytes] = []
        for labels, one in encoded:
            (verdicts if dict(labels)["__name__"] in results.VERDICTS else others).append(one)
        return others, verdicts

    def _placed(self, labels: Labels) -> Labels:
        """With the job's cluster, where its own series have one: rules know a job by both."""
        (cluster, *others) = self._clusters.get(dict(labels).get("training_job", ""), [""])
        return labels if others or not cluster else tuple(sorted((*labels, ("cluster", cluster))))


def _by_role(found: Iterable[_Told]) -> dict[tuple[str, str], list[_Told]]:
    """By job, and by role or stage."""
    by_role: dict[tuple[str, str], list[_Told]] = defaultdict(list)
    for one in found:
        by_role[one.training_job, one.role].append(one)
    return by_role


def _accused_by_rules(matchers: Mapping[str, str]) -> str:
    """Ranks that rules name, and those of a set of which one is meant: their kernels tell which."""
    culprits = {**matchers, "verdict": "culprit"}
    ranks = selector("rank:argus_verdict:active", culprits, excluded={"rank": ("",)})
    sets = selector("rank:argus_verdict:active", culprits, excluded={"set": ("",)})
    of_sets = selector("rank:argus_evidence:lost_ratio", {**matchers, "cause": "suspect-set"})
    return f"max by (training_job, rank) ({ranks} or ({of_sets} and on (training_job, set) {sets}))"


def _slow_as_a_whole(matchers: Mapping[str, str]) -> str:
    """Jobs of which rules find what no rank does: a regression, jitter, slower than earlier, the fabric."""
    of_nobody = {**matchers, "verdict": "culprit", "rank": "", "set": "", "group": ""}
    return f"count by (training_job) ({selector('rank:argus_verdict:active', of_nobody)})"
