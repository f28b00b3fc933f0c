"""Sends series to one receiver of remote write: in 2.0 where it takes that, in 1.0 otherwise.

2.0 comes first, as its answers count what was written. A receiver that does not take it answers 415 or, if it
does not look at the type of a message, success without counts: to it ours is an empty one of its own.

Source: https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/ (Written Response Headers, Partial Write,
Unsupported Request Content, Retries).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

from argus_core import remote_write, remote_write_2
from argus_core.bounded_read import read_bounded
from argus_core.http_access import Access, AccessError, refusal_hint
from argus_core.log import Log
from argus_core.remote_write import Damaged, Refused

log = Log(__name__)

LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
"""Prometheus' lookback: who is silent for longer has ended all that he wrote."""
PATHS: Final = (
    "the path is /api/v1/write of Prometheus (started with --web.enable-remote-write-receiver) and of "
    "VictoriaMetrics, /insert/0/prometheus/api/v1/write of vminsert, /api/v1/push of Mimir and Cortex, "
    "/api/v1/receive of Thanos Receive"
)
_MESSAGES: Final = (
    "let the receiver take remote write 2.0 (io.prometheus.write.v2.Request) or 1.0 "
    "(prometheus.WriteRequest): Content-Type application/x-protobuf, Content-Encoding snappy"
)
# vminsert's, with a 400: the samples are not what is wrong.
_WRONG_PATH: Final = ("unsupported path", "cannot parse path", "cannot parse accountID", "auth error")
_TEXT_BYTES: Final = 300
_FORMATS: Final = {1: remote_write, 2: remote_write_2}


class Unavailable(Exception):
    """The receiver did not take a request now, but may later: network fault, 5xx, 429, or who we are.

    `remedy` is empty where time mends it. `retry_after_seconds` is the receiver's wish, None without one.
    `as_refusal`: it answered 4xx, about who we are, or about this request, as a filter does: then this.
    """

    def __init__(
        self,
        happened: str,
        remedy: str = "",
        retry_after_seconds: float | None = None,
        *,
        as_refusal: Refused | None = None,
    ) -> None:
        super().__init__(f"{happened}: {remedy}" if remedy else happened)
        self.happened, self.remedy = happened, remedy
        self.retry_after_seconds = retry_after_seconds
        self.as_refusal = as_refusal

    @property
    def turned_away(self) -> bool:
        """Whether it may be about this request, although others are taken."""
        return self.as_refusal is not None


@dataclass(frozen=True)
class _Answer:
    status: int
    text: str
    retry_after: str
    counts: Mapping[str, str]
    """The headers that say what was written, where there is one at all."""

    @property
    def success(self) -> bool:
        return self.status < 300

    @property
    def samples(self) -> int:
        """How many were written; a missing count is none."""
        count = self.counts.get(remote_write_2.WRITTEN_SAMPLES, "")
        return int(count) if count.isdecimal() and len(count) < 20 else 0  # of 64 bits


class Sender:
    """One receiver, and which message it takes. Not safe for concurrent use.

    Args:
        access: who we are, and the section of the configuration that messages name.
    """

    def __init__(
        self, url: str, access: Access, timeout_seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._url = url
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._clock = clock
        self._counts = False
        """Whether an answer to 2.0 had counts: a later refusal without is not about the message."""
        self._stores_parts = False
        """Whether it has stored a part of a request that it refused: then it always stores what it can."""
        self.version = 2
        """The message that is sent first: 2, and 1 from the answer on that shows that 2 is not taken."""

    async def post(self, session: aiohttp.ClientSession, series: Sequence[bytes]) -> int:
        """Deliver series, encoded for 1.0 and with one sample each, in one request.

        Returns:
            How many of the samples are written, as the receiver says; all of them in 1.0, which cannot say.

        Raises:
            Refused, Unavailable, SnappyMissing.
        """
        version = self.version
        answer = await self._send(session, series, version)
        if self._may_mean_the_message(answer, version):
            first, version = answer, 3 - version
            answer = await self._send(session, series, version)
            said_so = first.success or first.status == 415
            if answer.success or (said_so and answer.status != 415):
                self.version = version
                log.info("the receiver takes another version of remote write", url=self._url, version=version)
        return self._settled(answer, version, len(series))

    def _may_mean_the_message(self, answer: _Answer, version: int) -> bool:
        if answer.status == 415:
            return True
        if version == 1:
            return False
        if answer.counts:
            self._counts = True
            return False
        # Receivers of 1.0 answer 400 as well, says the specification, or fail on what they cannot read.
        unreadable = remote_write.refused_for_content(answer.status) or answer.status in (500, 501)
        return answer.success or (unreadable and not self._counts)

    async def _send(self, session: aiohttp.ClientSession, series: Sequence[bytes], version: int) -> _Answer:
        message = _FORMATS[version]
        try:
            body = message.pack(series)
        except Damaged as error:  # which no receiver would take, in either version
            raise Refused(400, str(error)) from error
        try:
            arguments = self._access.arguments()
            arguments["headers"] |= message.HEADERS
            async with session.post(self._url, data=body, timeout=self._timeout, **arguments) as response:
                text = b"" if response.status < 300 else await read_bounded(response.content, _TEXT_BYTES)
                headers = response.headers
                return _Answer(
                    response.status,
                    " ".join(text[:_TEXT_BYTES].decode("utf-8", "replace").split()),
                    headers.get("Retry-After", ""),
                    {name: headers[name] for name in remote_write_2.WRITTEN if name in headers},
                )
        except AccessError as error:
            raise Unavailable(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise Unavailable(
                f"{self._url} cannot be reached ({reason or type(error).__name__})",
                f"check {self._access.key}.url, its tls_config, and that the receiver runs",
            ) from error

    def _settled(self, answer: _Answer, version: int, sent: int) -> int:
        written = min(answer.samples, sent)
        if answer.success:
            return written if version == 2 else sent
        if remote_write.refused_for_content(answer.status) and not wrong_path(answer.status, answer.text):
            self._stores_parts = self._stores_parts or 0 < written < sent
            # 413 comes from before the samples are looked at.
            sorted_out = self._stores_parts and bool(answer.counts) and answer.status != 413
            raise Refused(answer.status, answer.text, written, sorted_out)
        turned_away = 400 <= answer.status < 500 and answer.status not in (408, 429)
        raise Unavailable(
            f"{self._url} answers HTTP {answer.status}: {answer.text}",
            hint(answer.status, answer.text, self._access.key),
            retry_after_seconds(answer.retry_after, self._clock()),
            as_refusal=Refused(answer.status, answer.text) if turned_away else None,
        )


def wrong_path(status: int, text: str) -> bool:
    """Whether an answer says that nobody takes remote write where we sent it."""
    return status in (404, 405) or (status == 400 and any(words in text for words in _WRONG_PATH))


def hint(status: int, text: str, key: str) -> str:
    """What to do about an answer that is not about the samples; empty where time will mend it."""
    if status == 415:
        return _MESSAGES
    return PATHS if wrong_path(status, text) else refusal_hint(status, key)


def retry_after_seconds(value: str, now: float) -> float | None:
    """The wait that a `Retry-After` header asks for at Unix time `now`; None where it asks for none.

    At most `LONGEST_RETRY_AFTER_SECONDS`. Source: RFC 9110, 10.2.3: seconds, or a date.
    """
    if value.isdecimal():
        seconds = float(value)
    else:
        try:
            date = parsedate_to_datetime(value)
        except (TypeError, ValueError, OverflowError):
            return None
        seconds = date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_SECONDS)
