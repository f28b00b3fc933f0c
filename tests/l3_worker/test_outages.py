"""Receivers that die in mid-cycle, are overloaded or refuse: nothing is lost but what is refused for itself.

Cycles stamp their samples a second apart; `ARGUS_OUTAGE_SECONDS` (default 2) is how long a receiver is gone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from bench.servers import PrometheusServer, VictoriaMetricsServer

from argus_core.remote_write import encode_series, labels_of
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool

pytestmark = pytest.mark.servers

OUTAGE_SECONDS = float(os.environ.get("ARGUS_OUTAGE_SECONDS", "2"))
SERIES = 500
NAME = "argus_l3_kernel_shift_ratio"

_SESSION = web.AppKey("session", aiohttp.ClientSession)

Server = PrometheusServer | VictoriaMetricsServer


@pytest.fixture(params=["prometheus", "victoria-metrics"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A real receiver of this test alone."""
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} on PATH: run tools/setup.sh")
    kind = PrometheusServer if request.param == "prometheus" else VictoriaMetricsServer
    server: Server = kind(tmp_path)
    try:
        yield server.start()
    finally:
        server.stop()


class Writer:
    """A worker's writing half: one cycle each second of sample time."""

    def __init__(self, url: str, worker: str = "", **keys: int) -> None:
        self.telemetry = Telemetry()
        # All stamps of a minute's outage lie in the past: VictoriaMetrics answers queries about the present
        # second with what it held a second ago.
        self.begin = int(time.time()) - 3000
        self.stamps: list[int] = []
        self.worker = worker
        self._url = url
        self._config = WriteConfig(
            **{"attempts": 2, "backoff_seconds": 0.05, "series_per_request": 100, **keys}
        )
        self.spool = Spool(None, int(self._config.spool_bytes), 3_600_000)

    async def __aenter__(self) -> Writer:
        self._session = aiohttp.ClientSession()
        self.aim(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def aim(self, url: str) -> None:
        self._delivery = Delivery(self._session, url, self._config, self.spool, self.telemetry)

    async def cycle(self) -> bool:
        stamp = self.begin + len(self.stamps)
        self.stamps.append(stamp)
        return await self._delivery.send(
            [
                encode_series(labels_of(NAME, rank=str(rank), worker=self.worker), float(stamp), stamp * 1000)
                for rank in range(SERIES)
            ]
        )

    def counted(self, name: str, **labels: str) -> float:
        value = self.telemetry.registry.get_sample_value(f"argus_l3_worker_{name}", labels)
        assert value is not None
        return value

    def stored(self, server: Server) -> list[int]:
        """Stamps that all series hold, by the value that says which cycle wrote it."""
        server.flush()
        return [
            stamp
            for stamp in self.stamps
            if server.query(f"count({NAME} == {stamp})", float(stamp)) == [({}, float(SERIES))]
        ]


async def test_a_receiver_killed_in_mid_cycle_loses_nothing(receiver: Server) -> None:
    """Killed between two requests of one cycle, away for a while, back: every sample once and in order."""
    writer = Writer(f"{receiver.url}/api/v1/write")
    async with writer:
        for _ in range(3):
            assert await writer.cycle()
        sending = asyncio.ensure_future(writer.cycle())
        while writer.counted("samples_total", result="written") == 3 * SERIES:
            await asyncio.sleep(0)  # until the first request is taken
        receiver.kill()
        assert not await sending
        gone = time.monotonic()
        while time.monotonic() - gone < OUTAGE_SECONDS:
            assert not await writer.cycle()
        assert writer.counted("spooled_requests") > 0
        await asyncio.to_thread(receiver.start)
        assert await writer.cycle()
    assert writer.stored(receiver) == writer.stamps
    assert writer.counted("samples_total", result="written") == SERIES * len(writer.stamps)
    assert writer.counted("samples_total", result="refused") == 0
    assert writer.counted("spooled_requests") == writer.counted("spooled_bytes") == 0
    assert receiver.refusals() == 0


async def test_two_replicas_write_side_by_side(receiver: Server) -> None:
    """The worker label keeps them apart: the same stamps twice, neither refused."""
    replicas = [Writer(f"{receiver.url}/api/v1/write", worker) for worker in ("a", "b")]
    for worker in replicas:
        async with worker as writer:
            for _ in range(3):
                assert await writer.cycle()
    receiver.flush()
    (stamp, *_) = replicas[0].stamps
    assert receiver.query(f"count by (worker) ({NAME} == {stamp})", float(stamp))
    found = receiver.query(f"count(max without (worker) ({NAME}))", float(stamp))
    assert found == [({}, float(SERIES))]
    assert [writer.counted("samples_total", result="refused") for writer in replicas] == [0, 0]
    assert receiver.refusals() == 0


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_an_overloaded_receiver_gets_everything_later(
    prometheus: PrometheusServer, status: int
) -> None:
    """A gateway before Prometheus answers 5xx or 429 for a while, then lets everything through."""
    refusing = True

    async def pass_on(request: web.Request) -> web.Response:
        if refusing:
            return web.Response(status=status, headers={"Retry-After": "0"})
        async with request.app[_SESSION].post(
            f"{prometheus.url}/api/v1/write", data=await request.read(), headers=dict(request.headers)
        ) as answer:
            return web.Response(status=answer.status, body=await answer.read())

    writer = Writer("")  # its address is known once the gateway listens
    async with writer:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/api/v1/write", pass_on)
        app[_SESSION] = aiohttp.ClientSession()
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            writer.aim(f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/write")
            for _ in range(3):
                assert not await writer.cycle()
            refusing = False
            assert await writer.cycle()
        finally:
            await app[_SESSION].close()
            await runner.cleanup()
    assert writer.stored(prometheus) == writer.stamps
    assert prometheus.refusals() == 0
    assert writer.counted("samples_total", result="refused") == 0


async def test_an_outage_that_is_too_long_keeps_the_newest_within_the_bound() -> None:
    """The spool never exceeds its bytes; what it drops is counted, and the newest are what is left."""
    limit = 20_000
    writer = Writer("http://127.0.0.1:1/api/v1/write", spool_bytes=limit)
    sizes: list[int] = []
    async with writer:
        for _ in range(10):
            assert not await writer.cycle()
            sizes.append(writer.spool.size_bytes)
    assert max(sizes) <= limit
    made = 10 * SERIES / 100
    assert writer.counted("spool_dropped_requests_total") + len(writer.spool) == made
    assert 0 < len(writer.spool) < made
