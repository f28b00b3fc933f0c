"""Which ranks are watched, when, and what becomes of what is found: with a sampler that answers at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_core import wire
from argus_core.stack_refusals import BY_CHOICE, refusal_path
from argus_exporter.config import ExporterConfig
from argus_exporter.intake import records
from argus_exporter.names import NameTable
from argus_exporter.place.topology import Identity
from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.py_spy.sampler import Refused, Window
from argus_exporter.py_spy.supervisor import StackSupervisor
from argus_exporter.py_spy.target import Process
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from argus_exporter.stacks.folded import Stack
from exporter.exporter_process import until

CONFIG = StacksConfig(window_seconds=1)
FOLDED = Counter({Stack("MainThread", ("main (m.py:1)", "leaf (m.py:2)")): 10})


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not this one: ours is never sampled."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


class Sampler:
    """Stands in for py-spy: notes what it was asked for, and answers as told."""

    def __init__(self, refuse: str = "", cpu_seconds: float = 0.0) -> None:
        self.asked: list[tuple[int, int]] = []
        self.refuse = refuse
        self.cpu_seconds = cpu_seconds

    async def __call__(self, process: Process, config: StacksConfig, hertz: int) -> Window:
        self.asked.append((process.pid, hertz))
        await asyncio.sleep(0.01)
        if self.refuse:
            raise Refused(self.refuse, "as told")
        begin_ns = 1_000_000_000
        end_ns = begin_ns + config.window_seconds * 1_000_000_000
        return Window(begin_ns, end_ns, FOLDED, 10, 1, 2, self.cpu_seconds)


def rank(
    ranks: RankRegistry, number: int, peer_pid: int | None, said_pid: int | None = None, job: str = "job"
) -> RankState:
    identity = Identity(job, number, pid=said_pid or peer_pid or 0)
    state = ranks.hello(identity, Attachment(frozenset({wire.Channel.PHASES}), os.getuid(), peer_pid or 0))
    state.peer_pid = peer_pid
    return state


@contextlib.asynccontextmanager
async def supervised(ranks: RankRegistry, tmp_path: Path, sampler: Sampler, config: StacksConfig = CONFIG):  # type: ignore[no-untyped-def]
    supervisor = StackSupervisor(ranks, config, tmp_path / "s", sampler=sampler)
    supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


async def test_windows_follow_one_another_into_totals_and_sinks(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Samples, losses and cost are all counted; a sink that fails does not end the watch."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler()
    state = rank(ranks, 0, sleeper.pid)
    seen: list[tuple[str, int]] = []

    def broken(*_: object) -> None:
        raise RuntimeError("a sink's own fault")

    async with supervised(ranks, tmp_path, sampler) as supervisor:
        supervisor.sinks += [broken, lambda key, *_: seen.append(key)]
        await until(lambda: len(seen) >= 3)
    channel = state.channels[wire.Channel.STACKS]
    assert channel.up
    assert channel.records >= 30
    assert channel.dropped["unreadable"] >= 3
    assert channel.dropped["unparsed"] >= 6
    assert set(seen) == {("job", 0)}
    assert {leaf.frame for leaf in state.stacks.totals.counts} == {"leaf (m)"}
    assert sampler.asked[0] == (sleeper.pid, CONFIG.rate)


async def test_a_dear_window_lowers_the_rate_and_the_gauge(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """2 % of a core in every window: 10, 5, 2, 1 Hz."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler(cpu_seconds=0.02)
    state = rank(ranks, 0, sleeper.pid)
    async with supervised(ranks, tmp_path, sampler):
        await until(lambda: len(sampler.asked) >= 4)
        assert state.stacks.outside is not None
        assert state.stacks.outside.hertz <= 1
    assert [hertz for _, hertz in sampler.asked[:4]] == [10, 5, 2, 1]
    assert state.stacks.outside_cpu_seconds >= 0.06


async def test_one_process_of_many_ranks_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """A simulator: its stacks are no rank's, and its ranks have no channel that is down."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler()
    simulated = [rank(ranks, number, sleeper.pid) for number in range(3)]
    async with supervised(ranks, tmp_path, sampler) as supervisor:
        supervisor.reconcile()
        await asyncio.sleep(0)
        assert supervisor.watched == 0
    assert sampler.asked == []
    assert all(wire.Channel.STACKS not in state.channels for state in simulated)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_exporter_itself_and_what_is_switched_off_are_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], enabled: bool
) -> None:
    """Rank 0 speaks from this process; rank 1 is watched if the channel is on."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler()
    rank(ranks, 0, os.getpid())
    rank(ranks, 1, sleeper.pid)

    async def body() -> int:
        config = StacksConfig(window_seconds=1, enabled=enabled)
        async with supervised(ranks, tmp_path, sampler, config) as supervisor:
            supervisor.reconcile()
            watched: int = supervisor.watched
            return watched

    assert asyncio.run(body()) == int(enabled)


async def test_a_refusal_marks_the_rank_and_the_sampler_inside_stands_in(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """The channel stays down with a reason that tells what is left; samples from inside are taken."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler(refuse="permission")
    state = rank(ranks, 3, sleeper.pid, said_pid=sleeper.pid)
    mark = refusal_path(tmp_path / "s", 3, sleeper.pid)
    async with supervised(ranks, tmp_path, sampler):
        await until(mark.exists)
        channel = state.channels[wire.Channel.STACKS]
        assert (channel.up, channel.reason) == (False, "permission")
        from_inside(state, up=True)
        assert (channel.up, channel.reason) == (False, "permission_inprocess")
        sampler.refuse = ""
        await until(lambda: state.channels[wire.Channel.STACKS].up)
        assert channel.reason == ""
        assert not mark.exists()


async def test_a_rank_that_samples_itself_by_choice_is_not_sampled_twice(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Its own word on the channel holds, its stacks reach the totals, and py-spy is not run."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler()
    state = rank(ranks, 0, sleeper.pid)
    names = from_inside(state, up=True)
    state.stacks.node(wire.StackNode(1, 0, 1), names)
    state.stacks.sample(wire.StackSample(5, 1, 1, 7), names)
    windows: list[int] = []
    async with supervised(ranks, tmp_path, sampler) as supervisor:
        supervisor.sinks.append(lambda *window: windows.append(window[3].total()))
        await until(lambda: windows == [7])
    assert sampler.asked == []
    assert state.channels[wire.Channel.STACKS].up
    assert state.stacks.totals.samples == 7


async def test_the_choice_to_sample_itself_is_heard_after_a_refusal_too(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """An exporter that has just started may be refused before the rank has told it: the channel goes up."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler(refuse="permission")
    state = rank(ranks, 0, sleeper.pid)
    mark = refusal_path(tmp_path / "s", 0, sleeper.pid)
    async with supervised(ranks, tmp_path, sampler):
        await until(mark.exists)
        from_inside(state, up=True, reason=BY_CHOICE)
        await until(lambda: not mark.exists())
        from_inside(state, up=True, reason=BY_CHOICE)
        channel = state.channels[wire.Channel.STACKS]
        assert (channel.up, channel.reason) == (True, BY_CHOICE)


async def test_a_rank_that_is_gone_is_no_longer_watched(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Lost or replaced: its watch ends with it."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler()
    state = rank(ranks, 0, sleeper.pid)
    async with supervised(ranks, tmp_path, sampler) as supervisor:
        await until(lambda: len(sampler.asked) >= 1)
        state.detach(state.channels.attachments[0], said_bye=False)
        supervisor.reconcile()
        assert supervisor.watched == 0
        assert state.stacks.outside is None


async def test_marks_of_a_killed_exporter_are_removed_at_start(tmp_path: Path) -> None:
    """Else a rank would go on sampling itself for nothing."""
    stale = refusal_path(tmp_path / "s", 0, 1)
    stale.write_text("permission\n")
    async with supervised(RankRegistry(ExporterConfig()), tmp_path, Sampler()):
        assert not stale.exists()


async def test_the_end_of_one_job_leaves_the_mark_of_another(tmp_path: Path) -> None:
    """Two containers: the same rank, and the same pid inside. The mark goes with the second of them."""
    ranks = RankRegistry(ExporterConfig())
    first, second = (rank(ranks, 0, 0, said_pid=20, job=job) for job in ("a", "b"))
    mark = refusal_path(tmp_path / "s", 0, 20)
    async with supervised(ranks, tmp_path, Sampler()) as supervisor:
        await until(lambda: all(wire.Channel.STACKS in state.channels for state in (first, second)))
        for state, stays in ((second, True), (first, False)):
            state.detach(state.channels.attachments[0], said_bye=True)
            supervisor.reconcile()
            assert mark.exists() == stays


async def test_a_mark_is_not_written_through_a_link(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """Whoever may write to the socket's folder could lead root to any file."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler(refuse="permission")
    precious = tmp_path / "authorized_keys"
    precious.write_text("ssh-ed25519 mine")
    mark = refusal_path(tmp_path / "s", 3, sleeper.pid)
    async with supervised(ranks, tmp_path, sampler):
        mark.symlink_to(precious)
        rank(ranks, 3, sleeper.pid)
        await until(lambda: not mark.is_symlink())
        assert mark.read_text() == "permission\n"
    assert precious.read_text() == "ssh-ed25519 mine"


async def test_a_channel_that_is_switched_off_says_so(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """It is not up for ever, and no alert tells of it; switched on it comes back."""
    ranks, sampler = RankRegistry(ExporterConfig()), Sampler()
    channel = rank(ranks, 0, sleeper.pid).channel(wire.Channel.STACKS)
    chosen = rank(ranks, 1, 0, job="other")
    from_inside(chosen, up=True, reason=BY_CHOICE)
    off = StacksConfig(window_seconds=1, enabled=False)
    async with supervised(ranks, tmp_path, sampler) as supervisor:
        await until(lambda: len(sampler.asked) > 0)
        supervisor.reconfigure(off)
        assert (channel.up, channel.reason) == (False, "disabled")
        assert chosen.channel(wire.Channel.STACKS).up, "it samples itself because its user wants that"
        supervisor.reconfigure(CONFIG)
        await until(lambda: channel.up)


def from_inside(state: RankState, *, up: bool, reason: str = "") -> NameTable:
    """What the sampler inside the rank says of its channel; the names of its connection."""
    names = NameTable(state.texts)
    names.bind(wire.Name(1, b"f (m)"))
    names.bind(wire.Name(2, reason.encode()))
    records.channel_state(state, wire.ChannelState(0, 0, 2, wire.Channel.STACKS, int(up)), names)
    return names
