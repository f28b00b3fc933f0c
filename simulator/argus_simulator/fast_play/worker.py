"""The L3 worker's cycles over a past, before the rules that read what it writes.

A cycle reads what was scraped and what earlier cycles wrote, and no rule: so all of them can come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, get_args

import aiohttp

from argus_l3_worker.config import Config
from argus_l3_worker.cycle import Worker
from argus_l3_worker.errors import ArgusWorkerError
from argus_l3_worker.judge.config import Method as Method
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.serve import delivery_of
from argus_l3_worker.telemetry import Telemetry

_SETTINGS: Final = Config()
"""As they are by default, but for where Prometheus is, and the method."""
METHODS: Final[tuple[Method, ...]] = get_args(Method)
CYCLE_MS: Final = round(_SETTINGS.cycle_seconds * 1000)


def judge(url: str, begin_ms: int, end_ms: int, method: Method = "modes") -> list[str]:
    """Judge what the Prometheus there holds, as a worker that ran meanwhile would have, and write it back.

    Args:
        method: its `judge.method`.

    Returns:
        What went wrong in cycles, each once.
    """
    stamps = range(begin_ms - begin_ms % CYCLE_MS + CYCLE_MS, end_ms, CYCLE_MS)
    return list(dict.fromkeys(asyncio.run(_cycles(url, [at / 1000 for at in stamps], method))))


async def _cycles(url: str, stamps: Iterable[float], method: Method) -> list[str]:
    config = replace(
        _SETTINGS,
        prometheus=replace(_SETTINGS.prometheus, url=url),
        judge=replace(_SETTINGS.judge, method=method),
    )
    telemetry = Telemetry()
    problems: list[str] = []
    async with aiohttp.ClientSession() as session:
        delivery = delivery_of(session, config, telemetry)
        worker = Worker(Prometheus(session, config.prometheus, telemetry), delivery, config, telemetry)
        for stamp in stamps:
            try:  # no budget: what fits in a cycle must not depend on this machine
                report = await worker.cycle(stamp, stamp - config.settle_seconds)
                problems += [report.problem] if report.problem else []
            except ArgusWorkerError as error:
                problems.append(str(error))
    return problems
