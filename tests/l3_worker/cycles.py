"""Cycles of a worker against a server or a made-up backend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from argus_l3_worker.config import Config
from argus_l3_worker.cycle import CycleReport, Worker
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool


def cycles(
    url: str,
    work: Callable[[Worker], Awaitable[Any]],
    telemetry: Telemetry | None = None,
    teams: dict[str, str] | None = None,
    **keys: Any,
) -> Any:
    """What `work` makes of a worker that reads and writes at `url`."""
    telemetry = telemetry or Telemetry()
    write = WriteConfig(attempts=1)
    config = Config(prometheus=PrometheusConfig(url=url, **keys), write=write, teams=teams or {})

    async def run() -> Any:
        async with aiohttp.ClientSession() as session:
            spool = Spool(None, 1 << 30, 3_600_000)
            delivery = Delivery(session, config.write_url, write, spool, telemetry)
            asked = Prometheus(session, config.prometheus, telemetry)
            return await work(Worker(asked, delivery, config, telemetry))

    return asyncio.run(run())


def one_cycle(url: str, at: float, budget: float | None = None, **keys: Any) -> CycleReport:
    found: CycleReport = cycles(url, lambda worker: worker.cycle(at, at, budget), **keys)
    return found
