"""Samples of many series by remote write.

A series is encoded once. A request of 20,000 of them is a template in which only values and times change, so
that the writer, which shares the cores with Prometheus, costs little.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argus_core import remote_write
from argus_core.varint import varint
from bench.servers import PrometheusServer

_BATCH: Final = 20_000
"""Series a request."""
_ANSWER_SECONDS: Final = 120.0
"""How long a busy Prometheus may take to store one request."""


class Series(NamedTuple):
    """One series and its straight line: the value at step 0, and the increase a step."""

    labels: remote_write.Labels
    value: float
    slope: float


@dataclass(frozen=True)
class Request:
    """Some series, encoded once.

    Attributes:
        template: the uncompressed message; bytes, shape (length,).
        value_at, stamp_at: where in it the values and times lie; shape (series, bytes of one).
        values, slopes: shape (series,).
    """

    template: NDArray[np.uint8]
    value_at: NDArray[np.int64]
    stamp_at: NDArray[np.int64]
    values: NDArray[np.float64]
    slopes: NDArray[np.float64]

    @classmethod
    def of(cls, series: Sequence[Series]) -> Request:
        now = int(time.time() * 1000)
        stamp = len(varint(now))
        message, ends = bytearray(), []
        for one in series:
            encoded = remote_write.encode_series(one.labels, 0.0, now)
            message += b"\x0a" + varint(len(encoded)) + encoded
            ends.append(len(message))
        end = np.array(ends)[:, np.newaxis]
        # A Sample is a tag, the value, a tag, the time.
        return cls(
            np.frombuffer(bytes(message), np.uint8),
            end - stamp - 9 + np.arange(8),
            end - stamp + np.arange(stamp),
            np.array([one.value for one in series]),
            np.array([one.slope for one in series]),
        )

    def body(self, steps: float, milliseconds: int) -> bytes:
        """One sample of each after so many steps, compressed."""
        message = self.template.copy()
        message[self.value_at] = (
            (self.values + self.slopes * steps).astype("<f8").view(np.uint8).reshape(-1, 8)
        )
        message[self.stamp_at] = np.frombuffer(varint(milliseconds), np.uint8)
        return bytes(remote_write.snappy().compress_raw(message.tobytes()))


def requests_of(series: Iterable[Series]) -> list[Request]:
    """In their order, so that a request holds whole hosts."""
    listed = list(series)
    return [Request.of(listed[first : first + _BATCH]) for first in range(0, len(listed), _BATCH)]


def send(server: PrometheusServer, request: Request, steps: float, at: float) -> None:
    """One sample of each series of a request at `at`."""
    posted = urllib.request.Request(
        f"{server.url}/api/v1/write",
        data=request.body(steps, int(at * 1000)),
        headers=dict(remote_write.HEADERS),
    )
    urllib.request.urlopen(posted, timeout=_ANSWER_SECONDS).close()
