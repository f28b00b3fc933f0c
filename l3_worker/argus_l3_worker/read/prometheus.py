"""Ask Prometheus. Absent, NaN and infinite samples are settled here, once: they do not leave this file."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiohttp

from argus_core.http_access import Access, AccessError, refusal_hint
from argus_l3_worker import PROGRAM
from argus_l3_worker.errors import PartialAnswer, QueryError
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.telemetry import Telemetry

T = TypeVar("T")

_PATHS: Final = (
    "prometheus.url is what stands before /api/v1: the address alone of Prometheus, VictoriaMetrics and "
    "Thanos Query, with /prometheus of Mimir and Cortex, with /select/0/prometheus of vmselect"
)
# Larger answers are decoded in a thread: a millisecond of the event loop.
_INLINE_BYTES: Final = 64 << 10
_decoding = threading.Lock()


@contextmanager
def decoding() -> Iterator[None]:
    """Decode one big answer at a time, which bounds memory, and without the garbage collector.

    A decoded answer is a million containers without a cycle among them; the collector would walk them again
    and again while they grow.
    """
    with _decoding:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()


# "(10.0.0.2:10901)": the querier below, of a Thanos Query in distributed mode.
_REMARK: Final = re.compile(r"(remote query warning \([^)]*\): )*PromQL ")


@dataclass(frozen=True)
class Sample:
    """One element of an instant vector; the value is finite."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Series:
    """One element of a range vector: (Unix seconds, value), values finite, at least one."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


def decode_vector(answer: bytes) -> list[Sample]:
    """Samples of an instant query's answer, without those that are NaN or infinite.

    Raises:
        QueryError: an error answer, or not an instant vector.
    """
    elements, found = result_of(answer, "vector"), []
    with readable(answer):
        for element in elements:
            value = float(element["value"][1])
            if math.isfinite(value):
                found.append(Sample(element["metric"], value))
    return found


def decode_matrix(answer: bytes) -> list[Series]:
    """Series of a range query's answer, without points that are NaN or infinite, without empty series."""
    elements, found = result_of(answer, "matrix"), []
    with readable(answer):
        for element in elements:
            points = tuple((float(t), float(v)) for t, v in element["values"] if math.isfinite(float(v)))
            if points:
                found.append(Series(element["metric"], points))
    return found


@contextmanager
def readable(answer: bytes) -> Iterator[None]:
    """Whatever is odd about elements is a QueryError with the beginning of the answer."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise QueryError(f"the answer is not one of the Prometheus HTTP API: {answer[:120]!r}") from error


def result_of(answer: bytes, kind: str) -> list[Any]:
    """Elements of an answer of the HTTP API whose result is a `kind`.

    Raises:
        PartialAnswer: the backend says that series are missing: `isPartial` of VictoriaMetrics, `warnings` of
            Thanos and Mimir. Remarks of PromQL itself on the query ("PromQL info: ...") are no such warnings,
            nor where Thanos says besides which of its queriers made them.
        QueryError: an error answer, another kind of result, or no such answer at all.
    """
    with readable(answer):
        content = json.loads(answer)
        if content["status"] != "success":
            raise QueryError(f"{content.get('errorType', 'error')}: {content.get('error', '')}")
        if content["data"]["resultType"] != kind:
            raise QueryError(f"the answer is a {content['data']['resultType']}, not a {kind}")
        result: list[Any] = content["data"]["result"]
        if not isinstance(result, list):
            raise TypeError
    warnings = [text for text in map(str, content.get("warnings") or ()) if not _REMARK.match(text)]
    if content.get("isPartial") or warnings:
        raise PartialAnswer(
            f"the answer is incomplete ({'; '.join(warnings)[:300] or 'isPartial'}), so nothing is concluded "
            "from it: repair the store that the backend names; the window is tried again"
        )
    return result


def selector(
    name: str,
    matchers: Mapping[str, str] | None = None,
    *,
    excluded: Mapping[str, Iterable[str]] | None = None,
    **regular: Collection[str],
) -> str:
    """`name{label="value",other=~"a|b",third!~"c|d"}` with everything escaped.

    Args:
        regular: values of labels, one of which it must be; without any the label may be anything.
    """
    parts = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in (matchers or {}).items()]
    parts += [f"{key}=~{_alternatives(values)}" for key, values in regular.items() if values]
    parts += [f"{key}!~{_alternatives(values)}" for key, values in (excluded or {}).items()]
    return f"{name}{{{','.join(parts)}}}"


def _alternatives(values: Iterable[str]) -> str:
    return json.dumps("|".join(_literal(value) for value in values), ensure_ascii=False)


def _literal(value: str) -> str:
    """`value` as an RE2 literal; Python's re.escape escapes spaces and dashes, which RE2 refuses for some."""
    return "".join(f"\\{c}" if c in r"\.+*?()|[]{}^$" else c for c in value)


class Prometheus:
    """The query side of the HTTP API, a bounded number of queries at a time."""

    def __init__(
        self, session: aiohttp.ClientSession, config: PrometheusConfig, telemetry: Telemetry
    ) -> None:
        self._session = session
        self._config = config
        self._access = Access(config, "prometheus", PROGRAM)
        self._telemetry = telemetry
        self._slots = asyncio.Semaphore(config.concurrency)

    async def instant(self, query: str, time: float) -> list[Sample]:
        """The instant vector of `query` at Unix time `time`."""
        return await _decoded(await self.ask(query, time), decode_vector)

    async def ask(self, query: str, time: float) -> bytes:
        """The answer to an instant query, as it came."""
        return await self._ask("query", query, time=f"{time:.3f}")

    async def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The range vector of `query` at the multiples of `step` from `start` to `end`, all in seconds.

        Results caches and VictoriaMetrics move other times to multiples, each in its own way.
        """
        every = math.ceil(step * 1e3)
        first, last = math.ceil(start * 1e3 / every) * every, math.floor(end * 1e3 / every) * every
        if first > last:
            return []
        times = {"start": first, "end": last, "step": every}
        seconds = {name: f"{milliseconds / 1e3:.3f}" for name, milliseconds in times.items()}
        answer = await self._ask("query_range", query, **seconds)
        return await _decoded(answer, decode_matrix)

    async def until(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """As `range`, and a last point at `end` itself: what has none there does not hold then."""
        points = {
            frozenset(one.labels.items()): one.points
            for one in await self.range(query, start, end - step, step)
        }
        for now in await self.instant(query, end):
            labels = frozenset(now.labels.items())
            points[labels] = (*points.get(labels, ()), (end, now.value))
        return [Series(dict(labels), of) for labels, of in points.items()]

    async def get(self, path: str) -> tuple[int, bytes, Mapping[str, str]]:
        """(status, body, headers) of a page that is no query, such as `/api/v1/rules`.

        Raises:
            QueryError: no answer.
        """
        url = self._base + path
        try:
            async with self._session.get(url, timeout=self._timeout, **self._access.arguments()) as response:
                return response.status, await response.read(), response.headers
        except (aiohttp.ClientError, TimeoutError, OSError, AccessError) as error:
            raise QueryError(f"{url} cannot be asked ({str(error) or type(error).__name__})") from error

    @property
    def _base(self) -> str:
        return self._config.url.rstrip("/")

    @property
    def _timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=self._config.timeout_seconds)

    async def _ask(self, endpoint: str, query: str, **parameters: str) -> bytes:
        async with self._slots:
            try:
                arguments = self._access.arguments()
                # Not gzip: Prometheus 2.42 took 8.6 s instead of 1.6 s for an answer of 60,000 series, and
                # the worker runs beside it.
                arguments["headers"]["Accept-Encoding"] = "identity"
                # POST: a query that names hundreds of kernels is too long for a URL.
                async with self._session.post(
                    f"{self._base}/api/v1/{endpoint}",
                    data={"query": query, **parameters},
                    timeout=self._timeout,
                    **arguments,
                ) as response:
                    answer = await response.read()
            except AccessError as error:
                self._telemetry.queries.labels("failure").inc()
                raise QueryError(str(error)) from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._telemetry.queries.labels("failure").inc()
                raise QueryError(
                    f"{self._base} cannot be asked ({str(error) or type(error).__name__}), so nothing can be "
                    "judged: check --prometheus.url, prometheus.tls_config and that Prometheus runs"
                ) from error
        if response.status >= 300:
            self._telemetry.queries.labels("failure").inc()
            reason = _reason(answer)
            raise QueryError(
                f"{self._base} refused a query with HTTP {response.status} ({reason}), so nothing "
                f"can be judged{_then(_hint(response.status, reason))}; the query was {query[:200]}"
            )
        self._telemetry.queries.labels("success").inc()
        return answer


async def _decoded(answer: bytes, decode: Callable[[bytes], T]) -> T:
    if len(answer) <= _INLINE_BYTES:
        return decode(answer)

    def work() -> T:
        with decoding():
            return decode(answer)

    return await asyncio.to_thread(work)


def _hint(status: int, reason: str) -> str:
    # vmselect says by a 400 that nobody listens there.
    wrong_path = status in (404, 405) or (status == 400 and "unsupported path" in reason)
    return _PATHS if wrong_path else refusal_hint(status, "prometheus")


def _then(hint: str) -> str:
    return f": {hint}" if hint else ""


def _reason(answer: bytes) -> str:
    try:
        content = json.loads(answer)
        return f"{content.get('errorType', 'error')}: {content.get('error', '')}"
    except (ValueError, AttributeError):
        return " ".join(answer[:200].decode(errors="replace").split())
