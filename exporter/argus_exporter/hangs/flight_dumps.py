"""Brings what torch's flight recorders said in a hang to the store of traces.

A rank that hangs for certain puts it behind its shared page (`argus_training.overdue`). It lies there when
the process has been killed, too, until the rank is forgotten.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from argus_core.background import BackgroundTask
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.shared_page import Dump
from argus_core.store.keys import DumpKey
from argus_exporter.place.topology import Identity
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.traces.service import TraceService

log = Log(__name__)

_TICK_S: Final = 1.0
_PAUSE_S: Final = 60.0
"""Between two dumps of a rank that are taken: five times as many as ours make."""


class FlightDumps:
    """Lives on the event loop, between `start` and `stop`. Asks no process, and waits for none."""

    def __init__(self, ranks: RankRegistry, traces: TraceService, failures: Failures) -> None:
        self._ranks = ranks
        self._traces = traces
        self._failures = failures
        self._task = BackgroundTask()
        self._taken: dict[tuple[str, int], float] = {}
        """When a dump of the rank was taken."""

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            with self._failures.contained("dumps", "dumps of the flight recorder not looked for"):
                await self.look()
            await asyncio.sleep(_TICK_S)

    async def look(self) -> None:
        """One look at the ranks whose iteration is overdue, and at lost ones."""
        now = self._ranks.clock()
        self._taken = {key: at for key, at in self._taken.items() if now - at < _PAUSE_S}
        for state in list(self._ranks):
            if state.page is None or state.goes_on or state.identity.key in self._taken:
                continue
            dump = state.page.new_dump()
            if dump is not None:
                self._taken[state.identity.key] = now
                await self._keep(state.identity, dump)

    async def _keep(self, identity: Identity, dump: Dump) -> None:
        made_ns = min(dump.made_ns, time.time_ns())
        for recorder, content in dump.recorders.items():
            key = DumpKey(*identity.key, dump.step, made_ns, recorder)
            log.info("dump of the flight recorder taken", **identity.names, key=key)
            await self._traces.keep(str(key), content)
