"""The worker's remote write: its spool, and delivery against a real Prometheus."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from bench.servers import PrometheusServer
from prometheus_client import CollectorRegistry

from argus_core.remote_write import encode_series, encode_stale_marker, labels_of
from argus_l3_worker.errors import ConfigError
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool

HOUR_MS = 3_600_000


# Spool


def test_the_spool_survives_a_restart_oldest_first(tmp_path: Path) -> None:
    """What one worker queued, the next one finds, in order."""
    first = Spool(tmp_path, 1000, HOUR_MS)
    for number in (1, 2, 3):
        first.append(b"%d" % number, 1_000 + number)
    first.close()
    second = Spool(tmp_path, 1000, HOUR_MS)
    found = []
    for entry in second.waiting():
        found.append(second.body(entry))
        second.remove(entry)
    assert found == [b"1", b"2", b"3"]
    assert list(tmp_path.glob("*.rw")) == []


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_full_spool_drops_the_oldest(tmp_path: Path, on_disk: bool) -> None:
    """Ten bytes hold two requests of five; the third pushes the first out, and says so."""
    spool = Spool(tmp_path if on_disk else None, 10, HOUR_MS)
    assert [spool.append(b"12345", 1), spool.append(b"23456", 2), spool.append(b"34567", 3)] == [0, 0, 1]
    assert [spool.body(entry) for entry in spool.waiting()] == [b"23456", b"34567"]


def test_requests_beyond_the_receivers_window_are_dropped() -> None:
    """Prometheus refuses samples over an hour old, so they need not wait."""
    spool = Spool(None, 1000, HOUR_MS)
    spool.append(b"old", 0)
    assert spool.trim(HOUR_MS + 1) == 1
    assert spool.waiting() == []


def test_two_workers_do_not_share_a_spool(tmp_path: Path) -> None:
    """The second is refused with what to do."""
    first = Spool(tmp_path, 10, HOUR_MS)
    with pytest.raises(ConfigError, match=r"another worker.*--spool\.dir"):
        Spool(tmp_path, 10, HOUR_MS)
    first.close()


# Delivery to a real Prometheus


@contextlib.asynccontextmanager
async def delivering(
    url: str, telemetry: Telemetry | None = None, spool: Spool | None = None
) -> AsyncIterator[Delivery]:
    """To the Prometheus at `url`."""
    config = WriteConfig(attempts=2, backoff_seconds=0.01)
    queue = Spool(None, 1 << 20, HOUR_MS) if spool is None else spool
    async with aiohttp.ClientSession() as session:
        yield Delivery(session, f"{url}/api/v1/write", config, queue, telemetry or Telemetry())


def counted(registry: CollectorRegistry, name: str, **labels: str) -> float:
    value = registry.get_sample_value(name, labels)
    assert value is not None
    return value


def now_ms() -> int:
    return int(time.time()) * 1000


def sample(rank: int, value: float, timestamp_ms: int) -> bytes:
    return encode_series(labels_of("argus_l3_rank_shift_ratio", rank=str(rank)), value, timestamp_ms)


@pytest.mark.servers
async def test_a_stale_marker_ends_the_series(prometheus: PrometheusServer) -> None:
    """The value is there until the marker, and gone from it on, without the lookback of five minutes."""
    then, now = now_ms() - 10_000, now_ms()
    labels = labels_of("argus_l3_anomaly", rank="3")
    async with delivering(prometheus.url) as delivery:
        assert await delivery.send([encode_series(labels, 0.25, then)])
        assert await delivery.send([encode_stale_marker(labels, now)])
    assert prometheus.query("argus_l3_anomaly", now / 1000 - 1) == [({"rank": "3"}, 0.25)]
    assert prometheus.query("argus_l3_anomaly", now / 1000) == []


@pytest.mark.servers
async def test_one_refused_series_does_not_take_the_others_with_it(prometheus: PrometheusServer) -> None:
    """Prometheus refuses a whole request for one sample; the sample is found, dropped and counted."""
    now, telemetry = now_ms(), Telemetry()
    async with delivering(prometheus.url, telemetry) as delivery:
        assert await delivery.send([sample(500, 1.0, now)])
        batch = [sample(rank, 2.0, now + 1000) for rank in range(1000)]
        batch[500] = sample(500, 2.0, now - 5_000)  # older than what is stored: out of order
        assert await delivery.send(batch)
    stored = prometheus.query("argus_l3_rank_shift_ratio == 2", now / 1000 + 1)
    assert len(stored) == 999
    assert counted(telemetry.registry, "argus_l3_worker_samples_total", result="refused") == 1.0
    assert counted(telemetry.registry, "argus_l3_worker_samples_total", result="written") == 1000.0


@pytest.mark.servers
@pytest.mark.parametrize(
    ("message", "requests"),
    [
        # The first one is refused for its type, and the bad series is found by six times two halves.
        ("prometheus.WriteRequest", 1 + 2 + 12),
        # Prometheus stores what it can, and says how much.
        ("io.prometheus.write.v2.Request", 2),
    ],
)
async def test_prometheus_gets_the_message_that_it_is_set_to_take(
    tmp_path: Path, message: str, requests: int
) -> None:
    """One bad of 64 in the second request: 63 are stored, in either version, and one is refused."""
    flag = f"--web.remote-write-receiver.accepted-protobuf-messages={message}"
    if (
        "accepted-protobuf-messages"
        not in subprocess.run(["prometheus", "--help"], capture_output=True, text=True, check=True).stdout
    ):
        pytest.skip("prometheus is older than 2.54")
    server = PrometheusServer(tmp_path, arguments=[flag])
    now, telemetry = now_ms(), Telemetry()
    try:
        server.start()
        async with delivering(server.url, telemetry) as delivery:
            assert await delivery.send([sample(50, 1.0, now)])
            batch = [sample(rank, 2.0, now + 1000) for rank in range(64)]
            batch[50] = sample(50, 2.0, now - 5_000)
            assert await delivery.send(batch)
        assert len(server.query("argus_l3_rank_shift_ratio == 2", now / 1000 + 1)) == 63
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=20) as page:
            counts = re.findall(
                r'^prometheus_http_requests_total\{code="\d+",handler="/api/v1/write"\} (\d+)$',
                page.read().decode(),
                re.MULTILINE,
            )
    finally:
        server.stop()
    assert sum(map(int, counts)) == requests
    assert counted(telemetry.registry, "argus_l3_worker_samples_total", result="refused") == 1.0
    assert counted(telemetry.registry, "argus_l3_worker_samples_total", result="written") == 64.0
    assert counted(telemetry.registry, "argus_l3_worker_samples_total", result="unwritten") == 0.0


@pytest.mark.servers
async def test_results_outlast_an_outage_of_receiver_and_worker(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    """Prometheus is down, results are spooled; a new worker delivers them, before live data."""
    folder = tmp_path / "spool"
    now = now_ms()
    prometheus.stop()
    first, telemetry = Spool(folder, 1 << 20, HOUR_MS), Telemetry()
    async with delivering(prometheus.url, telemetry, first) as delivery:
        assert not await delivery.send([sample(1, 1.0, now - 2_000)])
        assert not await delivery.send([sample(1, 2.0, now - 1_000)])
    assert counted(telemetry.registry, "argus_l3_worker_spooled_requests") == 2.0
    first.close()
    prometheus.start()
    second, telemetry = Spool(folder, 1 << 20, HOUR_MS), Telemetry()
    async with delivering(prometheus.url, telemetry, second) as delivery:
        assert await delivery.send([sample(1, 3.0, now)])
    second.close()
    assert counted(telemetry.registry, "argus_l3_worker_samples_total", result="written") == 3.0
    assert counted(telemetry.registry, "argus_l3_worker_samples_total", result="refused") == 0.0
    values = [prometheus.query("argus_l3_rank_shift_ratio", now / 1000 - back)[0][1] for back in (2, 1, 0)]
    assert values == [1.0, 2.0, 3.0]


@pytest.mark.servers
async def test_a_receiver_that_is_switched_off_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without --web.enable-remote-write-receiver nothing is lost, and the log says which flag is missing."""
    server = PrometheusServer(tmp_path, receiver=False)
    try:
        server.start()
        spool = Spool(None, 1 << 20, HOUR_MS)
        async with delivering(server.url, spool=spool) as delivery:
            assert not await delivery.send([sample(1, 1.0, now_ms())])
    finally:
        server.stop()
    assert len(spool) == 1
    assert "--web.enable-remote-write-receiver" in caplog.text
