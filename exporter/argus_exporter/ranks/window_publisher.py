"""Closes the kernel windows of all ranks, one rank after the other."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from argus_core.background import BackgroundTask
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_exporter.kernels.kernel_windows import ClosedWindow
from argus_exporter.ranks.nccl_groups import KernelGroups
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.ranks.rank_state import RankState

log = Log(__name__)

_TICK_S = 0.25


class WindowPublisher:
    """A task of the event loop; windows are summarised in `executor`, of one thread.

    One rank after the other: a window is cut out, which copies it, when its turn has come. The windows of all
    ranks end with the same step; copied all at once they would double the memory.
    """

    def __init__(self, ranks: RankRegistry, executor: Executor, failures: Failures) -> None:
        self._ranks = ranks
        self._executor = executor
        self._failures = failures
        self._groups = KernelGroups(ranks, ranks.clock)
        self._task = BackgroundTask()

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            with self._failures.contained("windows", "communicators of kernels not told"):
                self._groups.tell()
            for rank in list(self._ranks):
                with self._failures.contained("windows", "windows not closed", **rank.identity.names):
                    for window in rank.kernels.take_complete():
                        await self._publish(rank, window)

    async def _publish(self, rank: RankState, window: ClosedWindow) -> None:
        kernels, loop = rank.kernels, asyncio.get_running_loop()
        try:
            kernels.publish(await loop.run_in_executor(self._executor, kernels.summarise, window))
        except Exception:
            log.exception("window not summarised", **rank.identity.names, step=window.boundary.last_step)
            kernels.lose(window)
