"""A made-up receiver of remote write, of either version or both, that stores what it takes.

It answers as told, and may store a part of a request as receivers of 2.0 do. A suite that gets no request
passes, so tests say how many came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from remote_write_messages import Written, read_1, read_2

Labels = tuple[tuple[str, str], ...]
Answer = Callable[[Sequence[Labels]], tuple[int, str]]
"""Status and text, by the labels of the series of a request."""

Takes = Literal["2.0", "1.0", "1.0 unchecked", "1.0 by 400", "1.0 by 500"]
"""What it takes: "2.0" takes both. The others refuse 2.0 by 415 or another status, or do not look at the type
and take it for an empty message of 1.0."""

_TYPE_2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"


@dataclass
class Request:
    """One request as it came."""

    version: int
    series: list[Written]
    headers: Mapping[str, str]
    at: float
    """By the clock of the event loop."""

    @property
    def labels(self) -> list[Labels]:
        return [one.labels for one in self.series]


@dataclass
class Receiver:
    """Answers as told, and keeps what came and what it took.

    Attributes:
        answer: to a request that it could read.
        bad: series that it does not store although it stores the others: 400, and in 2.0 the count.
        refuses_1: whether it answers 415 to 1.0.
        counts: what it says of how many of a number of series are written, in 2.0.
        answer_headers: further headers of every answer.
        gate: requests are answered once it is set.
        hang_up: so many requests are read, and their connection is closed without an answer.
        most_at_once: how many requests were there at the same time.
    """

    answer: Answer = lambda _: (204, "")
    takes: Takes = "2.0"
    refuses_1: bool = False
    bad: Callable[[Labels], bool] | None = None
    counts: Callable[[int], str | None] = str
    answer_headers: dict[str, str] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    hang_up: int = 0
    most_at_once: int = 0
    requests: list[Request] = field(default_factory=list)
    taken: list[Written] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.gate.set()
        self._now = 0

    async def write(self, request: web.Request) -> web.Response:
        body = await request.read()
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            answer = self._read(request, body)
            if self.hang_up:
                self.hang_up -= 1
                assert request.transport is not None
                request.transport.close()
            await self.gate.wait()
            return answer
        finally:
            self._now -= 1

    def _read(self, request: web.Request, body: bytes) -> web.Response:
        version = 2 if request.headers["Content-Type"] == _TYPE_2 else 1
        unchecked = self.takes == "1.0 unchecked"
        refusals = {"1.0": 415, "1.0 by 400": 400, "1.0 by 500": 500}
        refusal = (415 if self.refuses_1 else 0) if version == 1 else refusals.get(self.takes, 0)
        if refusal:
            self._keep(version, [], request)
            return web.Response(status=refusal, text="unknown message")
        try:
            series = read_1(body) if version == 1 or unchecked else read_2(body)
        except Exception as error:  # the library's own, which has no public name
            return web.Response(status=400, text=str(error))
        self._keep(version, series, request)
        return self._answered(series, version if not unchecked else 1)

    def _keep(self, version: int, series: list[Written], request: web.Request) -> None:
        now = asyncio.get_running_loop().time()
        self.requests.append(Request(version, series, dict(request.headers), now))

    def _answered(self, series: list[Written], version: int) -> web.Response:
        status, text = self.answer([one.labels for one in series])
        stored = series if status < 300 else []
        if self.bad is not None and any(self.bad(one.labels) for one in series):
            status, text = 400, "out of order sample"
            stored = [one for one in series if not self.bad(one.labels)]
        self.taken += stored
        headers = dict(self.answer_headers)
        count = self.counts(len(stored)) if version == 2 and status != 415 else None
        if count is not None:
            for kind, written in (("Samples", count), ("Histograms", "0"), ("Exemplars", "0")):
                headers[f"X-Prometheus-Remote-Write-{kind}-Written"] = written
        return web.Response(status=status, text=None if status == 204 else text, headers=headers)


@contextlib.asynccontextmanager
async def serving(receiver: Receiver) -> AsyncIterator[str]:
    """Its URL, while it listens on a port of its own."""
    application = web.Application(client_max_size=1 << 26)
    application.router.add_post("/api/v1/write", receiver.write)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/write"
        yield receiver.url
    finally:
        await runner.cleanup()
