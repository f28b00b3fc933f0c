"""Series of a job over an hour, written into a real Prometheus."""

from __future__ import annotations

import time
from typing import Any

from bench.servers import PrometheusServer

from argus_core import remote_write

STEP = 15
HOUR = 3600
DAY = 24 * HOUR


class Story:
    """Series of one job over the last hour, a sample each 15 s."""

    def __init__(self, server: PrometheusServer) -> None:
        self.server = server
        self.end = int(time.time()) // STEP * STEP
        self._by_time: dict[int, list[bytes]] = {}

    def tell(self, name: str, number: Any, begin: int = -HOUR, end: int = 0, **labels: str) -> None:
        """From `begin` to `end` seconds before now; `number`, or a function of that time."""
        named = remote_write.labels_of(name, training_job="llm", **labels)
        for back in range(begin, end + 1, STEP):
            value = number(back) if callable(number) else number
            at = self.end + back
            self._by_time.setdefault(at, []).append(remote_write.encode_series(named, value, at * 1000))

    def write(self) -> None:
        for at in sorted(self._by_time):
            self.server.write(self._by_time[at])
