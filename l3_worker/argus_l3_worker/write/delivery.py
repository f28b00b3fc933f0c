"""Deliver requests to the remote write receiver: retry, keep, replay, and sort out what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import aiohttp

from argus_core import remote_write
from argus_core.http_access import Access, AccessError, refusal_hint
from argus_core.log import Log
from argus_core.remote_write import REFUSALS_UNTIL_ASIDE
from argus_l3_worker.errors import DeliveryError
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.spool import Entry, Spool

log = Log(__name__)

_LONGEST_BACKOFF_SECONDS: Final = 10.0
# Requests spent on finding the bad series of one request. One bad of 2,000 takes 22.
_BISECTION_LIMIT: Final = 200


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
        self._access = access or Access(config, "write")
        self._session = session
        self._url = url
        self._config = config
        self._spool = spool
        self._telemetry = telemetry
        self._clock = clock
        self._refused: list[tuple[Sequence[bytes], remote_write.Refused]] = []
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
        unsettled: DeliveryError | None = None
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
                refused = len(self._refused)
                try:
                    await self._deliver(entry, body, series)
                except DeliveryError as error:
                    if entry.refusals < REFUSALS_UNTIL_ASIDE:
                        raise
                    unsettled = error
                    continue
                self._spool.remove(entry)
                if len(self._refused) == refused:
                    missing.discard(body)
            if unsettled is not None:
                raise unsettled
        except DeliveryError as error:
            self.problem = str(error)
            log.warning(
                "results kept for later",
                error=error,
                requests=len(self._spool),
                bytes=self._spool.size_bytes,
            )
            return False
        finally:
            self._report_refused()
            self._telemetry.spooled_requests.set(len(self._spool))
            self._telemetry.spooled_bytes.set(self._spool.size_bytes)
        if missing:
            self.problem = "verdicts were refused or dropped, see the log"
        return not missing

    async def _deliver(self, entry: Entry, body: bytes, series: Sequence[bytes]) -> None:
        try:
            await self._post_patiently(body)
            self._telemetry.samples.labels("written").inc(len(series))
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
            if len(part) == 1 or why.beyond_limit or requests >= _BISECTION_LIMIT:
                self._telemetry.samples.labels("refused").inc(len(part))
                self._refused.append((part, why))
                continue
            middle = len(part) // 2
            for half in (part[middle:], part[:middle]):
                requests += 1
                try:
                    await self._post_patiently(remote_write.pack(half))
                    self._telemetry.samples.labels("written").inc(len(half))
                except remote_write.Refused as error:
                    pending.append((half, error))

    def _report_refused(self) -> None:
        """One line for all that a receiver refused at once: under a limit it may be thousands of series."""
        if self._refused:
            part, why = self._refused[0]
            try:
                first = remote_write.describe(remote_write.decode_labels(part[0]))
            except (IndexError, ValueError):  # noise, which is why it was refused
                first = "unreadable"
            count = sum(len(part) for part, _ in self._refused)
            log.error("series refused and dropped", series=first, count=count, reason=why)
            self._refused.clear()

    async def _post_patiently(self, body: bytes) -> None:
        backoff = self._config.backoff_seconds
        for attempt in range(1, self._config.attempts + 1):
            try:
                await self._post(body)
                return
            except DeliveryError as error:
                if attempt == self._config.attempts:
                    raise
                wait = error.retry_after_seconds if error.retry_after_seconds is not None else backoff
                await asyncio.sleep(min(wait, _LONGEST_BACKOFF_SECONDS))
                backoff *= 2.0

    async def _post(self, body: bytes) -> None:
        timeout = aiohttp.ClientTimeout(total=self._config.timeout_seconds)
        try:
            arguments = self._access.arguments()
            arguments["headers"] |= remote_write.HEADERS
            async with self._session.post(self._url, data=body, timeout=timeout, **arguments) as response:
                if response.status < 300:
                    return
                text = " ".join((await response.text(errors="replace")).split())[:300]
                retry_after = response.headers.get("Retry-After", "")
        except AccessError as error:
            raise DeliveryError(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DeliveryError(
                f"{self._url} cannot be reached ({error or type(error).__name__}), so verdicts are not "
                "stored: check --remote-write.url and that Prometheus runs"
            ) from error
        if remote_write.refused_for_content(response.status):
            raise remote_write.Refused(response.status, text)
        hint = (
            remote_write.REMEDIES.get(response.status)
            or refusal_hint(response.status, self._access.key)
            or "the requests are kept and tried again"
        )
        raise DeliveryError(
            f"{self._url} answered HTTP {response.status}: {text}: {hint}",
            float(retry_after) if retry_after.isdigit() else None,
        )

    def _expire(
        self, dropped: int, reason: str = "beyond write.spool_bytes or write.spool_age_seconds"
    ) -> None:
        if dropped:
            self._telemetry.spool_dropped.inc(dropped)
            log.error("undelivered requests dropped", requests=dropped, reason=reason)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
