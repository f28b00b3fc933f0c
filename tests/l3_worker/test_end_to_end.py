"""The worker against a real Prometheus: triples in, verdicts out."""

from __future__ import annotations

import json
import time

import pytest
from bench.servers import PrometheusServer

from argus_l3_worker.cli import main
from l3_worker.fleets import FLASH, GEMM, NORM, fleet
from l3_worker.published_fleet import Fleet

pytestmark = pytest.mark.servers


def _publish_windows(server: PrometheusServer, now: float, slow: dict[str, float] | None) -> None:
    """Three windows of 64 steps, 60 s apart, each scraped every 15 s; the newest ends at `now`."""
    job = Fleet(server)
    for window in range(3):
        for scrape in range(4):
            at = now - 60 * (2 - window) - 15 * (3 - scrape)
            job.publish(at, 64 * (window + 1), fleet(8, seed=window, slow=slow))


def test_once_names_the_slow_rank_and_writes_it_back(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 3 with all compute kernels 20 % slower is the only culprit, in the table and in Prometheus."""
    now = float(int(time.time()))
    _publish_windows(prometheus, now, {"3": 1.2})

    assert main(["once", "--prometheus.url", prometheus.url, "--time", str(now), "--write"]) == 0

    printed = capsys.readouterr().out
    assert "culprits: rank 3" in printed
    anomalies = prometheus.query("argus_l3_anomaly", now)
    assert {labels["rank"] for labels, _ in anomalies} == {"3"}
    by_kernel = {labels["kernel"]: value for labels, value in anomalies}
    assert set(by_kernel) == {"all", GEMM[0], FLASH[0], NORM[0]}
    assert by_kernel["all"] == pytest.approx(0.2, abs=0.01)
    ((labels, shift),) = prometheus.query('argus_l3_rank_shift_ratio{rank="3"}', now)
    assert labels == {"training_job": "llm", "rank": "3", "role": "pp0.tp0"}
    assert shift == pytest.approx(0.2, abs=0.01)
    # Of the kernels that deviate, and of no other.
    assert len(prometheus.query("argus_l3_kernel_w1_seconds", now)) == 8 * 3
    assert len(prometheus.query("argus_l3_kernel_w1_iqr_seconds > 0", now)) == 3
    ((_, above),) = prometheus.query(
        f'argus_l3_kernel_w1_seconds{{rank="3",kernel="{GEMM[0]}"}} > bool on (kernel, stream) group_left '
        "argus_l3_kernel_w1_fence_seconds",
        now,
    )
    assert above == 1.0


def test_a_worker_for_one_job_ends_nothing_of_others(prometheus: PrometheusServer) -> None:
    """Neither by a look, which writes nothing, nor where it takes over from the worker before it."""
    now = float(int(time.time()))
    _publish_windows(prometheus, now - 60.0, {"3": 1.2})
    of_all = ["once", "--prometheus.url", prometheus.url, "--write"]
    assert main([*of_all, "--time", str(now - 60.0)]) == 0
    other = ["once", "--prometheus.url", prometheus.url, "--training-job", "other", "--time", str(now)]
    assert main(other) == main([*other, "--write"]) == 0
    assert {labels["rank"] for labels, _ in prometheus.query("argus_l3_anomaly", now)} == {"3"}


def test_once_on_a_healthy_fleet_finds_nothing(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight healthy ranks: no anomaly, no abstention."""
    now = float(int(time.time()))
    _publish_windows(prometheus, now, None)

    assert main(["once", "--prometheus.url", prometheus.url, "--time", str(now), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["verdicts"], found["abstentions"], found["not_judged"]) == ([], [], [])
    assert found["windows_judged"] == 3
    assert prometheus.query("argus_l3_anomaly", now) == []
