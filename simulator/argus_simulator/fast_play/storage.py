"""A Prometheus of one's own that holds a past: what is written into it, and what its engine makes of it."""

from __future__ import annotations

import functools
import http.client
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import remote_write
from argus_core.remote_write import Labels
from argus_core.varint import varint
from argus_simulator.fast_play.rules import EVALUATION_INTERVAL
from argus_simulator.stack.processes import kill_server, start_server
from argus_simulator.stack.repository import program

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STALE: Final = np.array([remote_write.STALE_BITS], np.uint64).view(np.float64)[0]
"""The NaN that ends a series. Copying it keeps its bits; arithmetic would not."""
_REQUEST_BYTES: Final = 8 << 20
_SAMPLE: Final = np.frombuffer(b"\x12\x10\x09" + bytes(8) + b"\x10" + bytes(6), np.uint8)
"""A Sample in a TimeSeries: tags, eight bytes of the value, six of the time."""


class QueryFailed(Exception):
    """The engine refuses an expression on these series, as it would in a rule: the evaluation fails."""


Matrix = dict[str, tuple[Ints, Floats]]
"""By the text of a series' labels: at which of the times asked for it has a value, by number, and which."""


def labels_of_text(text: str) -> dict[str, str]:
    """Labels without the name, from their text in an answer."""
    labels: dict[str, str] = json.loads(text)
    labels.pop("__name__", None)
    return labels


class Storage:
    """A running Prometheus; use it as a context manager.

    Args:
        folder: for its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._prefixes: dict[Labels, bytes] = {}

    def __enter__(self) -> Storage:
        config = self._folder / "prometheus.yml"
        config.write_text(f"global: {{evaluation_interval: {EVALUATION_INTERVAL}}}\n")
        self._server = start_server(
            "prometheus",
            lambda port: [
                program("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                # One head block for all of the past: samples of any age are taken, nothing is cut meanwhile.
                "--storage.tsdb.min-block-duration=30d",
                "--storage.tsdb.max-block-duration=30d",
                "--storage.tsdb.retention.time=300d",
                "--query.max-samples=500000000",
                "--web.enable-remote-write-receiver",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            "/-/ready",
            self._folder / "log",
        )
        self._connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=600)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        kill_server(self._server)  # nobody reads what it would save

    @property
    def url(self) -> str:
        return self._server.url

    # -- writing ------------------------------------------------------------------

    def write(self, series: Mapping[Labels, tuple[Ints, Floats]]) -> None:
        """Append samples (times in ms, values) to series."""
        body: list[bytes] = []
        size = 0
        stamps: dict[int, NDArray[np.uint8]] = {}
        for labels, (times, values) in series.items():
            if not len(times):
                continue
            known = stamps.get(id(times))  # those of a scrape or of an evaluation share their times
            if known is None:
                known = stamps[id(times)] = _varints(times)
            body.append(self._encode(labels, known, values))
            size += len(body[-1])
            if size > _REQUEST_BYTES:
                self._post_series(body)
                body, size = [], 0
        if body:
            self._post_series(body)

    def _encode(self, labels: Labels, stamps: NDArray[np.uint8], values: Floats) -> bytes:
        prefix = self._prefixes.get(labels)
        if prefix is None:
            sample = len(_SAMPLE)
            prefix = self._prefixes[labels] = remote_write.encode_series(labels, 0.0, 1 << 41)[:-sample]
        rows = np.empty((len(values), len(_SAMPLE)), np.uint8)
        rows[:] = _SAMPLE
        rows[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
        rows[:, 12:] = stamps
        return b"\x0a" + varint(len(prefix) + rows.size) + prefix + rows.tobytes()

    def _post_series(self, body: Sequence[bytes]) -> None:
        packed = bytes(remote_write.snappy().compress_raw(b"".join(body)))
        status, answer = self._request("/api/v1/write", packed, remote_write.HEADERS)
        if status >= 300:
            raise RuntimeError(f"Prometheus refused samples: {answer[:500]!r}")

    # -- asking ------------------------------------------------------------------

    def at(self, expr: str, time_ms: int) -> dict[str, float]:
        """Values of an instant query by the text of their labels.

        Raises:
            QueryFailed.
        """
        text = self._ask("query", query=expr, time=_seconds(time_ms))
        if '"resultType":"scalar"' in text[:120]:
            return {"{}": float(json.loads(text)["data"]["result"][1])}
        return {
            labels: float(rest[rest.index(',"') + 2 : -1]) for labels, rest in _results(text, '},"value":[')
        }

    def over(self, expr: str, times: range, shift_ms: int = 0) -> Matrix:
        """Values of a query at each of these times, or so much before them.

        Raises:
            QueryFailed.
        """
        start, end = times[0] - shift_ms, times[-1] - shift_ms
        text = self._ask(
            "query_range", query=expr, start=_seconds(start), end=_seconds(end), step=_seconds(times.step)
        )
        found: Matrix = {}
        for labels, rest in _results(text, '},"values":[['):
            numbers = np.fromstring(rest.replace("],[", ",").replace('"', "").rstrip("]"), sep=",")
            at = np.rint((numbers[::2] * 1000 - start) / times.step).astype(np.int64)
            found[labels] = at, numbers[1::2]
        return found

    def _ask(self, what: str, **parameters: str) -> str:
        status, answer = self._request(
            f"/api/v1/{what}",
            "&".join(f"{name}={_quoted(value)}" for name, value in parameters.items()).encode(),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        if status != 200:
            raise QueryFailed(f"{answer[:300].decode(errors='replace')}: {parameters['query'][:200]}")
        return answer.decode()

    def _request(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        self._connection.request("POST", path, body, dict(headers))
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _results(text: str, between: str) -> Iterator[tuple[str, str]]:
    """(labels, what follows `between`) of each series in an answer.

    Cut and not parsed: most of it was there a minute ago. No text within an answer can look like the cuts, as
    quotes in it are escaped.
    """
    begin = text.find('"result":[{"metric":')
    if begin < 0:
        return
    for part in text[begin + 20 : text.rindex("]}]}")].split(']},{"metric":'):
        labels, _, rest = part.partition(between)
        yield labels + "}", rest


@functools.lru_cache(maxsize=4096)  # an expression is asked thousands of times
def _quoted(text: str) -> str:
    return urllib.parse.quote_plus(text)


def _seconds(time_ms: int) -> str:
    return f"{time_ms // 1000}.{time_ms % 1000:03d}"


def _varints(times: Ints) -> NDArray[np.uint8]:
    """Six bytes each: times of 2004 to 2109 in ms."""
    shifts = 7 * np.arange(6)
    found = (times[:, None] >> shifts & 0x7F).astype(np.uint8)
    found[:, :-1] |= 0x80
    return found
