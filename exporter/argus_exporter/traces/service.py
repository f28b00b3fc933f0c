"""Traces of one exporter: ring, requests, sampling and uploads, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_core.link import default_socket_path
from argus_core.log import Log
from argus_core.store import ObjectStore, StoreError, open_store
from argus_core.store.config import state_folder
from argus_exporter.errors import ArgusExporterError
from argus_exporter.traces.config import RequestsConfig, TracesConfig
from argus_exporter.traces.encode import encode
from argus_exporter.traces.outbox import Outbox
from argus_exporter.traces.packets import require_protos
from argus_exporter.traces.reader import NOTHING_LIVE, LiveStreams, NotInRing, window_of_steps, window_of_time
from argus_exporter.traces.requests import Answer, TraceRequest
from argus_exporter.traces.ring import Ring, RingTaken
from argus_exporter.traces.sampling import Sampler
from argus_exporter.traces.segment_index import RankKey
from argus_exporter.traces.uploads import Uploader
from argus_exporter.traces.window import TraceWindow

log = Log(__name__)

_SAMPLING_TICK_S: Final = 1.0
_SETTLE_TICKS: Final = 5
"""Ticks that a sampled window waits for late records."""
_SETTLE_S: Final = 2.0
"""How late kernel records may be: CUPTI hands them out by the buffer (`windows.settle_seconds`)."""
_KNOWN_KEYS: Final = 4096
"""Keys of traces that were made lately: asked for again, they are answered and not made anew."""


@dataclass(frozen=True)
class LiveRank:
    """What the running exporter knows of a rank beyond the ring."""

    key: RankKey
    last_step: int | None
    streams: LiveStreams


Live = Callable[[], list[LiveRank]]


class TraceService:
    """Made by `running_traces`.

    Raises:
        RingTaken: another exporter uses the folder.
        OSError: it cannot be used.
    """

    def __init__(
        self, config: TracesConfig, routing: Mapping[str, str], live: Live, folder: Path, store: ObjectStore
    ) -> None:
        self.config = config
        self.routing = routing
        self._live = live
        self.ring = Ring(folder / "ring", budget_bytes=config.ring.bytes, age_s=config.ring.seconds)
        self.ring.open()  # first: whoever has the ring has the outbox too
        try:
            self.outbox = Outbox(folder / "outbox", config.outbox_bytes)
        except OSError:
            self.ring.close()
            raise
        self.uploader = Uploader(self.outbox, store)
        self.store = store
        self._sampler = Sampler(config.sampling)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="argus-traces")
        self._made: OrderedDict[str, None] = OrderedDict()
        self.requests: Counter[str] = Counter()
        """Requests by result: accepted, refused, limited, failed."""
        self.windows: Counter[str] = Counter()
        """Files for the store, by why: request, sampling, hang."""

    @property
    def limits(self) -> RequestsConfig:
        """Of requests."""
        return self.config.requests

    def reconfigure(self, config: TracesConfig, routing: Mapping[str, str]) -> None:
        """Take new limits of requests, sampling and routing; ring, outbox and store stay as started."""
        self.config = config
        self.routing = routing
        self._sampler.config = config.sampling

    async def fulfil(self, request: TraceRequest) -> Answer:
        """Make the traces that are asked for and queue them for the store."""
        await asyncio.sleep(self._until_settled(request))
        keys: dict[int, str] = {}
        missing: dict[int, str] = {}
        for rank in request.ranks:
            try:
                keys[rank] = await self._make((request.training_job, rank), request, "request")
            except (NotInRing, ArgusExporterError) as error:
                missing[rank] = str(error)
        return Answer(keys, missing)

    def _until_settled(self, request: TraceRequest) -> float:
        """Seconds until late records of what is asked for have come, as a window of the series waits."""
        if request.time is not None:
            return min(max(request.time[1] / 1e9 + _SETTLE_S - time.time(), 0.0), _SETTLE_S)
        last = [rank.last_step for rank in self._live() if rank.key[0] == request.training_job]
        newest = max((step for step in last if step is not None), default=-1)
        return _SETTLE_S if request.steps is not None and request.steps[1] >= newest >= 0 else 0.0

    async def sample(self) -> None:
        """Upload the windows whose turn it is, until cancelled."""
        due: list[tuple[int, RankKey, TraceRequest]] = []
        tick = 0
        while True:
            await asyncio.sleep(_SAMPLING_TICK_S)
            tick += 1
            live = list(self._live())
            self._sampler.keep([rank.key for rank in live])
            for rank in live:
                steps = self._sampler.due(rank.key, rank.last_step) if rank.last_step is not None else None
                if steps is not None:
                    job, number = rank.key
                    due.append((tick + _SETTLE_TICKS, rank.key, TraceRequest(job, (number,), None, steps)))
            while due and due[0][0] <= tick:
                _, key, request = due.pop(0)
                try:
                    await self._make(key, request, "sampling")
                except (NotInRing, ArgusExporterError) as error:
                    log.warning("no sampled trace", error=error)
                except Exception:  # one window must not stop all others
                    log.exception("no sampled trace")

    async def keep(self, key: str, content: bytes) -> None:
        """Queue what a hang has left for the store; where there is no room, the outbox counts it."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._keep, key, content, "hang")

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        self.uploader.stop()
        self.ring.close()

    async def _make(self, key: RankKey, request: TraceRequest, why: str) -> str:
        """Key of the trace.

        Raises:
            NotInRing: there is nothing.
            ArgusExporterError: it could not be encoded or kept.
        """
        live = next((rank.streams for rank in self._live() if rank.key == key), NOTHING_LIVE)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._make_blocking, key, request, why, live)

    def _make_blocking(self, key: RankKey, request: TraceRequest, why: str, live: LiveStreams) -> str:
        self.ring.flush()
        window = self._window(key, request, live)
        trace_key = str(window.key)
        if trace_key in self.outbox or trace_key in self._made:
            return trace_key
        if not self._keep(trace_key, encode(window), why):
            raise ArgusExporterError(f"rank {key[1]}: no room for its trace in {self.ring.folder.parent}")
        return trace_key

    def _keep(self, key: str, content: bytes, why: str) -> bool:
        if not self.outbox.put(key, content):
            return False
        self.windows[why] += 1
        self._made[key] = None
        if len(self._made) > _KNOWN_KEYS:
            self._made.popitem(last=False)
        self.uploader.notify()
        return True

    def _window(self, key: RankKey, request: TraceRequest, live: LiveStreams) -> TraceWindow:
        folder, routing = self.ring.folder, self.routing
        if request.steps is not None:
            return window_of_steps(folder, key, *request.steps, routing=routing, live=live)
        assert request.time is not None
        return window_of_time(folder, key, *request.time, routing=routing, live=live)


@contextlib.asynccontextmanager
async def running_traces(
    config: TracesConfig, routing: Mapping[str, str], socket: Path, live: Live
) -> AsyncIterator[TraceService | None]:
    """The started service; None where traces are off or cannot be kept here (which is logged).

    Args:
        config: section `traces`.
        routing: the exporter's overrides of comparison dimensions.
        socket: where producers connect.
        live: the connected ranks, asked on the event loop.

    Raises:
        ArgusExporterError: traces were asked for in the configuration and cannot be kept.
    """
    service = _start(config, routing, socket, live)
    if service is None:
        yield None
        return
    sampling = asyncio.create_task(service.sample())
    try:
        yield service
    finally:
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling
        await asyncio.to_thread(service.close)


def _start(config: TracesConfig, routing: Mapping[str, str], socket: Path, live: Live) -> TraceService | None:
    asked = config.enabled or (config.enabled is None and config.folder is not None)
    if config.enabled is False or not (asked or _is_default(socket)):
        return None
    folder = config.folder or state_folder() / "exporter"
    try:
        require_protos()
        service = TraceService(config, routing, live, folder, open_store(config.store))
    except (ArgusExporterError, StoreError, RingTaken, OSError) as error:
        if asked:
            where = f"; traces.folder is {folder}" if isinstance(error, OSError) else ""
            raise ArgusExporterError(f"traces: {error}{where}") from error
        log.warning("no traces are kept", error=error)
        return None
    service.uploader.start()
    log.info("keeping traces", ring=service.ring.folder, store=service.store.name)
    return service


def _is_default(socket: Path) -> bool:
    """Whether this is the user's own exporter, and not one that a replay or a test started beside it."""
    return "ARGUS_SOCKET" not in os.environ and socket == default_socket_path()
