"""`POST /traces/request`: somebody wants the traces of some ranks, such as the L3 worker for a suspect."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from argus_core.bounded_read import read_bounded
from argus_exporter.traces.config import RequestsConfig

_BODY_LIMIT = 64 * 1024
_BODY_S = 10.0
"""How long a request may take to arrive."""
_RANKS_LIMIT = 256
_JOB_LIMIT = 64
"""Bytes of a job's name, as in HELLO: there is no longer one."""
_KEYS = ("training_job", "ranks", "start", "end", "steps")
_EXAMPLE = (
    '{"training_job": "NAME", "ranks": [3], "start": UNIX_SECONDS, "end": UNIX_SECONDS}, '
    'or "steps": [FIRST, LAST] for start and end'
)


class BadRequest(Exception):
    """What is wrong with a request, and what is allowed."""


@dataclass(frozen=True)
class TraceRequest:
    """What is asked for: a stretch of time (Unix ns), or steps."""

    training_job: str
    ranks: tuple[int, ...]
    time: tuple[int, int] | None
    steps: tuple[int, int] | None


def parse_request(content: object, config: RequestsConfig) -> TraceRequest:
    """Check a request.

    Raises:
        BadRequest: what is wrong.
    """
    if not isinstance(content, dict):
        raise BadRequest(f"the body must be a JSON object such as {_EXAMPLE}")
    unknown = sorted(set(content) - set(_KEYS))
    if unknown:
        raise BadRequest(f"unknown key {unknown[0]!r}; allowed: {', '.join(_KEYS)}")
    job, ranks = content.get("training_job"), content.get("ranks")
    if not isinstance(job, str) or not 0 < len(job.encode("utf-8", "replace")) <= _JOB_LIMIT:
        raise BadRequest(f"training_job is {job!r}; allowed: a text of 1 to {_JOB_LIMIT} bytes")
    if not isinstance(ranks, list) or not 0 < len(ranks) <= _RANKS_LIMIT or not all(map(_is_rank, ranks)):
        raise BadRequest(f"ranks must be a list of 1 to {_RANKS_LIMIT} whole numbers of 0 or more")
    chosen = tuple(sorted(set(ranks)))
    if "steps" in content:
        if "start" in content or "end" in content:
            raise BadRequest("steps and start or end exclude one another")
        return TraceRequest(job, chosen, None, _steps(content["steps"], config.steps))
    return TraceRequest(job, chosen, _time(content.get("start"), content.get("end"), config.seconds), None)


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _steps(value: object, limit: int) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(step) is int for step in value):
        raise BadRequest(f"steps is {value!r}; allowed: [first, last]")
    first, last = value
    if not 0 <= first <= last < 1 << 62 or last - first >= limit:
        raise BadRequest(f"steps is {value!r}; allowed: first <= last, at most {limit} steps")
    return first, last


def _time(start: Any, end: Any, limit: float) -> tuple[int, int]:
    for name, value in (("start", start), ("end", end)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not 0 <= value < 4e9:
            raise BadRequest(f"{name} is {value!r}; allowed: Unix time in seconds")
    if not 0 < end - start <= limit:
        raise BadRequest(f"end - start is {end - start:g} s; allowed: above 0, up to {limit:g} s")
    return round(start * 1e9), round(end * 1e9)


class RateLimit:
    """A bucket of `per_minute` tokens that refills evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._tokens = float(per_minute)
        self._at = clock()

    def wait_s(self, tokens: int) -> float:
        """Take tokens and return 0, or how long until there are that many (nothing is taken).

        More than the bucket holds count as a full bucket, so that they are possible at all.
        """
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._at) * self.per_minute / 60, float(self.per_minute))
        self._at = now
        needed = min(tokens, self.per_minute)
        if self._tokens >= needed:
            self._tokens -= needed
            return 0.0
        return (needed - self._tokens) * 60 / self.per_minute


@dataclass(frozen=True)
class Answer:
    """Keys by rank, and why other ranks have none."""

    keys: dict[int, str]
    missing: dict[int, str]


class TraceMaker(Protocol):
    """Who answers requests."""

    @property
    def limits(self) -> RequestsConfig:
        """Asked at each request, since they may be reloaded."""
        ...

    @property
    def requests(self) -> Counter[str]:
        """Requests by result: accepted, refused, limited, failed."""
        ...

    async def fulfil(self, request: TraceRequest) -> Answer:
        """Make the traces and queue them for the store."""
        ...


def request_handler(traces: TraceMaker | None) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The route; None: this exporter keeps no traces."""
    if traces is None:

        async def off(_: web.Request) -> web.Response:
            error = "this exporter keeps no traces: see the section traces of its configuration and its log"
            return web.json_response({"error": error}, status=503)

        return off

    rate = RateLimit(traces.limits.per_minute)
    results = traces.requests

    async def post(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_BODY_S):
                body = await read_bounded(request.content, _BODY_LIMIT)
            if len(body) > _BODY_LIMIT:
                raise BadRequest(f"the body is longer than {_BODY_LIMIT} bytes")
            wanted = parse_request(json.loads(body), traces.limits)
        except TimeoutError:
            results["refused"] += 1
            return web.json_response({"error": f"no body came within {_BODY_S:g} s"}, status=408)
        except (BadRequest, ValueError, RecursionError) as error:
            results["refused"] += 1
            why = error if isinstance(error, BadRequest) else f"the body is not JSON such as {_EXAMPLE}"
            return web.json_response({"error": str(why)}, status=400)
        rate.per_minute = traces.limits.per_minute
        wait_s = rate.wait_s(len(wanted.ranks))
        if wait_s:
            results["limited"] += 1
            return web.json_response(
                {"error": f"more than {rate.per_minute} windows a minute; again in {math.ceil(wait_s)} s"},
                status=429,
                headers={"Retry-After": str(math.ceil(wait_s))},
            )
        answer = await traces.fulfil(wanted)
        results["accepted" if answer.keys else "failed"] += 1
        content = {
            "keys": {str(rank): key for rank, key in answer.keys.items()},
            "missing": {str(rank): why for rank, why in answer.missing.items()},
        }
        return web.json_response(content, status=202 if answer.keys else 404)

    return post
