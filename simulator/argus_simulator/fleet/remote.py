"""Samples of a fleet to a Prometheus by remote write.

A request holds up to `_BATCH` series. Its bytes differ from one sample to the next in the values and in the
time only, so they are laid out once and these places are overwritten: 1,000,000 series take a second.
A series that is gone gets a stale marker, as it would when a scrape no longer finds it.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import remote_write
from argus_core.http_access import Access, AccessConfig
from argus_core.remote_write_sender import PATHS, wrong_path
from argus_core.varint import varint
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.fast_play.storage import Floats
from argus_simulator.fleet.series_blocks import Block

_BATCH: Final = 20_000
_TIMEOUT_SECONDS: Final = 60.0
_ATTEMPTS: Final = 5
_EMPTY_SAMPLE: Final = remote_write.encode_series((), 0.0, 0)
_STAMP_BYTES: Final = 6
"""Length of the varint of a time in milliseconds, from 2004 to 2109."""


_TENANT: Final = (
    "give --header, such as X-Scope-OrgID=TENANT for Mimir and Cortex, THANOS-TENANT=TENANT for Thanos"
)
_HINTS: Final = {
    401: _TENANT,
    403: _TENANT,
    415: "let the receiver take remote write 1.0 (prometheus.WriteRequest)",
}
"""What to do about an answer of this status."""


class ReceiverRefuses(ArgusSimulatorError):
    """The samples cannot be delivered; the message says where and why."""


@dataclass
class _Request:
    """Series of one request: their bytes, and where values and times lie in them."""

    first: int
    ends: NDArray[np.int64]
    """End of each series in `body`, shape (series,)."""
    body: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ends)

    def filled(self, bits: NDArray[np.uint64], present: NDArray[np.bool_], stamp_ms: int) -> bytes:
        """The WriteRequest, uncompressed, with the series that are present."""
        stamp = np.frombuffer(varint(stamp_ms), np.uint8)
        tail = self.ends - _STAMP_BYTES
        self.body[tail[:, None] + np.arange(_STAMP_BYTES)] = stamp
        # Value: eight bytes before the key (one byte) of the time.
        self.body[(tail - 9)[:, None] + np.arange(8)] = bits.view(np.uint8).reshape(-1, 8)
        if present.all():
            return self.body.tobytes()
        begins = np.concatenate(([0], self.ends[:-1]))
        kept = np.repeat(present, self.ends - begins)
        return self.body[kept].tobytes()


class RemoteWrite:
    """One Prometheus, or anything that takes its remote write 1.0."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._url = url
        try:
            access = Access(AccessConfig(headers=dict(headers or {})), "--header", "argus-simulator")
        except ValueError as error:
            raise ArgusSimulatorError(f"--header: {error}") from error
        self._headers = access.arguments()["headers"] | remote_write.HEADERS
        self._requests: list[_Request] = []
        self._present: NDArray[np.bool_] = np.zeros(0, bool)

    def open(self, blocks: Sequence[Block]) -> None:
        known: dict[tuple[str, str], bytes] = {}  # a million series share a few thousand labels
        sample = remote_write.encode_series((), 0.0, 1_700_000_000_000)
        template: list[bytes] = []
        for block in blocks:
            for labels in block.labels():
                for label in labels:
                    if label not in known:
                        known[label] = remote_write.encode_series((label,), 0.0, 0)[: -len(_EMPTY_SAMPLE)]
                one = b"".join([known[label] for label in labels]) + sample
                template.append(b"\x0a" + varint(len(one)) + one)
        self._present = np.zeros(len(template), bool)
        for first in range(0, len(template), _BATCH):
            part = template[first : first + _BATCH]
            body = np.frombuffer(b"".join(part), np.uint8).copy()
            self._requests.append(_Request(first, np.cumsum([len(one) for one in part]), body))

    def write(self, at: float, values: Sequence[Floats]) -> int:
        flat = np.concatenate([value.reshape(-1) for value in values])
        present, bits = ~np.isnan(flat), flat.view(np.uint64).copy()
        gone = self._present & ~present
        bits[gone] = remote_write.STALE_BITS
        self._present = present
        stamp_ms = round(at * 1000)
        for request in self._requests:
            part = slice(request.first, request.first + len(request))
            sent = present[part] | gone[part]
            if sent.any():
                self._send(request.filled(bits[part], sent, stamp_ms))
        return int(present.sum())

    def close(self) -> None:
        """Everything was delivered at once."""

    def _send(self, body: bytes) -> None:
        packed = bytes(remote_write.snappy().compress_raw(body))
        request = urllib.request.Request(self._url, data=packed, headers=self._headers)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):
                    return
            except urllib.error.HTTPError as error:
                said = error.read(300).decode(errors="replace").strip()
                if error.code < 500 and error.code != 429:
                    hint = PATHS if wrong_path(error.code, said) else _HINTS.get(error.code, "")
                    refusal = f"{self._url}: HTTP {error.code}: {said}" + (f": {hint}" if hint else "")
                    raise ReceiverRefuses(refusal) from error
                failure = f"HTTP {error.code}: {said}"
            except (OSError, ValueError) as error:
                failure = str(getattr(error, "reason", error))
            if attempt == _ATTEMPTS:
                raise ReceiverRefuses(f"{self._url}: {failure}, {_ATTEMPTS} times; is Prometheus there?")
            time.sleep(0.2 * 2**attempt)
