"""An exporter in this process, on a socket and a port of its own, with its event loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from argus_core import wire
from argus_core.link import Link
from argus_core.shared_page import PageWriter
from argus_exporter.config import ExporterConfig
from argus_exporter.intake.config import SocketConfig
from argus_exporter.kernels.config import WindowsConfig
from argus_exporter.publish.config import WebConfig
from argus_exporter.server import RunningExporter, running_exporter


def config(
    socket: Path,
    *,
    connections_per_user: int = 1024,
    allowed_users: tuple[str | int, ...] = (),
    **windows: float,
) -> ExporterConfig:
    return ExporterConfig(
        web=WebConfig("127.0.0.1:0"),
        socket=SocketConfig(socket, allowed_users, connections_per_user=connections_per_user),
        windows=WindowsConfig(**({"seconds": 1.0, "settle_seconds": 0.1} | windows)),
    )


@contextlib.contextmanager
def exporter(configuration: ExporterConfig) -> Iterator[RunningExporter]:
    started: Future[RunningExporter] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def body() -> None:
        try:
            async with running_exporter(configuration) as running:
                started.set_result(running)
                await stop.wait()
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    def target() -> None:
        with contextlib.suppress(Exception):  # handed to the test through `started`
            loop.run_until_complete(body())

    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield started.result(timeout=10)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=10)
        loop.close()


def get(url: str, **headers: str) -> tuple[str, bytes]:
    """Content type and body."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read()


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(url: str) -> Samples:
    """All samples of /metrics by name and labels, parsed by prometheus_client."""
    _, body = get(f"{url}/metrics")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """The one sample of that name with at least those labels; None when there is none."""
    found = [v for (n, have), v in samples.items() if n == name and labels.items() <= dict(have).items()]
    assert len(found) <= 1, f"{name}{labels} is ambiguous: {found}"
    return found[0] if found else None


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)


async def until(condition: Callable[[], bool]) -> None:
    """The same within an event loop."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def greeting(rank: int, **extra: object) -> Callable[[], wire.Hello]:
    def hello() -> wire.Hello:
        return wire.hello(
            pid=os.getpid(),
            rank=rank,
            monotonic_ns=time.monotonic_ns(),
            realtime_ns=time.time_ns(),
            **{"training_job": "job", "world_size": 2, **extra},  # type: ignore[arg-type]
        )

    return hello


class Rank:
    """A small training process: iterations of spans and kernels on the wire."""

    def __init__(
        self,
        socket: Path,
        rank: int,
        *,
        patience_s: float = 5.0,
        page: PageWriter | None = None,
        **extra: object,
    ) -> None:
        hello = greeting(rank, shares_page=page is not None, **extra)
        descriptor = page.fd if page is not None else None
        self.link = Link(socket, hello, patience_s=patience_s, page_fd=descriptor)
        self.step = 0
        self.seconds = 0.0
        self.squared = 0.0

    def iterate(self, seconds: float = 0.1, kernels: int = 0, phase: str = "forward") -> None:
        self.step += 1
        self.seconds += seconds
        self.squared += seconds**2
        now = time.time_ns()
        span = wire.Span(now, int(seconds / 2 * 1e9), self.step, self.link.name_id(phase), 0, 0, 1, 0)
        self.link.add(span)
        for index in range(kernels):
            start = now - (kernels - index) * 1000
            self.link.add(wire.Kernel(start, 50_000 + index % 7, -1, self.link.name_id("gemm"), 7, 0, 0, 0))
        totals = (self.step, self.seconds, self.squared)
        self.link.add(wire.Iteration(self.step, now, int(seconds * 1e9), *totals))
        self.link.flush()
