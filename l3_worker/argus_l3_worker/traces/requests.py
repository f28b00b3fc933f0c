"""Traces of suspects and healthy peers, and of a job that is slow as a whole, asked of their exporters.

The exporter answers at once with the keys under which the windows will be stored. They are published as
`argus_l3_trace_info{training_job, rank, trace_key, suspect}`, one series a rank, which annotations of alerts
look up. A request that fails is counted and tried again in the next cycle; a cycle never fails for it.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from argus_core import catalogue
from argus_core.bounded_read import read_bounded
from argus_core.http_access import Access, AccessError, refusal_hint
from argus_core.log import Log
from argus_core.remote_write import Labels, labels_of
from argus_l3_worker import PROGRAM
from argus_l3_worker.read.prometheus import Sample
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.traces.config import RequestConfig

log = Log(__name__)

_ANSWER_LIMIT: Final = 1 << 20
# A refusal (traces switched off, no records of that time) is not asked about in every cycle.
_REFUSED_SECONDS: Final = 300.0

Rank = tuple[str, str]
"""(training_job, rank)."""


@dataclass(frozen=True)
class KnownTrace:
    """A trace that was promised; `time`: when, Unix seconds."""

    key: str
    suspect: bool
    time: float


def _by_rank(info: Iterable[Sample]) -> dict[Rank, Mapping[str, str]]:
    return {(one.labels.get("training_job", ""), one.labels.get("rank", "")): one.labels for one in info}


def choose_peers(suspects: Iterable[Rank], info: Sequence[Sample]) -> list[Rank]:
    """As many healthy ranks of the same job and role as there are suspects, the nearest by number first.

    Ranks of other nodes come first: a host's own trouble would show on its neighbours too.
    """
    accused, labels = dict.fromkeys(suspects), _by_rank(info)
    number = {rank: int(rank[1]) if rank[1].isdecimal() else 0 for rank in labels}
    healthy: dict[tuple[str, str | None], set[Rank]] = defaultdict(set)
    for rank, of in labels.items():
        if rank not in accused:
            healthy[rank[0], of.get("role")].add(rank)
    chosen: list[Rank] = []
    for suspect in (one for one in accused if one in labels):
        place, node = number[suspect], labels[suspect].get("node")

        def distance(other: Rank) -> tuple[bool, int, str]:
            same_node = bool(node) and labels[other].get("node") == node  # noqa: B023, called at once
            return same_node, abs(number[other] - place), other[1]  # noqa: B023

        if peers := healthy[suspect[0], labels[suspect].get("role")]:
            chosen.append(min(peers, key=distance))
            peers.remove(chosen[-1])
    return chosen


def choose_of_stages(job: str, info: Sequence[Sample]) -> list[Rank]:
    """Two ranks of each pipeline stage of a job, for what is found of the job as a whole.

    The first of each stage and that in its middle: stages are numbered alike, so that these are two replicas
    from end to end. All of the first come before the second, as a cycle asks for a bounded number.
    """
    stages: dict[str, set[int]] = defaultdict(set)
    for labels in (sample.labels for sample in info):
        if labels.get("training_job") == job and labels.get("rank", "").isdecimal():
            stages[labels.get("pp", "")].add(int(labels["rank"]))
    ordered = [sorted(ranks) for ranks in stages.values()]
    chosen = [min(ranks) for ranks in ordered] + [ranks[len(ranks) // 2] for ranks in ordered]
    return [(job, str(rank)) for rank in dict.fromkeys(chosen)]


class TraceRequests:
    """What was asked for, and what exporters promised.

    Raises:
        AccessError: a file that the configuration names cannot be used.
    """

    def __init__(self, session: aiohttp.ClientSession, config: RequestConfig, telemetry: Telemetry) -> None:
        self._session = session
        self._config = config
        self._telemetry = telemetry
        self._asked: dict[Rank, float] = {}
        self._known: dict[Rank, KnownTrace] = {}
        self._access = Access(config, "traces.request", PROGRAM)
        self._access.arguments()

    def restore(self, samples: Sequence[Sample], at: float) -> None:
        """Take over the series of a worker before this one."""
        for sample in samples:
            labels = sample.labels
            rank = (labels.get("training_job", ""), labels.get("rank", ""))
            if all(rank) and labels.get("trace_key"):
                trace = KnownTrace(labels["trace_key"], labels.get("suspect") == "true", at)
                self._known.setdefault(rank, trace)
                self._asked.setdefault(rank, at)

    async def update(
        self, suspects: Sequence[Rank], info: Sequence[Sample], at: float, slow_jobs: Iterable[str] = ()
    ) -> None:
        """Ask for what is missing; returns after `timeout_seconds` at the latest and raises nothing.

        Args:
            slow_jobs: of which something is found that no rank, set or group has done.
        """
        config = self._config
        wanted = dict.fromkeys(suspects, True)
        others = [rank for job in sorted(slow_jobs) for rank in choose_of_stages(job, info)]
        for rank in (*choose_peers(suspects, info), *others):
            wanted.setdefault(rank, False)
        due = [
            (rank, suspect)
            for rank, suspect in wanted.items()
            if at - self._asked.get(rank, -float("inf")) >= config.cooldown_seconds
        ][: config.ranks_per_cycle]
        batches = self._batches(due, info)
        if batches:
            try:
                async with asyncio.timeout(config.timeout_seconds):
                    await asyncio.gather(*(self._ask(url, batch, at) for url, batch in batches.items()))
            except TimeoutError:
                # Requests that were cut off were counted where they hung.
                log.warning("exporters too slow, traces asked for again later", urls=len(batches))
        self._forget(at)

    def published(self, worker: str) -> Iterator[tuple[Labels, float]]:
        """One series a rank with a promised trace."""
        for (job, rank), trace in self._known.items():
            labels = labels_of(
                catalogue.L3_TRACE_INFO.name,
                training_job=job,
                rank=rank,
                trace_key=trace.key,
                suspect="true" if trace.suspect else "false",
                worker=worker,
            )
            yield labels, 1.0

    # -- one exporter ---------------------------------------------------------------------------------------

    def _batches(
        self, due: Sequence[tuple[Rank, bool]], info: Sequence[Sample]
    ) -> dict[tuple[str, str], dict[str, bool]]:
        """Ranks to ask for, with whether they are suspects, by (URL, training job)."""
        labels = _by_rank(info)
        batches: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
        for (job, rank), suspect in due:
            where = labels.get((job, rank))
            if where is None or not rank.isdecimal():
                continue
            url = self._config.exporter_url.format(
                instance=where.get("instance", ""), node=where.get("node", ""), rank=rank
            )
            batches[url.rstrip("/"), job][rank] = suspect
        return batches

    async def _ask(self, where: tuple[str, str], ranks: dict[str, bool], at: float) -> None:
        url, job = where
        body = {
            "training_job": job,
            "ranks": sorted(map(int, ranks)),
            "start": at - self._config.seconds,
            "end": at,
        }
        try:
            arguments = self._access.arguments()
            async with self._session.post(f"{url}/traces/request", json=body, **arguments) as response:
                raw = await read_bounded(response.content, _ANSWER_LIMIT)
                answer = _answer(raw, response.status)
            if 400 <= response.status < 500 and response.status != 429:
                for rank in ranks:
                    self._asked[job, rank] = at - self._config.cooldown_seconds + _REFUSED_SECONDS
            if response.status not in (200, 202):
                raise aiohttp.ClientError(
                    f"HTTP {response.status}: {answer.get('error') or answer.get('missing')}"
                )
        except asyncio.CancelledError:
            self._count("failure")
            raise
        except (aiohttp.ClientError, OSError, ValueError, AccessError) as error:
            self._count("failure")
            log.warning(
                "traces not promised", exporter=url, training_job=job, ranks=" ".join(ranks), error=error
            )
            return
        self._count("success")
        keys = answer.get("keys")
        for rank, suspect in ranks.items():
            self._asked[job, rank] = at
            key = keys.get(rank) if isinstance(keys, dict) else None
            if isinstance(key, str) and key:
                self._known[job, rank] = KnownTrace(key, suspect, at)
                log.info("trace promised", training_job=job, rank=rank, suspect=suspect, trace_key=key)

    def _count(self, result: str) -> None:
        self._telemetry.trace_requests.labels(result).inc()

    def _forget(self, at: float) -> None:
        config = self._config
        known = {rank: trace for rank, trace in self._known.items() if at - trace.time < config.keep_seconds}
        newest = sorted(known, key=lambda rank: known[rank].time)[-config.keep_traces :]
        self._known = {rank: known[rank] for rank in newest}
        self._asked = {
            rank: time for rank, time in self._asked.items() if at - time < config.cooldown_seconds
        }


def _answer(raw: bytes, status: int) -> dict[str, Any]:
    try:
        answer = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"HTTP {status}: {refusal_hint(status, 'traces.request') or 'no JSON'}") from error
    return answer if isinstance(answer, dict) else {}
