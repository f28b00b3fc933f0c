"""Deliver requests to the remote write receiver: retry, keep, replay, and sort out what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import aiohttp

from argus_core import remote_write
from argus_core.http_access import Access
from argus_core.log import Log
from argus_core.remote_write import REFUSALS_UNTIL_ASIDE
from argus_core.remote_write_sender import Sender, Unavailable
from argus_l3_worker import PROGRAM
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.spool import Entry, Spool

log = Log(__name__)

_LONGEST_BACKOFF_SECONDS: Final = 10.0
"""A receiver that wants a longer pause gets it, as then the requests wait for a later cycle."""
# Requests spent on finding the bad series of one request. One bad of 2,000 takes 22.
_BISECTION_LIMIT: Final = 200
_DOUBTFUL: Final = 3
"""Requests in a row that are turned away five times, before it is taken to be about us."""


class Delivery:
    """Sends encoded series in order. Not safe for concurrent use."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        config: WriteConfig,
        spool: Spool,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.time,
        access: Access | None = None,
    ) -> None:
        access = access or Access(config, "write", PROGRAM)
        self._sender = Sender(url, access, config.timeout_seconds, clock)
        self._session = session
        self._config = config
        self._spool = spool
        self._telemetry = telemetry
        self._clock = clock
        self._refused: list[tuple[Sequence[bytes], remote_write.Refused]] = []
        self._unwritten = 0
        self._silent_until = 0.0
        """By the clock of the event loop: when the receiver wants to hear from us again."""
        self.problem = ""
        """What the last `send` or `drain` met; empty where it delivered."""

    async def send(self, series: Sequence[bytes], verdicts: Sequence[bytes] = ()) -> bool:
        """Queue series and deliver all that is queued, oldest first; False if some must wait.

        `verdicts` go first, as a receiver that is at a limit stores what comes first; False if one is lost.
        """
        # Beside the event loop: a spool on a disk waits for the disk.
        needed = await asyncio.to_thread(self._queue, verdicts)
        await asyncio.to_thread(self._queue, series)
        return await self.drain(needed)

    def _queue(self, series: Sequence[bytes]) -> set[bytes]:
        bodies = set()
        for batch in remote_write.batches(series, self._config.series_per_request):
            body = remote_write.pack(batch)
            self._expire(self._spool.append(body, self._now_ms()))
            bodies.add(body)
        return bodies

    async def drain(self, needed: Collection[bytes] = ()) -> bool:
        """Deliver what is queued; False if some must wait, or some of the requests `needed` was lost."""
        self._expire(self._spool.trim(self._now_ms()))
        self.problem = ""
        missing = set(needed)
        unsettled: Unavailable | None = None
        taken = False
        doubtful: list[Entry] = []
        # Oldest first, and what the receiver will not let us sort out behind all that it takes.
        waiting = sorted(self._spool.waiting(), key=lambda entry: entry.refusals >= REFUSALS_UNTIL_ASIDE)
        try:
            for entry in waiting:
                try:
                    body = self._spool.body(entry)
                    series = remote_write.unpack(body)
                except (OSError, remote_write.Damaged) as error:
                    self._spool.remove(entry)
                    self._expire(1, f"no request is in its file: {error}")
                    continue
                lost = len(self._refused), self._unwritten
                try:
                    await self._deliver(entry, series)
                except Unavailable as error:
                    entry.turned_away += error.turned_away
                    if error.turned_away and (taken or entry.alone):
                        entry.alone = True
                    elif (
                        error.turned_away
                        and entry.turned_away >= REFUSALS_UNTIL_ASIDE
                        and len(doubtful) < _DOUBTFUL
                    ):
                        doubtful.append(entry)  # the next one shows whether it is about us
                    elif entry.refusals < REFUSALS_UNTIL_ASIDE:
                        raise
                    unsettled = error
                    continue
                taken = True
                for one in doubtful:
                    one.alone = True
                doubtful.clear()
                self._spool.remove(entry)
                if (len(self._refused), self._unwritten) == lost:
                    missing.discard(body)
            if unsettled is not None:
                raise unsettled
        except Unavailable as error:
            self.problem = str(error)
            log.warning(
                "results kept for later",
                error=error,
                requests=len(self._spool),
                bytes=self._spool.size_bytes,
            )
            return False
        finally:
            self._report_lost()
            self._telemetry.spooled_requests.set(len(self._spool))
            self._telemetry.spooled_bytes.set(self._spool.size_bytes)
        if missing:
            self.problem = "verdicts were refused or dropped, see the log"
        return not missing

    async def _deliver(self, entry: Entry, series: Sequence[bytes]) -> None:
        try:
            await self._post_patiently(series)
        except remote_write.Refused as error:
            entry.refusals += 1
            if entry.refusals == REFUSALS_UNTIL_ASIDE:
                self._telemetry.samples.labels("postponed").inc(len(series))
            await self._bisect(series, error)

    async def _bisect(self, series: Sequence[bytes], reason: remote_write.Refused) -> None:
        """Deliver all but the series that are refused for themselves; those are dropped and counted."""
        pending: list[tuple[Sequence[bytes], remote_write.Refused]] = [(series, reason)]
        requests = 0
        while pending:
            part, why = pending.pop()
            if len(part) == 1 or why.final or requests >= _BISECTION_LIMIT:
                self._telemetry.samples.labels("written").inc(why.written)
                self._telemetry.samples.labels("refused").inc(len(part) - why.written)
                self._refused.append((part, why))
                continue
            middle = len(part) // 2
            for half in (part[middle:], part[:middle]):
                requests += 1
                try:
                    await self._post_patiently(half)
                except remote_write.Refused as error:
                    pending.append((half, error))

    def _report_lost(self) -> None:
        """One line for all that a receiver refused at once: under a limit it may be thousands of series."""
        if self._refused:
            part, why = self._refused[0]
            try:
                first = remote_write.describe(remote_write.decode_labels(part[0]))
            except (IndexError, ValueError):  # noise, which is why it was refused
                first = "unreadable"
            if why.written:  # it may be any of them: the receiver's reason names it
                first = f"of {len(part)} beginning with {first}"
            count = sum(len(part) - why.written for part, why in self._refused)
            log.error("series refused and dropped", series=first, count=count, reason=why)
            self._refused.clear()
        if self._unwritten:
            log.error("the receiver answered success and counts less than was sent", lost=self._unwritten)
            self._unwritten = 0

    async def _post_patiently(self, series: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        if (rest := self._silent_until - loop.time()) > 0.0:
            raise Unavailable(f"the receiver wants no request for another {rest:.0f} s (Retry-After)")
        backoff = self._config.backoff_seconds
        for attempt in range(1, self._config.attempts + 1):
            try:
                written = await self._sender.post(self._session, series)
            except Unavailable as error:
                asked = error.retry_after_seconds
                wait = backoff if asked is None else asked
                soon = wait <= _LONGEST_BACKOFF_SECONDS and not error.turned_away
                if attempt < self._config.attempts and soon:
                    await asyncio.sleep(wait)
                    backoff *= 2.0
                    continue
                if asked is not None:
                    self._silent_until = loop.time() + asked
                raise
            self._telemetry.samples.labels("written").inc(written)
            self._telemetry.samples.labels("unwritten").inc(len(series) - written)
            self._unwritten += len(series) - written
            return

    def _expire(self, dropped: int, reason: str = "an hour old, or more than the spool keeps") -> None:
        if dropped:
            self._telemetry.spool_dropped.inc(dropped)
            log.error("undelivered requests dropped", requests=dropped, reason=reason)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
