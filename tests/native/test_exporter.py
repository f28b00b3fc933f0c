"""From the fake GPU into a real exporter process, as a scrape sees it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.exporter_process import Samples, scrape, value, wait_for
from native import app
from native.builds import Build


@pytest.fixture
def exporter_url(socket: Path, tmp_path: Path) -> Iterator[str]:
    log = tmp_path / "exporter.log"
    command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(socket)]
    with log.open("w") as output:
        process = subprocess.Popen([*command, "--web.listen-address", "127.0.0.1:0"], stderr=output)
    try:
        wait_for(lambda: "serving metrics" in log.read_text(), "exporter up", 60)
        found = re.search(r"url=(\S+)/metrics", log.read_text())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_every_record_is_counted_at_the_exporter(plain: Build, socket: Path, exporter_url: str) -> None:
    """argus_records_total of the kernels channel, its state, cost and drops, of the right rank and job."""
    labels = {"training_job": "llama", "rank": "3", "channel": "kernels"}
    # 1700 with impossible times are the channel's own drops; too few to switch it off.
    actions = ("kernels:16000", "invalid:1700", "kernels:16000", "settle", "sleep:8000")
    process = app.start(plain, socket, *actions, RANK=3, WORLD_SIZE=8, ARGUS_JOB="llama")

    def told(samples: Samples) -> bool:
        return value(samples, "argus_records_dropped_total", **labels, reason="source") == 1700

    try:
        wait_for(lambda: told(scrape(exporter_url)), "records and drops in /metrics", 60)
        samples = scrape(exporter_url)
    finally:
        app.finish(process)
    assert value(samples, "argus_records_total", **labels) == 2 * 17250
    assert value(samples, "argus_channel_up", **labels) == 1
    cpu = value(samples, "argus_producer_cpu_seconds_total", **labels)
    assert cpu is not None
    assert 0 < cpu < 5
