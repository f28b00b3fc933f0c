"""Ask Prometheus. Absent, NaN and infinite samples are settled here, once: they do not leave this file."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from argus_l3_worker.config import PrometheusConfig
from argus_l3_worker.errors import QueryError
from argus_l3_worker.telemetry import Telemetry


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
    found = []
    for element in _result(answer, "vector"):
        value = float(element["value"][1])
        if math.isfinite(value):
            found.append(Sample(element["metric"], value))
    return found


def decode_matrix(answer: bytes) -> list[Series]:
    """Series of a range query's answer, without points that are NaN or infinite, without empty series."""
    found = []
    for element in _result(answer, "matrix"):
        points = tuple((float(t), float(v)) for t, v in element["values"] if math.isfinite(float(v)))
        if points:
            found.append(Series(element["metric"], points))
    return found


def _result(answer: bytes, kind: str) -> list[Any]:
    try:
        content = json.loads(answer)
        if content["status"] != "success":
            raise QueryError(f"{content.get('errorType', 'error')}: {content.get('error', '')}")
        if content["data"]["resultType"] != kind:
            raise QueryError(f"the answer is a {content['data']['resultType']}, not a {kind}")
        result: list[Any] = content["data"]["result"]
        return result
    except (ValueError, KeyError, TypeError) as error:
        raise QueryError(f"the answer is not one of the Prometheus HTTP API: {answer[:120]!r}") from error


def selector(name: str, matchers: Mapping[str, str] | None = None, **regular: Iterable[str]) -> str:
    """`name{label="value",other=~"a|b"}` with everything escaped."""
    parts = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in (matchers or {}).items()]
    for key, values in regular.items():
        pattern = "|".join(_literal(value) for value in values)
        parts.append(f"{key}=~{json.dumps(pattern, ensure_ascii=False)}")
    return f"{name}{{{','.join(parts)}}}"


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
        self._telemetry = telemetry
        self._slots = asyncio.Semaphore(config.concurrency)

    async def instant(self, query: str, time: float) -> list[Sample]:
        """The instant vector of `query` at Unix time `time`."""
        return decode_vector(await self._ask("query", query, time=f"{time:.3f}"))

    async def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The range vector of `query`."""
        return decode_matrix(
            await self._ask("query_range", query, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:.3f}")
        )

    async def _ask(self, endpoint: str, query: str, **parameters: str) -> bytes:
        base = self._config.url.rstrip("/")
        timeout = aiohttp.ClientTimeout(total=self._config.timeout_seconds)
        async with self._slots:
            try:
                # POST: a query that names hundreds of kernels is too long for a URL.
                async with self._session.post(
                    f"{base}/api/v1/{endpoint}", data={"query": query, **parameters}, timeout=timeout
                ) as response:
                    answer = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._telemetry.queries.labels("failure").inc()
                raise QueryError(
                    f"{base} cannot be asked ({error or type(error).__name__}), so nothing can be judged: "
                    "check --prometheus.url and that Prometheus runs"
                ) from error
        if response.status >= 400:
            self._telemetry.queries.labels("failure").inc()
            try:
                _result(answer, "")
            except QueryError as error:
                raise QueryError(
                    f"{base} refused a query with HTTP {response.status} ({error}), so nothing can be "
                    f"judged; the query was {query[:200]}"
                ) from error
        self._telemetry.queries.labels("success").inc()
        return answer
