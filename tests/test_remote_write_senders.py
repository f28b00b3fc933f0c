"""The cases of the public sender suites of remote write, for the worker and the exporter, in either version.

Source: prometheus/compliance, remotewrite/sender (protocol, symbols, labels, timestamps, retry, backoff,
response, error_handling, fallback), over a made-up receiver that may store a part of a request. Each says how
many requests came, as a suite without requests passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final, Protocol

import aiohttp
import pytest

from argus_core import wire
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.remote_write import encode_series, labels_of
from argus_core.version import installed_version
from argus_exporter.config import ExporterConfig
from argus_exporter.place.topology import Identity
from argus_exporter.publish.config import RemoteWriteConfig
from argus_exporter.publish.iteration_writer import IterationWriter
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool
from remote_write_receiver import Answer, Labels, Receiver, Takes, serving

BAD: Final = 13
"""The rank whose samples some receivers do not take."""
_TIMEOUT_SECONDS: Final = 2.0
"""Longer than a busy machine may leave a request unanswered."""

Sample = tuple[int, int]
"""Rank, and milliseconds."""


class Program(Protocol):
    """Something of ours that writes remotely."""

    async def give(self, samples: Sequence[Sample]) -> None:
        """Have these written, with a first try at once or soon."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let it try on until the condition holds."""

    def lost(self) -> float:
        """Samples that it counts as lost, refused or unwritten."""

    def unwritten(self) -> float:
        """Those of them that a success did not count."""

    def settled(self) -> bool:
        """Whether all that was given is delivered or lost."""


@dataclass
class Worker:
    delivery: Delivery
    telemetry: Telemetry
    spool: Spool

    async def give(self, samples: Sequence[Sample]) -> None:
        await self.delivery.send(
            [
                encode_series(labels_of("argus_l3_rank_shift_ratio", rank=str(n), team=""), 1.0, ms)
                for n, ms in samples
            ]
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await self.delivery.drain()
                await asyncio.sleep(0)

    def lost(self) -> float:
        name, results = "argus_l3_worker_samples_total", ("refused", "unwritten")
        counts = [self.telemetry.registry.get_sample_value(name, {"result": result}) for result in results]
        return sum(count or 0.0 for count in counts)

    def unwritten(self) -> float:
        labels = {"result": "unwritten"}
        return self.telemetry.registry.get_sample_value("argus_l3_worker_samples_total", labels) or 0.0

    def settled(self) -> bool:
        return not self.spool.waiting()


@dataclass
class Exporter:
    writer: IterationWriter
    registry: RankRegistry

    async def give(self, samples: Sequence[Sample]) -> None:
        for number, end_ms in samples:
            attachment = Attachment(frozenset({wire.Channel.PHASES}), 0, 100)
            state = self.registry.hello(Identity("job", number), attachment)
            self.writer.take(state, wire.Iteration(1, end_ms * 1_000_000, 10**8, 1, 1.0, 1.0))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    def lost(self) -> float:
        dropped = [state.channel(wire.Channel.PHASES).dropped for state in self.registry]
        return sum(sum(one.values()) for one in dropped) + sum(self.writer.lost.values())

    def unwritten(self) -> float:
        return self.writer.lost["unwritten"]

    def settled(self) -> bool:
        return self.writer.pending == 0


@contextlib.asynccontextmanager
async def worker(url: str) -> AsyncIterator[Program]:
    config = WriteConfig(attempts=2, backoff_seconds=0.005, timeout_seconds=_TIMEOUT_SECONDS)
    spool, telemetry = Spool(None, 1 << 20, 1 << 50), Telemetry()
    async with aiohttp.ClientSession() as session:
        yield Worker(Delivery(session, url, config, spool, telemetry), telemetry, spool)


@contextlib.asynccontextmanager
async def exporter(url: str) -> AsyncIterator[Program]:
    config = dataclasses.replace(
        RemoteWriteConfig(url=url), interval_seconds=0.02, timeout_seconds=_TIMEOUT_SECONDS
    )
    writer = IterationWriter(config, Failures(Log(__name__)))
    writer.start()
    try:
        yield Exporter(writer, RankRegistry(ExporterConfig()))
    finally:
        await writer.stop()


Start = Callable[[str], AbstractAsyncContextManager[Program]]
every_program = pytest.mark.parametrize("start", [worker, exporter])
every_version = pytest.mark.parametrize("takes", ["2.0", "1.0", "1.0 unchecked"])
_AGENTS: Final = {worker: "argus-l3-worker", exporter: "argus-exporter"}
both_versions = pytest.mark.parametrize("takes", ["2.0", "1.0"])


@contextlib.asynccontextmanager
async def sending(start: Start, receiver: Receiver) -> AsyncIterator[Program]:
    async with serving(receiver) as url, start(url) as program:
        yield program
        await program.until(program.settled)


def ranks(stored: Sequence[Labels]) -> list[int]:
    return [int(dict(labels)["rank"]) for labels in stored]


def first(*answers: tuple[int, str]) -> Answer:
    """These, one a request, then success."""
    left = iter(answers)
    return lambda _: next(left, (204, ""))


def line_of(caplog: pytest.LogCaptureFixture, words: str) -> str:
    (line,) = [one.getMessage() for one in caplog.records if words in one.getMessage()]
    return line


@every_program
@pytest.mark.parametrize("takes", ["2.0", "1.0", "1.0 unchecked", "1.0 by 400", "1.0 by 500"])
async def test_what_is_sent_is_well_formed(start: Start, takes: Takes) -> None:
    """Labels sorted, none empty or twice; one sample a series; the headers; each sample in one request."""
    receiver = Receiver(takes=takes)
    async with sending(start, receiver) as program:
        await program.give([(number, 1_700_000_000_000 + number) for number in range(20)])
        await program.until(lambda: len(receiver.taken) == 20)
        assert program.lost() == 0
    assert len(receiver.requests) == (1 if takes == "2.0" else 2)
    for one in receiver.taken:
        names = [name for name, _ in one.labels]
        assert names == sorted(set(names)) and "__name__" in names
        assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) and text for name, text in one.labels)
        ((_, milliseconds),) = one.samples
        assert milliseconds == 1_700_000_000_000 + int(dict(one.labels)["rank"])
        assert (one.type != 0, one.help != "") == ((True, True) if takes == "2.0" else (False, False))
    headers = receiver.requests[-1].headers
    kind = "application/x-protobuf" + (";proto=io.prometheus.write.v2.Request" if takes == "2.0" else "")
    assert (headers["Content-Type"], headers["Content-Encoding"]) == (kind, "snappy")
    assert headers["X-Prometheus-Remote-Write-Version"] == ("2.0.0" if takes == "2.0" else "0.1.0")
    assert headers["User-Agent"] == f"{_AGENTS[start]}/{installed_version()}"


@every_program
@every_version
async def test_samples_of_a_series_come_in_order_from_a_slow_receiver(start: Start, takes: Takes) -> None:
    """One request at a time: what is given while one is under way follows it."""
    receiver = Receiver(takes=takes)
    async with sending(start, receiver) as program:
        receiver.gate.clear()
        given = asyncio.ensure_future(program.give([(1, 1), (2, 1)]))
        await until_requested(receiver)
        receiver.gate.set()
        await given
        for end in range(2, 6):
            await program.give([(1, end), (2, end)])
        await program.until(lambda: len(receiver.taken) == 10)
    assert receiver.most_at_once == 1
    for number in ("1", "2"):
        stamps = [one.samples[0][1] for one in receiver.taken if ("rank", number) in one.labels]
        assert stamps == [1, 2, 3, 4, 5]


async def until_requested(receiver: Receiver) -> None:
    async with asyncio.timeout(20):
        while not receiver.requests:
            await asyncio.sleep(0.005)


@every_program
@both_versions
@pytest.mark.parametrize("status", [302, 500, 502, 503, 504, 429, 401, 403, 404, 405, 407, 408])
async def test_what_may_be_mended_is_sent_again(start: Start, takes: Takes, status: int) -> None:
    """The same request, until it is taken: nothing lost, nothing twice."""
    receiver = Receiver(first((status, "no"), (status, "no")), takes)
    async with sending(start, receiver) as program:
        await program.give([(1, 1), (2, 1)])
        await program.until(lambda: len(receiver.taken) == 2)
        assert program.lost() == 0
    assert ranks([one.labels for one in receiver.taken]) == [1, 2]
    assert len(receiver.requests) == (3 if takes == "2.0" else 4)


@every_program
@both_versions
@pytest.mark.parametrize(
    "status", [400, 402, 406, 409, 410, 411, 412, 413, 414, 416, 417, 422, 431, 451, 499]
)
async def test_what_is_refused_for_itself_is_not_sent_again(start: Start, takes: Takes, status: int) -> None:
    """One bad of 64: twelve halves beside the request itself, one loss; the next sample goes as ever."""
    receiver = Receiver(lambda series: (status, "no") if BAD in ranks(series) else (204, ""), takes)
    async with sending(start, receiver) as program:
        await program.give([(number, 1) for number in range(64)])
        await program.until(lambda: program.lost() == 1 and len(receiver.taken) == 63)
        requests = len(receiver.requests)
        assert requests == (1 if takes == "2.0" else 2) + 12
        await program.give([(100, 1)])
        await program.until(lambda: len(receiver.taken) == 64)
        assert (program.lost(), len(receiver.requests)) == (1, requests + 1)
    stored = sorted(ranks([one.labels for one in receiver.taken]))
    assert stored == [*range(BAD), *range(BAD + 1, 64), 100]


@every_program
async def test_a_receiver_of_neither_version_is_told_what_it_must_allow(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """415 to both: one request of each at every try, and the log has the messages and the encoding."""
    receiver = Receiver(takes="1.0", refuses_1=True)
    async with sending(start, receiver) as program:
        await program.give([(1, 1)])
        await program.until(lambda: len(receiver.requests) >= 4)
        receiver.takes = "2.0"
        await program.until(lambda: len(receiver.taken) == 1)
        assert program.lost() == 0
    assert [request.version for request in receiver.requests][:4] == [2, 1, 2, 1]
    assert "prometheus.WriteRequest" in caplog.text and "snappy" in caplog.text


@every_program
async def test_a_part_that_is_stored_is_not_sent_again(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Partial ingestion: 400 with 63 of 64 written is one request, one loss, and the receiver's reason."""
    receiver = Receiver(bad=lambda labels: ("rank", str(BAD)) in labels)
    async with sending(start, receiver) as program:
        await program.give([(number, 1) for number in range(64)])
        await program.until(lambda: program.lost() == 1)
        await program.give([(100, 1)])
        await program.until(lambda: len(receiver.taken) == 64)
    assert [len(request.series) for request in receiver.requests] == [64, 1]
    assert sorted(ranks([one.labels for one in receiver.taken])) == [*range(BAD), *range(BAD + 1, 64), 100]
    assert re.search(r"\b(count|samples)=1\b", line_of(caplog, "out of order sample"))


@every_program
async def test_a_part_that_is_stored_in_1_0_is_found_by_halves(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """1.0 stores what it can, too, and cannot say how much: what is sent twice is the same sample again."""
    receiver = Receiver(bad=lambda labels: ("rank", str(BAD)) in labels, takes="1.0")
    async with sending(start, receiver) as program:
        await program.give([(number, 1) for number in range(64)])
        await program.until(lambda: program.lost() == 1 and program.settled())
        await program.give([(100, 1)])
        await program.until(lambda: ("rank", "100") in receiver.taken[-1].labels)
        assert (program.lost(), program.unwritten()) == (1, 0)
    assert len(receiver.requests) == 2 + 12 + 1
    assert set(ranks([one.labels for one in receiver.taken])) == {*range(BAD), *range(BAD + 1, 64), 100}
    assert re.search(r"\b(count|samples)=1\b", line_of(caplog, "out of order sample"))


@every_program
async def test_a_part_that_is_stored_with_a_wish_to_retry_is_sent_again(start: Start) -> None:
    """503 after a part was written: all of it comes once more, as the specification has it."""
    receiver = Receiver(first((503, "half of it")))
    receiver.counts = lambda stored: str(stored or 1)
    async with sending(start, receiver) as program:
        await program.give([(1, 1), (2, 1)])
        await program.until(lambda: len(receiver.taken) == 2)
        assert program.lost() == 0
    assert [len(request.series) for request in receiver.requests] == [2, 2]


@every_program
@pytest.mark.parametrize("counted", [0, 1, 2])
async def test_what_a_success_does_not_count_is_lost_and_not_sent_again(
    start: Start, counted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Three sent, fewer written: the difference is counted and said."""
    receiver = Receiver(counts=lambda _: str(counted))
    async with sending(start, receiver) as program:
        await program.give([(1, 1), (2, 1), (3, 1)])
        await program.until(lambda: program.unwritten() == 3 - counted)
    assert len(receiver.requests) == 1
    assert re.search(rf"\b(lost|samples)={3 - counted}\b", line_of(caplog, "counts less"))


@every_program
@pytest.mark.parametrize("as_date", [False, True])
async def test_a_short_wish_is_waited_for(start: Start, as_date: bool) -> None:
    """Seconds from now, as a number or as a date: the request is sent once more after them."""
    receiver = Receiver(first((429, "busy")))
    async with sending(start, receiver) as program:
        wish = formatdate(time.time() + 2, usegmt=True) if as_date else "1"
        receiver.answer_headers = {"Retry-After": wish}
        await program.give([(1, 1)])
        await program.until(lambda: len(receiver.taken) == 1)
    before, after = receiver.requests
    # A date has whole seconds: up to one of the two is gone when it is written.
    assert 0.5 <= after.at - before.at < 10.0


@every_program
async def test_a_success_without_counts_is_a_receiver_of_1_0(start: Start) -> None:
    """Even after one with counts: a second server behind the same name, which is older."""
    receiver = Receiver()
    async with sending(start, receiver) as program:
        await program.give([(1, 1)])
        await program.until(lambda: len(receiver.taken) == 1)
        receiver.takes = "1.0 unchecked"
        for end in (2, 3):
            await program.give([(1, end)])
            await program.until(lambda end=end: len(receiver.taken) == end)
        assert program.lost() == 0
    assert [request.version for request in receiver.requests] == [2, 2, 1, 1]


@every_program
@every_version
@pytest.mark.parametrize("text", ["", "error: nothing was stored", "x" * (1 << 20)])
async def test_what_a_success_says_is_not_read(start: Start, takes: Takes, text: str) -> None:
    """200 with any text is as good as 204."""
    receiver = Receiver(lambda _: (200, text), takes)
    async with sending(start, receiver) as program:
        await program.give([(1, 1)])
        await program.until(lambda: len(receiver.taken) == 1)
        assert program.lost() == 0
    assert len(receiver.requests) == (1 if takes == "2.0" else 2)


@every_program
async def test_an_error_of_a_megabyte_is_cut(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Its beginning is in the log, as it came."""
    receiver = Receiver(first((400, "sample is bad; " + "x" * (1 << 20))))
    async with sending(start, receiver) as program:
        await program.give([(1, 1)])
        await program.until(lambda: program.lost() == 1)
        await program.give([(2, 1)])
        await program.until(lambda: len(receiver.taken) == 1)
    assert len(line_of(caplog, "sample is bad")) < 1000


@every_program
@every_version
async def test_a_broken_connection_is_no_answer(start: Start, takes: Takes) -> None:
    """Closed after the request was read: it comes again, and the receiver has it at least once."""
    receiver = Receiver(takes=takes, hang_up=2)
    async with sending(start, receiver) as program:
        await program.give([(1, 1)])
        await program.until(lambda: len(receiver.requests) >= 3 and not receiver.hang_up)
        await program.until(lambda: bool(receiver.taken))
        assert program.lost() == 0
    assert set(ranks([one.labels for one in receiver.taken])) == {1}


@every_program
async def test_a_receiver_that_does_not_answer_is_left_after_a_while(start: Start) -> None:
    """The request comes again once it answers."""
    receiver = Receiver()
    async with sending(start, receiver) as program:
        receiver.gate.clear()
        await program.give([(1, 1)])
        await program.until(lambda: len(receiver.requests) >= 2)
        receiver.gate.set()
        await program.give([(1, 2)])
        await program.until(lambda: receiver.taken[-1].samples[0][1] == 2)
        assert program.lost() == 0
    assert set(ranks([one.labels for one in receiver.taken])) == {1}
