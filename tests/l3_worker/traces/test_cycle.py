"""From a verdict to a key in Prometheus, with a real Prometheus and a real exporter's route in between."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from bench.servers import PrometheusServer

from argus_core import remote_write
from argus_core.store.config import StoreConfig
from argus_l3_worker.config import Config, WebConfig
from argus_l3_worker.cycle import Worker
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.reports.questions import table
from argus_l3_worker.serve import Health, _listen
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.traces.config import RequestConfig, TracesConfig
from argus_l3_worker.traces.requests import TraceRequests
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool
from l3_worker.fleets import fleet
from l3_worker.published_fleet import Fleet
from l3_worker.traces.test_requests import Exporter, _exporter

pytestmark = pytest.mark.servers


def _publish(server: PrometheusServer, now: float) -> None:
    """Three windows in which rank 3 is 20 % slow."""
    job = Fleet(server)
    for window in range(3):
        for scrape in range(4):
            at = now - 60 * (2 - window) - 15 * (3 - scrape)
            job.publish(at, 64 * (window + 1), fleet(8, seed=window, slow={"3": 1.2}))


def _one_cycle(server: PrometheusServer, address: str, now: float) -> Telemetry:
    telemetry = Telemetry()
    config = Config(
        prometheus=PrometheusConfig(url=server.url),
        traces=TracesConfig(request=RequestConfig(exporter_url=f"http://{address}", timeout_seconds=2.0)),
    )

    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            prometheus = Prometheus(session, config.prometheus, telemetry)
            spool = Spool(None, 1 << 20, 3_600_000)
            delivery = Delivery(session, config.write_url, config.write, spool, telemetry)
            requests = TraceRequests(session, config.traces.request, telemetry)
            report = await Worker(prometheus, delivery, config, telemetry, traces=requests).cycle(now, now)
            assert {verdict.rank for verdict in report.verdicts} == {"3"} and report.delivered

    asyncio.run(run())
    return telemetry


def _asked_in_a_cycle(prometheus: PrometheusServer, now: float) -> Exporter:
    """What an exporter was asked for in one."""
    exporter = Exporter()

    async def serve() -> None:
        async with _exporter(exporter) as address:
            await asyncio.to_thread(_one_cycle, prometheus, address, now)

    asyncio.run(serve())
    return exporter


def test_a_verdict_brings_the_key_of_its_trace_into_prometheus(prometheus: PrometheusServer) -> None:
    """The suspect and one healthy peer are asked for; the alert's query finds the suspect's key."""
    now = float(int(time.time()))
    _publish(prometheus, now)
    exporter = _asked_in_a_cycle(prometheus, now)
    (asked,) = exporter.asked
    assert 3 in asked["ranks"] and len(asked["ranks"]) == 2 and asked["end"] == now
    found = prometheus.query('argus_l3_trace_info{training_job="llm",rank="3"}', now)
    assert [labels["trace_key"] for labels, _ in found] == ["llm/2026-11-21/3/window.perfetto-trace"]
    assert found[0][0]["suspect"] == "true"


def test_of_a_set_all_ranks_that_stand_out_are_asked_for(prometheus: PrometheusServer) -> None:
    """Rules cannot tell which of ranks that wait for one another is slow: their kernels can."""
    now = float(int(time.time()))
    _publish(prometheus, now)
    finding = {"cause": "gpu-compute", "team": "operations", "level": "L2", "verdict": "culprit"}
    series = [
        ("rank:argus_verdict:active", {**finding, "set": "tp:dp1"}),
        ("rank:argus_verdict:active", {**finding, "group": "dp:tp0", "cause": "link-slow"}),
        ("rank:argus_verdict:active", {"verdict": "abstain", "cause": "coverage", "group": "dp:tp0"}),
        *(
            ("rank:argus_evidence:lost_ratio", {"cause": "suspect-set", "set": f"tp:dp{dp}", "rank": rank})
            for dp, rank in ((1, "4"), (1, "5"), (0, "1"))
        ),
    ]
    prometheus.write(
        [
            remote_write.encode_series(
                remote_write.labels_of(name, training_job="llm", **labels), 1.0, round(now * 1000)
            )
            for name, labels in series
        ]
    )
    _asked_in_a_cycle(prometheus, now)
    found = prometheus.query('argus_l3_trace_info{suspect="true"}', now)
    assert {labels["rank"] for labels, _ in found} == {"3", "4", "5"}


def test_of_a_job_that_is_slow_as_a_whole_ranks_of_it_are_asked_for(prometheus: PrometheusServer) -> None:
    """Beside the rank that the worker accuses; the query of a card without a rank prefers the suspect."""
    now = float(int(time.time()))
    _publish(prometheus, now)
    found = {"training_job": "llm", "cause": "unexplained", "team": "infrastructure", "level": "L1"}
    labels = remote_write.labels_of("rank:argus_verdict:active", **found, verdict="culprit")
    prometheus.write([remote_write.encode_series(labels, 1.0, round(now * 1000))])
    _asked_in_a_cycle(prometheus, now)
    of_all = {labels["rank"] for labels, _ in prometheus.query("argus_l3_trace_info", now)}
    assert {"0", "3", "4"} <= of_all
    asked = table()["trace"]["other"].replace("<job>", 'training_job="llm"')
    assert [labels["rank"] for labels, _ in prometheus.query(asked, now)] == ["3"]


def test_an_exporter_that_is_away_changes_no_verdict(prometheus: PrometheusServer) -> None:
    """The cycle succeeds, its results are written, the failure is counted."""
    now = float(int(time.time()))
    _publish(prometheus, now)
    telemetry = _one_cycle(prometheus, "127.0.0.1:1", now)
    assert {labels["rank"] for labels, _ in prometheus.query("argus_l3_anomaly", now)} == {"3"}
    assert prometheus.query("argus_l3_trace_info", now) == []
    value = telemetry.registry.get_sample_value
    assert value("argus_l3_worker_trace_requests_total", {"result": "failure"}) == 1


def test_the_worker_serves_traces_beside_its_metrics(tmp_path: Path) -> None:
    """`serve` mounts /traces on the worker's own port, unless it is switched off."""

    async def status(serve: bool) -> int:
        config = Config(
            web=WebConfig(listen_address="127.0.0.1:0"),
            traces=TracesConfig(serve=serve, store=StoreConfig(folder=tmp_path)),
        )
        runner: web.AppRunner = await _listen(config, Telemetry(), Health(config))
        try:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with aiohttp.ClientSession() as session:
                async with session.get(url) as start:
                    assert ("/traces/TRAINING_JOB/" in await start.text()) == serve
                async with session.get(f"{url}/traces/llm/2026-11-21/") as answer:
                    return answer.status
        finally:
            await runner.cleanup()

    assert asyncio.run(status(True)) == 200
    assert asyncio.run(status(False)) == 404
