"""One sample a step of `argus_iteration_seconds`, stamped with the step's end, by remote write. Opt-in.

The intake never waits: samples queue up to a limit, and whatever is not delivered is counted with the rank
that it came from, in `argus_records_dropped_total`. Where a receiver says how many it lost of a request, not
which, they are counted without a rank, in `argus_exporter_remote_write_lost_samples_total`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import aiohttp

from argus_core import catalogue, remote_write, wire
from argus_core.http_access import Access
from argus_core.log import Log
from argus_core.log_limiter import Failures, LogLimiter
from argus_core.remote_write import Labels, SnappyMissing, encode_series, labels_of, snappy
from argus_core.remote_write_sender import Sender, Unavailable
from argus_exporter.errors import ArgusExporterError
from argus_exporter.publish.config import RemoteWriteConfig
from argus_exporter.ranks.channels import ChannelTotals
from argus_exporter.ranks.rank_state import RankState

log = Log(__name__)

QUEUE_FULL: Final = "remote_write_queue"
REFUSED: Final = "remote_write_refused"
OUT_OF_ORDER: Final = "remote_write_order"
LOST_OF_NO_RANK: Final = ("refused", "unwritten")
_PROGRAM: Final = "argus-exporter"
_KEY: Final = "remote_write"
"""Section of the configuration."""
_SAMPLES_PER_REQUEST: Final = 2000
_LONGEST_BACKOFF_S: Final = 30.0
_FAREWELL_S: Final = 2.0
"""For the last samples at the end of the exporter."""
_DOUBTFUL: Final = 8
"""Samples in a row that are turned away alone, before it is taken to be about us: a few requests each."""
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


class IterationWriter:
    """Takes iterations and sends them in batches. Lives on the event loop, between `start` and `stop`."""

    def __init__(self, config: RemoteWriteConfig, failures: Failures) -> None:
        self._config = config
        self._failures = failures
        self._receiver = _receiver(config)
        self._queue: deque[Sample] = deque()
        self._under_way: list[Sample] = []
        self._newest: dict[Labels, int] = {}
        self._sender: asyncio.Task[None] | None = None
        self._warnings = LogLimiter(log)
        self._refused: list[tuple[int, Labels, remote_write.Refused]] = []
        """How many of a request, the first of its series, and why."""
        self.lost = Counter(dict.fromkeys(LOST_OF_NO_RANK, 0))
        """Samples that are lost without a rank, by reason."""
        self._unwritten = 0
        self._unsettled = 0
        """Tries in a row in which a refused batch was not sorted out, as the receiver failed on a part."""
        self._turned_away = 0
        """Tries, since the last that sorted out, in which 4xx turned us away, or a sample of ours."""

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
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S), aiohttp.ClientSession() as session:
                await self._drain(session)
        self._report_lost()

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
        Access(config, _KEY, _PROGRAM).arguments()
        self._config, self._receiver = config, _receiver(config)
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

    @property
    def pending(self) -> int:
        """Samples that are neither delivered nor lost yet."""
        return len(self._queue) + len(self._under_way)

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

    async def _send_forever(self) -> None:
        interval = wait = self._config.interval_seconds
        async with aiohttp.ClientSession() as session:
            while True:
                await asyncio.sleep(wait)
                wait = min(2 * wait, max(_LONGEST_BACKOFF_S, interval))
                with self._failures.contained("remote_write", "iterations not written, tried again"):
                    try:
                        await self._drain(session)
                        wait = interval
                    except Unavailable as error:
                        wait = max(wait, error.retry_after_seconds or 0.0)
                        self._warnings.warning(
                            "unreachable", "remote write waits", queued=len(self._queue), error=error
                        )
                self._report_lost()

    async def _drain(self, session: aiohttp.ClientSession) -> None:
        """Send what is queued, oldest first.

        Raises:
            Unavailable: the rest stays queued.
        """
        while self._queue:
            count = min(len(self._queue), _SAMPLES_PER_REQUEST)
            batch = self._under_way = [self._queue.popleft() for _ in range(count)]
            try:
                await self._deliver(session, batch)
            except BaseException:
                self._queue.extendleft(reversed(batch))
                batch.clear()
                raise
        self._unsettled = self._turned_away = 0

    def _report_lost(self) -> None:
        if self._refused:
            _, first, why = self._refused[0]
            count = sum(count for count, _, _ in self._refused)
            self._warnings.warning("refused", "remote write refused", samples=count, first=first, reason=why)
            self._refused.clear()
        if self._unwritten:
            self._warnings.warning(
                "unwritten",
                "the receiver answered success and counts less than was sent",
                samples=self._unwritten,
            )
            self._unwritten = 0

    async def _deliver(self, session: aiohttp.ClientSession, batch: list[Sample]) -> None:
        """Send a batch and empty it. A receiver refuses all for one bad sample: halves find and drop it.

        One that turned us away for several tries is asked for halves too, as a filter may dislike samples.
        Those are lost where another is taken; where none is, it is about us, and all wait.
        """
        samples, waiting = tuple(batch), set(range(len(batch)))
        parts = [range(len(samples))]
        refused = taken = False
        sorts_out = self._turned_away >= remote_write.REFUSALS_UNTIL_ASIDE
        doubtful: list[range] = []  # turned away alone, before any was taken
        try:
            while parts:
                part = parts.pop()
                why = None
                try:
                    await self._post(session, samples[part.start : part.stop])
                    taken = True
                except remote_write.Refused as error:
                    refused, why = True, error
                except Unavailable as error:
                    self._turned_away = 0 if sorts_out else self._turned_away + error.turned_away
                    why = error.as_refusal if sorts_out else None
                    if why is None:
                        self._unsettled += refused
                        if self._unsettled >= remote_write.REFUSALS_UNTIL_ASIDE:
                            waiting -= set(part)
                            self._queue.extend(samples[part.start : part.stop])  # what is good goes before it
                        raise
                    if len(part) == 1 and not (taken or refused):
                        doubtful.append(part)
                        if len(doubtful) == _DOUBTFUL or not parts:
                            raise
                        continue
                if why is not None and len(part) > 1 and not why.final:
                    middle = (part.start + part.stop) // 2
                    parts += [range(middle, part.stop), range(part.start, middle)]
                    continue
                if why is not None:
                    self._drop_refused(samples[part.start : part.stop], why)
                waiting -= set(part)
                parts += reversed(doubtful)  # once more: it may be that we were let in meanwhile
                doubtful.clear()
        finally:
            batch[:] = [samples[place] for place in sorted(waiting)]

    async def _post(self, session: aiohttp.ClientSession, part: Sequence[Sample]) -> None:
        series = [encode_series(one.labels, one.seconds, one.end_ms) for one in part]
        unwritten = len(part) - await self._receiver.post(session, series)
        self.lost["unwritten"] += unwritten
        self._unwritten += unwritten

    def _drop_refused(self, part: Sequence[Sample], why: remote_write.Refused) -> None:
        count = len(part) - why.written
        self._refused.append((count, part[0].labels, why))
        if why.written:  # it may be any of them
            self.lost["refused"] += count
        else:
            for one in part:
                one.lost(REFUSED)


def _receiver(config: RemoteWriteConfig) -> Sender:
    return Sender(config.url, Access(config, _KEY, _PROGRAM), config.timeout_seconds)
