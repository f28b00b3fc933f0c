"""One sample a step by remote write: delivered once, in order, never waited for, and counted where lost."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import random
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from argus_core import wire
from argus_core.http_access import AccessError
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.remote_write import Labels
from argus_core.remote_write_sender import Sender
from argus_core.settings import SettingsError, from_mapping
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.place.topology import Identity
from argus_exporter.publish import iteration_writer
from argus_exporter.publish.config import RemoteWriteConfig
from argus_exporter.publish.iteration_writer import IterationWriter
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState
from exporter.exporter_process import until
from remote_write_receiver import Answer, Receiver, Takes, serving

log = Log(__name__)
MS = 1_000_000
NOWHERE = "http://127.0.0.1:1/api/v1/write"


def rank(number: int = 0) -> RankState:
    attachment = Attachment(frozenset({wire.Channel.PHASES}), 0, 100)
    return RankRegistry(ExporterConfig()).hello(Identity("job", number), attachment)


def step(end_ms: int, seconds: float = 0.25) -> wire.Iteration:
    return wire.Iteration(1, end_ms * MS, int(seconds * 1e9), 1, 1.0, 1.0)


def dropped(state: RankState) -> dict[str, int]:
    return dict(state.channel(wire.Channel.PHASES).dropped)


@contextlib.asynccontextmanager
async def receiver(answer: Answer = lambda _: (204, ""), takes: Takes = "2.0") -> AsyncIterator[Receiver]:
    """A receiver that takes everything, unless told otherwise."""
    there = Receiver(answer, takes)
    async with serving(there):
        yield there


def refusing(
    status: int = 400, text: str = "out of bounds", alone: int | None = None, rank: str = "1"
) -> Answer:
    """All requests that have a sample of the rank in them; `alone`: those that have nothing else."""

    def answer(series: Sequence[Labels]) -> tuple[int, str]:
        bad = [("rank", rank) in labels for labels in series]
        if alone is not None and all(bad):
            return alone, text
        return (status, text) if any(bad) else (204, "")

    return answer


@contextlib.asynccontextmanager
async def writing(
    url: str, interval_seconds: float = 0.01, queue_samples: int = 50_000, **settings: object
) -> AsyncIterator[IterationWriter]:
    config = from_mapping(RemoteWriteConfig, {"url": url, **settings}, "test")
    writer = IterationWriter(
        dataclasses.replace(config, interval_seconds=interval_seconds, queue_samples=queue_samples),
        Failures(log),
    )
    writer.start()
    try:
        yield writer
    finally:
        await writer.stop()


async def test_each_step_is_one_sample():
    """With the labels of the rank and those that the configuration adds, duration and end in milliseconds."""
    state = rank(3)
    async with receiver() as there, writing(there.url, labels={"cluster": "a"}) as writer:
        for end in (1000, 1250, 1500):
            writer.take(state, step(end))
        await until(lambda: len(there.taken) == 3)
        assert there.taken[0].labels == (
            ("__name__", "argus_iteration_seconds"),
            ("cluster", "a"),
            ("rank", "3"),
            ("training_job", "job"),
        )
        assert len(set(there.taken)) == 3
    assert dropped(state) == {}


async def test_beyond_the_queue_the_oldest_steps_are_lost_and_counted():
    """Nobody waits for a receiver that is away."""
    state = rank()
    async with writing(NOWHERE, queue_samples=10) as writer:
        for end in range(25):
            writer.take(state, step(end))
        assert dropped(state) == {"remote_write_queue": 15}


async def test_a_tenants_limit_is_not_halved(caplog: pytest.LogCaptureFixture):
    """2,500 samples in two requests, both refused, counted, and one line with their number and the reason."""
    state = rank()
    limit = "per-user series limit of 1000 exceeded"
    async with (
        receiver(lambda _: (400, limit)) as there,
        writing(there.url, interval_seconds=0.2) as writer,
    ):
        for end in range(2500):
            writer.take(state, step(end))
        await until(lambda: dropped(state) == {"remote_write_refused": 2500})
        assert len(there.requests) == 2
    (line,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "2500" in line and "limit of 1000" in line


async def test_a_partial_write_is_counted_and_not_sent_again(caplog: pytest.LogCaptureFixture):
    """A receiver of 2.0 stores three of four and answers 400: one request; nobody knows whose step it was."""
    states = [rank(number) for number in range(4)]
    async with receiver() as there, writing(there.url, interval_seconds=0.2) as writer:
        there.bad = lambda labels: ("rank", "1") in labels
        for state in states:
            writer.take(state, step(5))
        await until(lambda: len(there.taken) == 3)
        await until(lambda: writer.lost["refused"] == 1)
        assert len(there.requests) == 1
    assert [dropped(state) for state in states] == [{}] * 4
    assert writer.lost == {"refused": 1, "unwritten": 0}
    (line,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "samples=1" in line and "out of order sample" in line


async def test_poison_steps_aside():
    """A proxy that fails on the bad sample alone: after five tries the others go before it."""
    bad, good = rank(1), rank(2)
    async with receiver(refusing(alone=502)) as there, writing(there.url) as writer:
        writer.take(bad, step(5))
        for end in range(3):
            writer.take(good, step(end))
        await until(lambda: len(there.taken) == 3)
        assert len(there.requests) >= 5 * 3
        there.answer = refusing()
    assert (dropped(bad), dropped(good)) == ({"remote_write_refused": 1}, {})


@pytest.mark.parametrize("places", [{0}, {1}, {5}, {7}, {0, 1}, {3, 4}, {0, 7}, {0, 1, 2, 3, 4}])
@pytest.mark.parametrize("status", [401, 403, 404])
async def test_samples_that_a_filter_turns_away_are_lost_alone(status: int, places: set[int]):
    """Wherever they stand: after five tries the others go, in their order, and these are counted."""
    bad, good = rank(1), rank(2)
    async with receiver(refusing(status, "no")) as there, writing(there.url) as writer:
        for end in range(8):
            writer.take(bad if end in places else good, step(end))
        await until(lambda: len(there.taken) == 8 - len(places) and writer.pending == 0)
        stamps = [one.samples[0][1] for one in there.taken]
        assert stamps == [end for end in range(8) if end not in places]
    assert (dropped(bad), dropped(good)) == ({"remote_write_refused": len(places)}, {})


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_a_receiver_answers_each_sample_is_taken_or_counted(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Refusals, filters and failures by chance: in the end nothing is lost uncounted."""
    monkeypatch.setattr(iteration_writer, "_LONGEST_BACKOFF_S", 0.01)
    draw = random.Random(seed)
    statuses = [400, 403, 503, 204]

    def answer(series: Sequence[Labels]) -> tuple[int, str]:
        return draw.choice([400, 403, 503] if len(series) > 1 else statuses), "by chance"

    states = [rank(number) for number in range(5)]
    async with receiver(answer) as there, writing(there.url, interval_seconds=0.001) as writer:
        for number, state in enumerate(states):
            writer.take(state, step(number))
        await until(lambda: len(there.requests) > 40 or writer.pending == 0)
        there.answer = lambda _: (204, "")
        await until(lambda: writer.pending == 0)
        taken = {int(dict(one.labels)["rank"]) for one in there.taken}
        lost = {number for number, state in enumerate(states) if dropped(state)}
        assert (taken | lost, taken & lost) == (set(range(5)), set())
        assert len(there.taken) == len(taken), "and none is sent again that was taken"


async def test_whoever_is_turned_away_with_everything_loses_nothing():
    """Wrong credentials for a while: no sample is taken, so it is about us; then all are, each once."""
    state = rank(2)
    async with receiver(lambda _: (401, "who are you?")) as there, writing(there.url) as writer:
        for end in range(100):
            writer.take(state, step(end))
        await until(lambda: len(there.requests) > 12)  # five tries, and halves down to two samples
        assert (dropped(state), writer.pending) == ({}, 100)
        there.answer = lambda _: (204, "")
        await until(lambda: writer.pending == 0)
        assert sorted(one.samples[0][1] for one in there.taken) == list(range(100))
    assert dropped(state) == {}


async def test_a_step_that_does_not_end_after_the_one_before_is_not_sent():
    """Prometheus takes samples of a series in order only."""
    state = rank()
    async with receiver() as there, writing(there.url) as writer:
        for end in (1000, 1000, 900, 1001):
            writer.take(state, step(end))
        await until(lambda: len(there.taken) == 2)
    assert dropped(state) == {"remote_write_order": 2}


async def test_what_is_queued_at_the_end_gets_a_last_try():
    """SIGTERM does not cost the last steps."""
    state = rank()
    async with receiver() as there:
        async with writing(there.url, interval_seconds=3600) as writer:
            writer.take(state, step(1000))
        assert len(there.taken) == 1


async def test_without_a_url_nothing_is_queued():
    """The default: off."""
    state = rank()
    async with writing("") as writer:
        writer.take(state, step(1000))
        writer.reconfigure(RemoteWriteConfig(url=NOWHERE, queue_samples=1))
        writer.take(state, step(1000))
        assert dropped(state) == {}
        writer.take(state, step(1001))
        assert dropped(state) == {"remote_write_queue": 1}


async def test_a_rotated_secret_is_used_without_a_reload(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The file is read for each request; while it cannot be used the samples wait, and the log names it."""
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    state = rank()
    auth = {"username": "me", "password_file": str(secret)}
    async with receiver() as there, writing(there.url, basic_auth=auth) as writer:
        writer.take(state, step(1))
        await until(lambda: len(there.taken) == 1)
        assert (
            there.requests[-1].headers["Authorization"] == "Basic " + base64.b64encode(b"me:first").decode()
        )
        secret.unlink()
        writer.take(state, step(2))
        await until(lambda: f"remote_write.basic_auth.password_file: cannot read {secret}" in caplog.text)
        secret.write_text("second\n")
        await until(lambda: len(there.taken) == 2)
        assert (
            there.requests[-1].headers["Authorization"] == "Basic " + base64.b64encode(b"me:second").decode()
        )
    assert dropped(state) == {}


async def test_what_nobody_expected_ends_no_watch_over_the_queue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It is said, with its stack, and the sample goes with the next try."""
    post, failing = Sender.post, iter([True, False])

    async def failing_once(self: Sender, session: aiohttp.ClientSession, series: Sequence[bytes]) -> int:
        if next(failing):
            raise RuntimeError("a defect of ours")
        return await post(self, session, series)

    monkeypatch.setattr(Sender, "post", failing_once)
    state = rank()
    async with receiver() as there, writing(there.url) as writer:
        writer.take(state, step(1))
        await until(lambda: len(there.taken) == 1)
    assert "iterations not written, tried again" in caplog.text and "a defect of ours" in caplog.text
    assert dropped(state) == {}


async def test_a_new_configuration_with_a_wrong_file_changes_nothing(tmp_path: Path):
    """The old one goes on, with what is queued."""
    async with receiver() as there, writing(there.url) as writer:
        absent = RemoteWriteConfig(url=NOWHERE, bearer_token_file=tmp_path / "absent")
        with pytest.raises(AccessError, match=r"remote_write\.bearer_token_file: cannot read .*absent"):
            writer.reconfigure(absent)
        writer.take(rank(), step(1))
        await until(lambda: len(there.taken) == 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"url": "localhost:9090"}, r"remote_write\.url is 'localhost:9090'; allowed: http://"),
        ({"basic_auth_user": "me"}, r"basic_auth_user; did you mean remote_write\.basic_auth\?"),
        ({"basic_auth": {"password": "x"}}, r"remote_write\.basic_auth\.username is empty"),
        ({"labels": {"rank": "x"}}, r"labels\.rank is no label to add"),
        ({"queue_samples": 9}, r"remote_write\.queue_samples cannot be set, it is always 50000"),
        ({"label": {}}, r"unknown key remote_write\.label; did you mean remote_write\.labels\?"),
    ],
)
def test_a_wrong_configuration_is_refused(content: dict[str, object], says: str):
    """Key, value and what is allowed."""
    with pytest.raises(SettingsError, match=says):
        from_mapping(ExporterConfig, {"remote_write": content}, "exporter.yaml")


def test_without_snappy_the_exporter_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """At the start, not with the first step."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(ArgusExporterError, match=r"pip install 'argus-for-prometheus\[remote-write\]'"):
        IterationWriter(RemoteWriteConfig(url=NOWHERE), Failures(log)).start()
