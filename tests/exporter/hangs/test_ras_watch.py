"""When NCCL is asked about a job, and of which process: real processes, a fake RAS, a clock that is set."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from argus_core import wire
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_exporter.config import ExporterConfig
from argus_exporter.hangs.ras_watch import RasWatch
from argus_exporter.place.topology import Identity
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.ras.config import RasConfig
from argus_exporter.ras.outcome import Result
from argus_exporter.ras.report import Absence
from exporter.exporter_process import until
from exporter.ras.answers import Absentee, Group, Job, Member
from exporter.ras.fake_ras import FakeRas
from exporter.ras.processes import running

SECOND = 10**9


class Host:
    """An exporter's ranks, the watch, and a clock."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.now = 1000.0
        self.ranks = RankRegistry(ExporterConfig(), clock=lambda: self.now)
        self.connections: dict[int, Attachment] = {}
        self.failures = Failures(Log(__name__))
        self.watch = RasWatch(self.ranks, RasConfig(enabled=enabled), self.failures)
        self.ranks.step_sinks.append(self.watch.stepped)

    def connect(self, rank: int, pid: int) -> RankState:
        identity = Identity("job", rank, pid=pid, world_size=3, coordinates={"dp": rank})
        self.connections[rank] = Attachment(frozenset(wire.Channel), uid=0, pid=pid)
        return self.ranks.hello(identity, self.connections[rank])

    def step(self, seconds: float = 1.0) -> None:
        """Every rank ends a step."""
        for state in self.ranks:
            state.stepped(wire.Iteration(1, 0, int(seconds * SECOND), 1, 1.0, 1.0))

    def after(self, seconds: float) -> None:
        """Let time pass, look once, and wait for the answer."""
        self.now += seconds
        asyncio.run(self._look())
        assert not self.failures.counts

    async def _look(self) -> None:
        self.watch.look()
        await until(lambda: not self.watch.asking)


@contextlib.contextmanager
def training(host: Host | None = None, first_rank: int = 0) -> Iterator[tuple[Host, FakeRas, RankState]]:
    """A rank of a job of three that has ended a step; its process has a RAS, by which rank 1 lags."""
    with FakeRas() as server, running(NCCL_RAS_ADDR=f"127.0.0.1:{server.port}") as pid:
        server.answers = [Job([Group([Member(0, pid, 8), Member(1, 4001, 7), Member(2, 4002, 8)])]).json()]
        host = host or Host()
        state = host.connect(first_rank, pid)
        host.step()
        yield host, server, state


def test_a_job_that_goes_on_is_not_asked_about() -> None:
    with training() as (host, server, state):
        for _ in range(5):
            host.after(29)
            host.step()
        assert server.statuses == 0
        assert state.ras is None


def test_a_job_that_stands_still_is() -> None:
    with training() as (host, server, state):
        host.after(31)
        assert server.statuses == 1
        assert state.ras is not None and state.ras.result is Result.ANSWERED


def test_long_steps_need_longer() -> None:
    """Two and a half usual durations."""
    with training() as (host, server, _):
        for _ in range(15):
            host.step(seconds=60)
        host.after(149)
        assert server.statuses == 0
        host.after(2)
        assert server.statuses == 1


def test_it_is_off_unless_a_site_says_so() -> None:
    assert not ExporterConfig().ras.enabled
    with training(Host(enabled=False)) as (host, server, _):
        host.after(1000)
        assert server.statuses == 0


def test_the_second_answer_tells_whom_the_others_wait_for() -> None:
    """Fifteen seconds later, and not before."""
    with training() as (host, server, state):
        host.after(31)
        assert state.ras is not None and state.ras.lacks == {}
        host.after(14)
        assert server.statuses == 1
        host.after(2)
        assert server.statuses == 2
        assert state.ras.lacks == {(1, "AllReduce"): 1}


def test_who_is_dead_is_told_at_once() -> None:
    with training() as (host, server, state):
        here = Member(0, state.identity.pid, 8)
        dead = Absentee(1, 4001, unresponsive=True, dead=True)
        server.answers = [Job([Group([here, Member(2, 4002, 8)], [dead])]).json()]
        host.after(31)
        assert state.ras is not None and state.ras.absent_ranks == {1: Absence.DEAD}


def test_nothing_is_told_of_a_job_that_goes_on_again() -> None:
    with training() as (host, _, state):
        host.after(31)
        host.step()
        host.after(1)
        assert state.ras is None


def test_an_answer_that_comes_after_the_next_step_is_thrown_away() -> None:
    with training() as (host, server, state):
        host.now += 31

        async def body() -> None:
            host.watch.look()
            host.step()
            await until(lambda: not host.watch.asking)

        asyncio.run(body())
        assert server.statuses == 1 and state.ras is None


def test_of_a_hosts_ranks_one_is_asked() -> None:
    with training() as (host, server, state), running(NCCL_RAS_ADDR=f"127.0.0.1:{server.port}") as pid:
        other = host.connect(1, pid)
        host.after(31)
        assert server.statuses == 1
        assert state.ras is not None and other.ras is None


def test_where_the_first_rank_is_elsewhere_nobody_is_asked() -> None:
    """Its exporter asks."""
    with training(first_rank=1) as (host, server, _):
        host.after(31)
        assert server.statuses == 0


def test_where_the_first_rank_is_lost_the_next_is_asked() -> None:
    with training() as (host, server, state), running(NCCL_RAS_ADDR=f"127.0.0.1:{server.port}") as pid:
        server.answers = [Job([Group([Member(1, pid, 8)], [Absentee(0, 4001, dead=True)])]).json()]
        other = host.connect(1, pid)
        host.ranks.detach(state, host.connections[0], said_bye=False)
        host.after(31)
        assert other.ras is not None and other.ras.absent[Absence.DEAD] == 1


@pytest.mark.parametrize("activity", [one for one in wire.Activity if one is not wire.Activity.TRAIN])
def test_outside_training_nobody_is_asked(activity: wire.Activity) -> None:
    with training() as (host, server, state):
        state.activity = activity
        host.after(31)
        assert server.statuses == 0


def test_what_was_answered_is_not_told_of_a_rank_that_then_does_something_else() -> None:
    with training() as (host, _, state):
        host.after(31)
        assert state.ras is not None
        state.activity = wire.Activity.CHECKPOINT
        host.after(1)
        assert state.ras is None


def test_before_the_first_step_nobody_is_asked() -> None:
    """Communicators are being made."""
    host = Host()
    with FakeRas() as server, running(NCCL_RAS_ADDR=f"127.0.0.1:{server.port}") as pid:
        host.connect(0, pid)
        host.after(1000)
        assert server.asked == []


def test_a_process_that_speaks_for_many_ranks_is_not_asked() -> None:
    """It simulates them."""
    with training() as (host, server, state):
        host.connect(1, state.identity.pid)
        host.after(31)
        assert server.asked == []


def test_after_three_failures_a_job_is_left_alone_until_its_next_step() -> None:
    with training() as (host, server, state):
        good, server.answers = server.answers, ["no answer"]
        host.after(31)
        assert state.ras is not None and state.ras.result is Result.FAILED
        for _ in range(9):
            host.after(16)
        assert server.statuses == 3
        server.answers = good
        host.step()
        host.after(31)
        assert state.ras is not None and state.ras.result is Result.ANSWERED


def test_a_version_that_is_not_safe_is_refused_once() -> None:
    with training() as (host, server, state):
        server.knows_json = False
        for _ in range(5):
            host.after(31)
        assert state.ras is not None and state.ras.result is Result.REFUSED
        assert server.asked.count("CLIENT PROTOCOL 2") == 1 and server.statuses == 0


def test_a_question_keeps_nobody_from_the_end() -> None:
    """The server hangs; the watch stops at once."""
    with training() as (host, server, _):
        server.silent_after = "STATUS"
        host.now += 31

        async def body() -> None:
            host.watch.start()
            await until(lambda: host.watch.asking)
            await asyncio.wait_for(host.watch.stop(), 1.0)

        asyncio.run(body())
