"""One sample a step of `argus_iteration_seconds`, stamped with the step's end, by remote write. Opt-in.

The intake never waits: samples queue up to a limit, and whatever is not delivered is counted with the rank
that it came from, in `argus_records_dropped_total`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import aiohttp

from argus_core import catalogue, remote_write, wire
from argus_core.bounded_read import read_bounded
from argus_core.http_access import Access, AccessError, refusal_hint
from argus_core.log import Log
from argus_core.log_limiter import LogLimiter
from argus_core.remote_write import Labels, SnappyMissing, encode_series, labels_of, pack, snappy
from argus_exporter.errors import ArgusExporterError
from argus_exporter.publish.config import RemoteWriteConfig
from argus_exporter.ranks.channels import ChannelTotals
from argus_exporter.ranks.rank_state import RankState

log = Log(__name__)

QUEUE_FULL: Final = "remote_write_queue"
REFUSED: Final = "remote_write_refused"
OUT_OF_ORDER: Final = "remote_write_order"
_SAMPLES_PER_REQUEST: Final = 2000
_LONGEST_BACKOFF_S: Final = 30.0
_FAREWELL_S: Final = 2.0
"""For the last samples at the end of the exporter."""
_SERIES_LIMIT: Final = 8192
"""Series whose last time is remembered, the oldest forgotten first."""


class Sample(NamedTuple):
    """One step of one rank, and where its loss would be counted."""

    labels: Labels
    seconds: float
    end_ms: int
    charged: ChannelTotals

    def lost(self, reason: str) -> None:
        self.charged.dropped[reason] += 1


class Unreachable(Exception):
    """The receiver is away, overloaded or does not let us in: the request may be taken later."""


class IterationWriter:
    """Takes iterations and sends them in batches. Lives on the event loop, between `start` and `stop`."""

    def __init__(self, config: RemoteWriteConfig) -> None:
        self._config = config
        self._access = Access(config, "remote_write")
        self._queue: deque[Sample] = deque()
        self._newest: dict[Labels, int] = {}
        self._sender: asyncio.Task[None] | None = None
        self._warnings = LogLimiter(log)
        self._refused: list[tuple[Sample, remote_write.Refused]] = []
        self._unsettled = 0
        """Tries in a row in which a refused batch was not sorted out, as the receiver failed on a part."""

    def start(self) -> None:
        """Begin to send, where there is somewhere to send to.

        Raises:
            AccessError: a file that the configuration names cannot be used.
            ArgusExporterError: the extra for remote write is not installed.
        """
        self.reconfigure(self._config)

    async def stop(self) -> None:
        """End; what is queued gets a last try."""
        if self._sender is None:
            return
        await self._end_sender()
        with contextlib.suppress(Unreachable, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S), self._connected() as receiver:
                await self._drain(receiver)
        self._report_refused()

    def reconfigure(self, config: RemoteWriteConfig) -> None:
        """Take a new configuration; what is queued goes where it says.

        Raises:
            AccessError, ArgusExporterError: as `start`; the old configuration goes on.
        """
        if config.url:
            try:
                snappy()
            except SnappyMissing as error:
                raise ArgusExporterError(f"remote_write.url is set: {error}") from error
        access = Access(config, "remote_write")
        access.arguments()
        self._config, self._access = config, access
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None
        if config.url:
            self._sender = asyncio.create_task(self._send_forever())
            log.info("writing argus_iteration_seconds", url=config.url)

    async def _end_sender(self) -> None:
        assert self._sender is not None
        self._sender.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sender
        self._sender = None

    def take(self, state: RankState, record: wire.Iteration) -> None:
        """Queue a step: a look-up and an append."""
        if self._sender is None:
            return
        identity = state.identity
        labels = labels_of(
            catalogue.ITERATION_SECONDS.name,
            **self._config.labels,
            training_job=identity.training_job,
            rank=str(identity.rank),
        )
        sample = Sample(
            labels, record.duration_ns / 1e9, record.end_ns // 1_000_000, state.channel(wire.Channel.PHASES)
        )
        if sample.end_ms <= self._newest.get(labels, -1) or record.end_ns >> 63:
            sample.lost(OUT_OF_ORDER)  # the receiver would refuse it, and every sample beside it
            return
        self._newest[labels] = sample.end_ms
        if len(self._newest) > _SERIES_LIMIT:
            del self._newest[next(iter(self._newest))]
        self._queue.append(sample)
        if len(self._queue) > self._config.queue_samples:
            self._queue.popleft().lost(QUEUE_FULL)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[_Receiver]:
        async with aiohttp.ClientSession() as session:
            yield _Receiver(session, self._config, self._access)

    async def _send_forever(self) -> None:
        interval = wait = self._config.interval_seconds
        async with self._connected() as receiver:
            while True:
                await asyncio.sleep(wait)
                try:
                    await self._drain(receiver)
                    wait = interval
                except Unreachable as error:
                    wait = min(2 * wait, max(_LONGEST_BACKOFF_S, interval))
                    self._warnings.warning(
                        "unreachable", "remote write waits", queued=len(self._queue), error=error
                    )
                self._report_refused()

    async def _drain(self, receiver: _Receiver) -> None:
        """Send what is queued, oldest first.

        Raises:
            Unreachable: the rest stays queued.
        """
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _SAMPLES_PER_REQUEST))]
            try:
                await self._deliver(receiver, batch)
            except BaseException:
                self._queue.extendleft(reversed(batch))
                raise
        self._unsettled = 0

    def _report_refused(self) -> None:
        if self._refused:
            sample, why = self._refused[0]
            self._warnings.warning(
                "refused", "remote write refused", samples=len(self._refused), first=sample.labels, reason=why
            )
            self._refused.clear()

    async def _deliver(self, receiver: _Receiver, batch: list[Sample]) -> None:
        """Send a batch and empty it. A receiver refuses all for one bad sample: halves find and drop it."""
        parts: list[list[Sample]] = [list(batch)]
        refused = False
        while parts:
            part = parts.pop()
            try:
                await receiver.post(part)
            except remote_write.Refused as error:
                refused = True
                if len(part) > 1 and not error.beyond_limit:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                    continue
                for one in part:
                    one.lost(REFUSED)
                    self._refused.append((one, error))
            except Unreachable:
                if refused:
                    self._unsettled += 1
                    if self._unsettled >= remote_write.REFUSALS_UNTIL_ASIDE:
                        del batch[: len(part)]
                        self._queue.extend(part)  # what is good goes before it
                raise
            del batch[: len(part)]


class _Receiver:
    def __init__(self, session: aiohttp.ClientSession, config: RemoteWriteConfig, access: Access) -> None:
        self._session = session
        self._config = config
        self._access = access

    async def post(self, samples: Sequence[Sample]) -> None:
        """Raises Refused or Unreachable."""
        body = pack(encode_series(one.labels, one.seconds, one.end_ms) for one in samples)
        timeout = aiohttp.ClientTimeout(total=self._config.timeout_seconds)
        try:
            arguments = self._access.arguments()
            arguments["headers"] |= remote_write.HEADERS
            url = self._config.url
            async with self._session.post(url, data=body, timeout=timeout, **arguments) as response:
                if response.status < 300:
                    return
                told = (await read_bounded(response.content, 300))[:300]
                text = " ".join(told.decode("utf-8", "replace").split())
        except AccessError as error:
            raise Unreachable(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"cannot reach {self._config.url}: {error or type(error).__name__}") from error
        if remote_write.refused_for_content(response.status):
            raise remote_write.Refused(response.status, text)
        remedy = remote_write.REMEDIES.get(response.status) or refusal_hint(response.status, "remote_write")
        hint = f"; {remedy}" if remedy else ""
        raise Unreachable(f"{self._config.url} answers HTTP {response.status}: {text}{hint}")
