"""Asks NCCL's RAS about jobs that stand still: of one process a job, seldom, and not again after failures.

Of all exporters of a job that one asks which has its rank 0, as every question goes to all processes of the
job. Where that host is gone nobody asks; that ranks are missing is then told by their series. Nothing is
asked outside training, nor before a step has ended: communicators are made and destroyed then, which is when
older versions crashed.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from argus_core import wire
from argus_core.background import BackgroundTask
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.overdue import overdue_after
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.ras.client import RasClient
from argus_exporter.ras.config import RasConfig
from argus_exporter.ras.errors import RasFailed, RasRefused
from argus_exporter.ras.outcome import Outcome, Result, outcome_of
from argus_exporter.ras.process import process_of
from argus_exporter.ras.report import Report

log = Log(__name__)

_TICK_S: Final = 1.0
_STEPS: Final = 15
"""Whose median is the usual duration: enough that a checkpoint among them does not count."""
_MOST_FAILURES: Final = 3
"""In a row, after which a job is left alone until its next step."""


@dataclass
class _Job:
    """When a job stepped last, and what became of asking about it since."""

    stepped_at: float
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS))
    asked_at: float = float("-inf")
    failures: int = 0
    report: Report | None = None
    asking: asyncio.Task[None] | None = None

    def is_overdue(self, now: float, least_s: float) -> bool:
        return now - self.stepped_at > max(least_s, overdue_after(statistics.median(self.durations)))


class RasWatch:
    """Lives on the event loop, between `start` and `stop`; questions block a thread each.

    Its word on a job is `RankState.ras` of the rank whose process was asked.
    """

    def __init__(self, ranks: RankRegistry, config: RasConfig, failures: Failures) -> None:
        self._ranks = ranks
        self._config = config
        self._failures = failures
        self._jobs: dict[str, _Job] = {}
        self._task = BackgroundTask()

    def stepped(self, state: RankState, record: wire.Iteration) -> None:
        """A step of a rank has ended. Takes no time."""
        job = self._jobs.setdefault(state.identity.training_job, _Job(0.0))
        job.stepped_at = self._ranks.clock()
        job.durations.append(record.duration_ns / 1e9)
        job.failures = 0

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        """A question that is under way ends by itself, on a thread that keeps nobody."""
        await self._task.stop()
        asking = [job.asking for job in self._jobs.values() if job.asking is not None]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def reconfigure(self, config: RasConfig) -> None:
        self._config = config

    @property
    def asking(self) -> int:
        """Questions that are under way."""
        return sum(job.asking is not None and not job.asking.done() for job in self._jobs.values())

    async def _run(self) -> None:
        while True:
            with self._failures.contained("ras", "jobs not looked at"):
                self.look()
            await asyncio.sleep(_TICK_S)

    def look(self) -> None:
        """One look at all jobs: who stands still is asked about, who goes on is no longer told of."""
        states: dict[str, list[RankState]] = {}
        for state in self._ranks:
            states.setdefault(state.identity.training_job, []).append(state)
        self._jobs = {name: job for name, job in self._jobs.items() if name in states}
        now = self._ranks.clock()
        for name, job in self._jobs.items():
            local = states[name]
            overdue = self._config.enabled and job.is_overdue(now, self._config.after_seconds)
            asked = _to_be_asked(local) if overdue else None
            if asked is None:
                job.report = None
                for state in local:
                    state.ras = None
                continue
            idle = job.asking is None or job.asking.done()
            due = now - job.asked_at >= self._config.period_seconds and job.failures < _MOST_FAILURES
            if idle and due:
                job.asked_at = now
                job.asking = asyncio.create_task(self._ask(job, asked, local, job.stepped_at))

    async def _ask(self, job: _Job, asked: RankState, local: list[RankState], since: float) -> None:
        with self._failures.contained("ras", "RAS not asked", **asked.identity.names):
            outcome = await _on_a_thread(lambda: _question(job.report, asked, local))
            if job.stepped_at != since:
                return  # it has gone on meanwhile
            job.report = outcome.report
            job.failures = 0 if outcome.result is Result.ANSWERED else job.failures + 1
            if outcome.result is Result.REFUSED:
                job.failures = _MOST_FAILURES
            for state in local:
                state.ras = outcome if state is asked else None


def _to_be_asked(local: list[RankState]) -> RankState | None:
    """The first rank here whose process can be asked, on the host of rank 0 and while it trains."""
    if local[0].identity.rank != 0:
        return None
    for state in local:
        # A simulator or a replay speaks for many ranks and is none of them.
        alone = sum(other.peer_pid == state.peer_pid for other in local) == 1
        trains = state.activity in (None, wire.Activity.TRAIN)
        if state.connected and state.peer_pid and alone:
            return state if trains else None
    return None


def _question(before: Report | None, asked: RankState, local: Iterable[RankState]) -> Outcome:
    """Blocks. Failures are outcomes too."""
    names = asked.identity.names
    try:
        process = process_of(asked.peer_pid or 0)
        process.refuse_unsafe(insists=False)
        report = RasClient(process.reachable()).ask(process.is_named_by).report
    except RasRefused as error:
        log.warning("NCCL's RAS is not asked", **names, error=error)
        return Outcome(Result.REFUSED, time.time())
    except RasFailed as error:
        log.warning("NCCL's RAS gave no answer", **names, error=error)
        return Outcome(Result.FAILED, time.time())
    known = {state.identity.pid: state.identity.rank for state in local}
    return outcome_of(report, before, time.time(), asked.identity.world_size, known)


async def _on_a_thread(work: Callable[[], Outcome]) -> Outcome:
    """As asyncio.to_thread, on a thread that does not keep the program from its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def tell(outcome: Outcome | None, error: BaseException | None) -> None:
        if not done.cancelled():
            if outcome is not None:
                done.set_result(outcome)
            elif error is not None:
                done.set_exception(error)

    def run() -> None:
        outcome, failure = None, None
        try:
            outcome = work()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, outcome, failure)

    threading.Thread(target=run, name="argus-ras", daemon=True).start()
    return await done
