"""Exporters are asked for traces when ranks are accused, and what they promise is published."""

from __future__ import annotations

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from argus_core.http_access import AccessError, BasicAuth
from argus_l3_worker.read.prometheus import Sample
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.traces.config import RequestConfig
from argus_l3_worker.traces.requests import TraceRequests, choose_of_stages, choose_peers

NOW = 1_795_000_000.0


def info(rank: int, instance: str = "host:9877", **labels: str) -> Sample:
    """One argus_rank_info."""
    given = {"training_job": "llm", "rank": str(rank), "role": "pp0.tp0", "node": f"n{rank // 2}", **labels}
    return Sample({**given, "instance": instance}, 1.0)


class Exporter:
    """Answers as the exporter does, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.users: list[str | None] = []
        self.status = 202
        self.silent: asyncio.Event | None = None

    async def post(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        self.users.append(request.headers.get("Authorization"))
        if self.silent is not None:
            await self.silent.wait()
        if self.status != 202:
            return web.json_response({"error": "more than 60 windows a minute"}, status=self.status)
        return web.json_response(
            {"keys": {str(r): _key(r) for r in body["ranks"]}, "missing": {}}, status=202
        )


def _key(rank: int) -> str:
    return f"llm/2026-11-21/{rank}/window.perfetto-trace"


@asynccontextmanager
async def _exporter(exporter: Exporter) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/traces/request", exporter.post)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        if exporter.silent is not None:
            exporter.silent.set()
        await runner.cleanup()


def _published(requests: TraceRequests) -> dict[str, tuple[str, str]]:
    labels = [dict(one) for one, _ in requests.published("")]
    return {one["rank"]: (one["trace_key"], one["suspect"]) for one in labels}


@contextlib.asynccontextmanager
async def _playing(
    exporter: Exporter, config: RequestConfig, telemetry: Telemetry | None = None
) -> AsyncIterator[tuple[TraceRequests, str]]:
    """Requests to a real server, and its address."""
    async with _exporter(exporter) as address, aiohttp.ClientSession() as session:
        yield TraceRequests(session, config, telemetry or Telemetry()), address


def _counted(telemetry: Telemetry, result: str) -> float:
    return (
        telemetry.registry.get_sample_value("argus_l3_worker_trace_requests_total", {"result": result}) or 0.0
    )


def test_peers_are_of_the_same_role_and_rather_of_another_host() -> None:
    """As many as suspects; never a suspect; the nearest number that shares no node."""
    fleet = [info(rank) for rank in range(8)] + [info(9, role="pp1.tp0")]
    assert choose_peers([("llm", "2")], fleet) == [("llm", "1")]
    assert choose_peers([("llm", "0"), ("llm", "1")], fleet) == [("llm", "2"), ("llm", "3")]
    assert choose_peers([("llm", "9")], fleet) == []
    assert choose_peers([("llm", "77")], fleet) == []


class CountedLabels(dict[str, str]):
    """Counts how often labels are read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        type(self).reads += 1
        return super().get(key, default)


def test_peers_are_looked_for_in_the_suspects_role_alone() -> None:
    """A rack of suspects: with all ranks looked through for each, 300 of 10,240 took 28 s of every cycle."""
    CountedLabels.reads = 0
    fleet = [Sample(CountedLabels(info(rank, role=f"pp{rank // 8}").labels), 1.0) for rank in range(512)]
    peers = choose_peers([("llm", str(8 * role)) for role in range(64)], fleet)
    assert [rank for _, rank in peers] == [str(8 * role + 2) for role in range(64)]
    assert CountedLabels.reads < 16 * 512


def test_of_a_whole_job_two_replicas_are_looked_at_through_all_stages() -> None:
    """The first of each stage before the middle ones; a stage of one rank once; other jobs are not meant."""
    fleet = [info(rank, pp=str(rank // 4)) for rank in reversed(range(12))]
    assert sorted(choose_of_stages("llm", fleet)[:3]) == [("llm", "0"), ("llm", "4"), ("llm", "8")]
    assert sorted(choose_of_stages("llm", fleet)[3:]) == [("llm", "10"), ("llm", "2"), ("llm", "6")]
    assert choose_of_stages("llm", [info(3), info(5, training_job="other")]) == [("llm", "3")]
    assert choose_of_stages("gone", fleet) == []


async def test_of_a_whole_job_nobody_is_published_as_a_suspect_who_is_none() -> None:
    """An accused rank of it stays a suspect, and is asked for once."""
    exporter = Exporter()
    async with _playing(exporter, RequestConfig()) as (requests, address):
        fleet = [info(rank, address, pp=str(rank // 4)) for rank in range(8)]
        await requests.update([("llm", "4")], fleet, NOW, {"llm"})
    assert [body["ranks"] for body in exporter.asked] == [[0, 2, 3, 4, 6]]
    assert {rank: suspect for rank, (_, suspect) in _published(requests).items()} == {
        "0": "false",
        "2": "false",
        "3": "false",
        "4": "true",
        "6": "false",
    }


async def test_suspects_and_peers_are_asked_for_and_published() -> None:
    """One request an exporter, for the time before the verdict; keys by rank."""
    exporter = Exporter()
    telemetry = Telemetry()
    async with _playing(exporter, RequestConfig(seconds=20.0), telemetry) as (requests, address):
        await requests.update([("llm", "2")], [info(rank, address) for rank in range(8)], NOW)
    assert exporter.asked == [{"training_job": "llm", "ranks": [1, 2], "start": NOW - 20.0, "end": NOW}]
    assert _published(requests) == {"2": (_key(2), "true"), "1": (_key(1), "false")}
    assert _counted(telemetry, "success") == 1


async def test_a_rank_is_not_asked_for_again_too_soon() -> None:
    """A verdict that lasts asks once; after the cooldown again."""
    exporter = Exporter()
    async with _playing(exporter, RequestConfig(cooldown_seconds=1800)) as (requests, address):
        fleet = [info(rank, address) for rank in range(8)]
        for seconds in (0, 60, 120, 2000):
            await requests.update([("llm", "2")], fleet, NOW + seconds)
    assert [body["end"] - NOW for body in exporter.asked] == [0, 2000]


async def test_one_cycle_asks_for_a_bounded_number() -> None:
    """Suspects first; the rest in the next cycles."""
    exporter = Exporter()
    async with _playing(exporter, RequestConfig(ranks_per_cycle=16)) as (requests, address):
        fleet = [info(rank, address) for rank in range(64)]
        suspects = [("llm", str(rank)) for rank in range(20)]
        await requests.update(suspects, fleet, NOW)
        await requests.update(suspects, fleet, NOW + 60)
    assert [body["ranks"] for body in exporter.asked] == [list(range(16)), [16, 17, 18, 19, *range(20, 32)]]


@pytest.mark.parametrize(("status", "again"), [(429, 60), (500, 60), (400, 300), (404, 300)])
async def test_a_refusal_is_counted_and_tried_again(status: int, again: int) -> None:
    """In the next cycle where it may pass, in 5 minutes where it was refused; nothing is published for it."""
    exporter = Exporter()
    exporter.status = status
    telemetry = Telemetry()
    async with _playing(exporter, RequestConfig(), telemetry) as (requests, address):
        fleet = [info(rank, address) for rank in range(4)]
        await requests.update([("llm", "2")], fleet, NOW)
        assert _published(requests) == {}
        exporter.status = 202
        await requests.update([("llm", "2")], fleet, NOW + again - 1)
        if again > 60:
            assert len(exporter.asked) == 1
        await requests.update([("llm", "2")], fleet, NOW + again)
    assert _counted(telemetry, "failure") == 1 and "2" in _published(requests)


async def test_exporters_that_are_away_or_silent_hold_nobody_up() -> None:
    """Refused connections and silence are failures within the time limit; others are still asked."""
    exporter = Exporter()
    telemetry = Telemetry()
    async with _playing(exporter, RequestConfig(timeout_seconds=0.5), telemetry) as (requests, address):
        fleet = [info(0, "127.0.0.1:1"), info(4, "127.0.0.1:1")]
        await requests.update([("llm", "0")], fleet, NOW)
        exporter.silent = asyncio.Event()
        await requests.update([("llm", "2")], [info(2, address)], NOW)
    assert _counted(telemetry, "failure") == 2
    assert _published(requests) == {}


async def test_the_address_may_come_from_a_template_and_a_password_from_a_file(tmp_path: Path) -> None:
    """`{node}` where Prometheus scrapes through a proxy; basic auth as the exporter asks for."""
    exporter = Exporter()
    secret = tmp_path / "password"
    secret.write_text("geheim\n")
    auth = BasicAuth(username="argus", password_file=secret)
    config = RequestConfig(exporter_url="http://{node}", basic_auth=auth)
    async with _playing(exporter, config) as (requests, address):
        await requests.update([("llm", "2")], [info(2, "elsewhere:1", node=address)], NOW)

    assert "2" in _published(requests)
    assert exporter.users == ["Basic " + b64encode(b"argus:geheim").decode()]


async def test_series_are_bounded_in_number_and_time() -> None:
    """The oldest go first, and all go after a while."""
    exporter = Exporter()
    async with _playing(exporter, RequestConfig(keep_traces=3, keep_seconds=94.5)) as (requests, address):
        fleet = [info(rank, address, role=str(rank)) for rank in range(8)]  # no peers
        for rank in range(8):
            await requests.update([("llm", str(rank))], fleet, NOW + rank)
        assert sorted(_published(requests)) == ["5", "6", "7"]
        await requests.update([], fleet, NOW + 100)
    assert sorted(_published(requests)) == ["6", "7"]


async def test_a_new_worker_takes_over_what_was_promised() -> None:
    """Neither are keys forgotten nor ranks asked for again."""
    exporter = Exporter()
    earlier = Sample(
        {"training_job": "llm", "rank": "2", "trace_key": _key(2), "suspect": "true", "role": ""}, 1.0
    )
    async with _playing(exporter, RequestConfig()) as (requests, address):
        requests.restore([earlier], NOW)
        await requests.update([("llm", "2")], [info(2, address)], NOW + 1)
    assert exporter.asked == [] and _published(requests) == {"2": (_key(2), "true")}


def test_a_password_file_that_is_missing_is_refused_at_start(tmp_path: Path) -> None:
    """With key and file."""

    auth = BasicAuth(username="argus", password_file=tmp_path / "none")

    async def start() -> None:
        async with aiohttp.ClientSession() as session:
            TraceRequests(session, RequestConfig(basic_auth=auth), Telemetry())

    with pytest.raises(AccessError, match=r"traces\.request\.basic_auth\.password_file"):
        asyncio.run(start())


async def test_a_password_file_that_is_gone_later_fails_a_request_only(tmp_path: Path) -> None:
    """It is read for each request: once it is back, the trace is asked for."""
    exporter = Exporter()
    secret = tmp_path / "password"
    secret.write_text("first")
    config = RequestConfig(basic_auth=BasicAuth(username="argus", password_file=secret))
    telemetry = Telemetry()
    async with _playing(exporter, config, telemetry) as (requests, address):
        secret.unlink()
        await requests.update([("llm", "2")], [info(2, address)], NOW)
        assert exporter.asked == []
        secret.write_text("second")
        await requests.update([("llm", "2")], [info(2, address)], NOW + 60)
    assert _counted(telemetry, "failure") == 1 and "2" in _published(requests)
    assert exporter.users == ["Basic " + b64encode(b"argus:second").decode()]


async def test_the_body_is_what_the_exporter_accepts() -> None:
    """Checked by the exporter's own parser."""
    from argus_exporter.traces.config import RequestsConfig
    from argus_exporter.traces.requests import parse_request

    exporter = Exporter()
    async with _playing(exporter, RequestConfig()) as (requests, address):
        await requests.update([("llm", "2")], [info(2, address)], NOW)

    wanted = parse_request(json.loads(json.dumps(exporter.asked[0])), RequestsConfig())
    assert wanted.ranks == (2,)
    assert wanted.time == (round((NOW - 30) * 1e9), round(NOW * 1e9))
