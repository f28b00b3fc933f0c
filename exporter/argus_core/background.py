"""A task that runs beside the rest of an event loop, from `start` to `stop`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class BackgroundTask:
    """Stopped, it is cancelled and awaited; what it raises then is nobody's business any more."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` in the running event loop."""
        self._task = asyncio.create_task(work)

    async def stop(self) -> None:
        """Nothing where it was not started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
