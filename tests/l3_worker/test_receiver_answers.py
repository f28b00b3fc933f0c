"""What the worker makes of a receiver's answers: the cases of the remote write compliance suites, as a table.

A suite that receives no request passes, so each test says how many requests came.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from argus_core.remote_write import Labels, encode_series, labels_of, pack
from argus_l3_worker.config import Config
from argus_l3_worker.serve import Health
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool
from remote_write_receiver import Answer, Receiver, Takes, serving

HOUR_MS = 3_600_000
BAD = ("rank", "13")


class Writing:
    """A delivery to a receiver of its own; `counts` are the worker's samples by result."""

    def __init__(
        self,
        answer: Answer,
        folder: Path | None = None,
        per_request: int = 100,
        takes: Takes = "2.0",
        attempts: int = 1,
    ) -> None:
        self.receiver, self.telemetry = Receiver(answer, takes), Telemetry()
        self.spool = Spool(folder, 1 << 20, HOUR_MS)
        self._config = WriteConfig(attempts=attempts, backoff_seconds=0.01, series_per_request=per_request)

    @contextlib.asynccontextmanager
    async def delivery(self) -> AsyncIterator[Delivery]:
        async with serving(self.receiver) as url, aiohttp.ClientSession() as session:
            yield Delivery(session, url, self._config, self.spool, self.telemetry)
        self.spool.close()

    @property
    def requests(self) -> list[list[Labels]]:
        """Labels of the series of each request."""
        return [request.labels for request in self.receiver.requests]

    @property
    def taken(self) -> list[Labels]:
        """What the receiver has stored."""
        return [one.labels for one in self.receiver.taken]

    def counted(self, result: str) -> float:
        value = self.telemetry.registry.get_sample_value("argus_l3_worker_samples_total", {"result": result})
        return value or 0.0


def series(*ranks: int, name: str = "argus_l3_rank_shift_ratio") -> list[bytes]:
    return [encode_series(labels_of(name, rank=str(rank), worker=""), 1.0, 1_000) for rank in ranks]


def ranks_of(labels: Sequence[Labels]) -> list[int]:
    return [int(dict(one)["rank"]) for one in labels]


def refusing(status: int, text: str = "out of order sample") -> Answer:
    """The whole request, wherever the bad series is in it."""
    return lambda labels: (status, text) if any(BAD in one for one in labels) else (204, "")


@pytest.mark.parametrize("status", [302, 401, 403, 404, 405, 407, 408, 429, 500, 503])
async def test_what_is_not_about_the_content_holds_everything_back(status: int) -> None:
    """One request a cycle is tried, none is halved, and all of them come once somebody has mended it."""
    mended = False
    writing = Writing(lambda _: (204, "") if mended else (status, "no"), per_request=2)
    async with writing.delivery() as delivery:
        assert not await delivery.send(series(3, 4), series(1, 2))
        assert not await delivery.send(series(5, 6))
        mended = True
        assert await delivery.send(series(7))
    assert [ranks_of(request) for request in writing.requests] == [
        *([1, 2] for _ in range(2)),
        *([1, 2], [3, 4], [5, 6], [7]),
    ]
    assert writing.counted("refused") == 0


@pytest.mark.parametrize(
    "text", ["per-user series limit of 1000 exceeded", "max series: limit of 5", "quota exceeded"]
)
async def test_a_tenants_limit_is_not_halved(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Three requests refused are three requests sent, counted, and one line with the first reason."""
    calls = 0

    def answer(_: Sequence[Labels]) -> tuple[int, str]:
        nonlocal calls
        calls += 1
        return 400, f"{text} ({calls})"

    writing = Writing(answer, per_request=10)
    async with writing.delivery() as delivery:
        assert not await delivery.send(series(*range(10, 30)), series(*range(10)))
    assert len(writing.requests) == 3
    assert (writing.counted("refused"), len(writing.spool)) == (30, 0)
    (line,) = [record.getMessage() for record in caplog.records if "refused and dropped" in record.message]
    assert f"{text} (1)" in line and "30" in line


async def test_a_cycles_verdicts_go_first_and_say_whether_it_was_delivered() -> None:
    """Cortex under a limit: what comes first is stored, the diagnostics behind it are lost."""
    writing = Writing(lambda labels: (204, "") if len(labels) == 2 else (400, "series limit of 2 exceeded"))
    lost = Writing(lambda labels: (400, "series limit of 2 exceeded") if len(labels) == 2 else (204, ""))
    async with writing.delivery() as delivery:
        assert await delivery.send(series(*range(2, 50)), series(0, 1))
    async with lost.delivery() as delivery:
        assert not await delivery.send(series(*range(2, 50)), series(0, 1))
    for one in (writing, lost):
        assert [len(request) for request in one.requests] == [2, 48]
    assert ranks_of(writing.taken) == [0, 1]


async def test_a_refused_verdict_is_not_a_delivered_cycle() -> None:
    """The others of its request are stored, and the cycle still failed."""
    writing = Writing(refusing(409))
    async with writing.delivery() as delivery:
        assert not await delivery.send([], series(12, 13))
    assert ranks_of(writing.taken) == [12]


async def test_verdicts_that_were_taken_by_halves_are_delivered() -> None:
    """413 of a proxy: what is too much in one request is all stored in several."""
    writing = Writing(lambda labels: (204, "") if len(labels) <= 2 else (413, "too large"))
    async with writing.delivery() as delivery:
        assert await delivery.send([], series(*range(8)))
    assert sorted(ranks_of(writing.taken)) == list(range(8))
    assert len(writing.requests) == 7


async def test_poison_steps_aside() -> None:
    """A proxy that fails on the bad series alone: after five tries the others go before it, for ever."""

    def answer(labels: Sequence[Labels]) -> tuple[int, str]:
        if not any(BAD in one for one in labels):
            return 204, ""
        return (400, "bad sample") if len(labels) > 1 else (502, "upstream")

    writing = Writing(answer, per_request=2)
    async with writing.delivery() as delivery:
        assert not await delivery.send(series(14, 13))
        for cycle in range(1, 4):
            assert not await delivery.send(series(cycle))
        assert writing.taken == []
        assert not await delivery.send(series(4))
        assert ranks_of(writing.taken) == [1, 2, 3, 4]
        assert not await delivery.send(series(5))
        assert ranks_of(writing.taken) == [1, 2, 3, 4, 5]
    assert (len(writing.spool), writing.counted("postponed")) == (1, 2)
    assert len(writing.requests) == 6 * 2 + 5


# What the receiver says that it has written


@pytest.mark.parametrize("stored", [0, 19])
async def test_a_success_that_counts_less_than_was_sent_is_a_loss(
    stored: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What a receiver drops in silence is counted; a cycle whose verdicts it may be is not delivered."""
    writing = Writing(lambda _: (204, ""))
    async with writing.delivery() as delivery:
        writing.receiver.counts = lambda _: str(stored)
        assert not await delivery.send([], series(*range(20)))
        writing.receiver.counts = str
        assert await delivery.send([], series(*range(20)))
    assert (writing.counted("unwritten"), writing.counted("written")) == (20 - stored, stored + 20)
    assert len(writing.requests) == 2
    (line,) = [record.getMessage() for record in caplog.records if "counts less" in record.message]
    assert f"lost={20 - stored}" in line


async def test_a_tenants_limit_counts_what_there_was_room_for() -> None:
    """Cortex and Mimir store a part of the request and refuse the rest: the answer says how much."""
    writing = Writing(lambda _: (400, "per-user series limit of 15 exceeded"))
    writing.receiver.counts = lambda _: "15"
    async with writing.delivery() as delivery:
        assert await delivery.send(series(*range(20)))
    assert len(writing.requests) == 1
    assert (writing.counted("refused"), writing.counted("written")) == (5, 15)


@pytest.mark.parametrize("takes", ["1.0", "1.0 unchecked"])
async def test_what_was_kept_for_one_receiver_goes_to_another(takes: Takes, tmp_path: Path) -> None:
    """A spool of a receiver of 2.0, and the next one takes 1.0 only."""
    before = Writing(lambda _: (503, "away"), tmp_path)
    async with before.delivery() as delivery:
        assert not await delivery.send(series(1, 2))
    after = Writing(lambda _: (204, ""), tmp_path, takes=takes)
    async with after.delivery() as delivery:
        assert await delivery.send(series(3))
    assert [request.version for request in after.receiver.requests] == [2, 1, 1]
    assert ranks_of(after.taken) == [1, 2, 3]


# When to come again


async def test_a_long_wish_holds_back_the_cycles_until_then() -> None:
    """60 seconds: this cycle ends, the next ones send nothing and say for how long."""
    writing = Writing(lambda _: (503, "busy"), attempts=3)
    writing.receiver.answer_headers = {"Retry-After": "60"}
    async with writing.delivery() as delivery:
        for cycle in range(3):
            assert not await delivery.send(series(cycle))
        assert "wants no request for another 60 s" in delivery.problem
    assert len(writing.requests) == 1
    assert len(writing.spool) == 3


# What a crash leaves in the spool


@pytest.mark.parametrize("left", ["half", "nothing", "zeros"])
async def test_a_torn_spool_file_is_dropped_and_the_next_ones_are_delivered(
    left: str, tmp_path: Path
) -> None:
    """Three requests kept, the power fails, the first file is torn: two are delivered, one is counted."""
    kept = Writing(lambda _: (503, "away"), tmp_path, per_request=1)
    async with kept.delivery() as delivery:
        assert not await delivery.send(series(1, 2, 3))
    torn = min(tmp_path.glob("*.rw"))
    whole = torn.read_bytes()
    torn.write_bytes({"half": whole[: len(whole) // 2], "nothing": b"", "zeros": bytes(len(whole))}[left])
    after = Writing(lambda labels: (204, "") if labels else (400, "empty"), tmp_path)
    async with after.delivery() as delivery:
        assert await delivery.send(series(4))
    assert [ranks_of(request) for request in after.requests] == [[2], [3], [4]]
    dropped = after.telemetry.registry.get_sample_value("argus_l3_worker_spool_dropped_requests_total")
    assert (dropped, len(after.spool), list(tmp_path.glob("*.rw"))) == (1.0, 0, [])


@pytest.mark.parametrize("status", [401, 403, 404, 405, 407])
async def test_a_request_that_is_turned_away_alone_holds_up_the_others_for_five_tries(status: int) -> None:
    """A filter that dislikes a label: once another request is taken, it is known not to be about us."""
    writing = Writing(refusing(status, "forbidden by rule 941100"), per_request=2)
    async with writing.delivery() as delivery:
        for cycle in range(4):
            assert not await delivery.send(series(*([14, 13] if cycle == 0 else [cycle])))
        assert writing.taken == []
        assert not await delivery.send(series(4))
        assert ranks_of(writing.taken) == [1, 2, 3, 4]
        assert not await delivery.send(series(13, 15), series(5))
        assert ranks_of(writing.taken) == [1, 2, 3, 4, 5]
        assert not await delivery.send(series(6))
    assert ranks_of(writing.taken) == [1, 2, 3, 4, 5, 6], "another like it is known at once"
    assert len(writing.spool) == 2 and writing.counted("refused") == 0


async def test_two_requests_in_a_row_that_are_turned_away_hold_up_the_others_for_ten_tries() -> None:
    """The second is asked for once the first has had its five."""
    writing = Writing(refusing(403, "forbidden by rule 941100"), per_request=1)
    async with writing.delivery() as delivery:
        assert not await delivery.send(series(13))
        assert not await delivery.send(series(13))
        for cycle in range(10):
            assert not await delivery.send(series(20 + cycle))
        assert ranks_of(writing.taken) == list(range(20, 30))
    assert len(writing.spool) == 2 and writing.counted("refused") == 0


async def test_a_receiver_that_turns_all_away_gets_them_in_order() -> None:
    """A password that is wrong for long: four requests a cycle show it, and nothing changes its place."""
    mended = False
    writing = Writing(lambda _: (204, "") if mended else (401, "no"), per_request=2)
    async with writing.delivery() as delivery:
        for cycle in range(20):
            before = len(writing.requests)
            assert not await delivery.send(series(cycle))
            assert len(writing.requests) - before <= 4
        mended = True
        assert await delivery.send(series(20))
    assert ranks_of(writing.taken) == list(range(21))


async def test_poison_that_stepped_aside_is_still_the_oldest() -> None:
    """Behind the others when they are sent, before them when the spool's bounds end it."""
    writing = Writing(lambda labels: (503, "away") if len(labels) == 1 else (400, "bad"))
    async with writing.delivery() as delivery:
        for cycle in range(6):
            assert not await delivery.send(series(cycle, 100 + cycle))
    stamps = [entry.created_ms for entry in writing.spool.waiting()]
    assert len(stamps) == 6
    assert stamps == sorted(stamps)
    assert writing.spool.trim(stamps[0] + HOUR_MS + 1) >= 1
    assert stamps[0] not in [entry.created_ms for entry in writing.spool.waiting()]


async def test_noise_that_looks_like_a_request_is_refused_and_passed_over() -> None:
    """Bytes that decompress and are no series: the receiver's 400 ends it, and its name stays unknown."""
    writing = Writing(lambda _: (204, ""))
    writing.spool.append(pack([b"\n\x7f"]), int(time.time() * 1000))
    async with writing.delivery() as delivery:
        assert await delivery.send(series(2))
    assert ranks_of(writing.taken) == [2]
    assert writing.counted("refused") == 1


def test_a_kept_request_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents first, then the name, then the folder: a power cut leaves a whole file or none."""
    happened: list[str] = []
    sync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        happened.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "contents")
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        happened.append("name")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    spool = Spool(tmp_path, 1 << 20, HOUR_MS)
    spool.append(b"body", 1)
    spool.close()
    assert happened == ["contents", "name", "folder"]


@pytest.mark.parametrize(("fails", "kept"), [("contents", 0), ("folder", 3)])
def test_a_disk_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, kept: int
) -> None:
    """Full: each body stays in memory, in one file at most. Folders that cannot be synced, as of some network
    file systems: requests are kept as files all the same, and each is removed once it is delivered."""
    sync = os.fsync

    def synced(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == (fails == "folder"):
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    spool = Spool(tmp_path, 1 << 20, HOUR_MS)
    for number in range(3):
        spool.append(b"body%d" % number, number)
    assert [spool.body(entry) for entry in spool.waiting()] == [b"body0", b"body1", b"body2"]
    assert len(list(tmp_path.glob("*.rw"))) == kept
    assert len(list(tmp_path.glob("*.tmp"))) <= 1
    for entry in spool.waiting():
        spool.remove(entry)
    spool.close()
    assert list(tmp_path.glob("*.rw")) == []


def test_healthz_says_since_when_and_why_nothing_is_written() -> None:
    """After 120 s of refusals; the status stays 200, as a restart would lose what waits in memory."""
    now = 0.0
    health = Health(Config(cycle_seconds=20.0), monotonic=lambda: now)
    health.turned(None)
    now = 119.0
    health.turned("HTTP 503")
    assert (health.problem(), health.remark()) == (None, None)
    now = 121.0
    health.turned("HTTP 503")
    assert health.problem() is None
    assert health.remark() == "nothing was written for 121 s: HTTP 503"
    health.turned(None)
    assert health.remark() is None


async def test_a_cycle_tells_why_it_was_not_delivered() -> None:
    """What /healthz repeats: the receiver's answer, gone with the next success."""
    writing = Writing(lambda labels: (204, "") if 2 in ranks_of(labels) else (503, "away"), per_request=1)
    async with writing.delivery() as delivery:
        assert not await delivery.send(series(1))
        assert "HTTP 503: away" in delivery.problem
        (entry,) = writing.spool.waiting()
        writing.spool.remove(entry)
        assert await delivery.send(series(2))
        assert delivery.problem == ""
