"""Steps one by one in a real Prometheus."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from bench.servers import PrometheusServer

from argus_exporter.publish.config import RemoteWriteConfig
from exporter.exporter_process import Rank, config, exporter, wait_for


@pytest.mark.servers
def test_prometheus_has_every_step_at_its_end(tmp_path: Path):
    """One sample a step, exact, without a scrape."""
    server = PrometheusServer(tmp_path)
    try:
        server.start()
        write = RemoteWriteConfig(url=f"{server.url}/api/v1/write", interval_seconds=0.1)
        configuration = dataclasses.replace(config(tmp_path / "exporter.sock"), remote_write=write)
        with exporter(configuration) as running:
            rank = Rank(running.socket, 0)
            for number in range(1, 6):
                rank.iterate(seconds=number / 10)
                time.sleep(0.002)  # ends of steps lie apart by more than Prometheus' millisecond
            count = "count_over_time(argus_iteration_seconds[1m])"
            wait_for(
                lambda: server.query(count, time.time() + 1) == [({"training_job": "job", "rank": "0"}, 5.0)],
                "five samples",
                timeout_s=30,
            )
            total = server.query("sum_over_time(argus_iteration_seconds[1m])", time.time() + 1)[0][1]
            assert total == pytest.approx(1.5)
    finally:
        server.stop()
