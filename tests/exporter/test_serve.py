"""`argus-exporter serve` as a process: signals, configuration, discovery file."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.exporter_process import Rank, scrape, value, wait_for


class Serving:
    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = folder / "exporter.sock"
        self.log = folder / "exporter.log"
        command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(self.socket)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--web.listen-address", "127.0.0.1:0", *options], stderr=log
            )
        wait_for(lambda: "serving metrics" in self.log.read_text(), f"exporter up: {self.log.read_text()}")
        found = re.search(r"url=(\S+)/metrics", self.log.read_text())
        assert found is not None
        self.url = found[1]


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "exporter.yaml"
    file.write_text("routing: {special: world}\n")
    return file


@pytest.fixture
def serving(tmp_path: Path, config_file: Path) -> Iterator[Serving]:
    running = Serving(tmp_path, "--config", str(config_file), "--sd.file", str(tmp_path / "sd.json"))
    yield running
    running.process.kill()
    running.process.wait()


def test_sigterm_ends_it_cleanly(tmp_path: Path, serving: Serving):
    """Exit status 0; socket and discovery file are gone."""
    serving.process.send_signal(signal.SIGTERM)
    assert serving.process.wait(timeout=10) == 0
    assert not serving.socket.exists()
    assert not (tmp_path / "sd.json").exists()


def test_the_discovery_file_names_the_target(tmp_path: Path, serving: Serving):
    """What Prometheus' file_sd reads: the address that is served."""
    (entry,) = json.loads((tmp_path / "sd.json").read_text())
    assert [f"http://{target}" for target in entry["targets"]] == [serving.url]


def test_sighup_takes_a_new_configuration(config_file: Path, serving: Serving):
    """Ranks that are connected are routed by the new table from then on."""
    rank = Rank(serving.socket, 0)
    rank.iterate(phase="special")
    count = "argus_phase_duration_seconds_count"
    wait_for(lambda: value(scrape(serving.url), count, group="world") == 1, "first routing")
    config_file.write_text("routing: {special: dp}\n")
    serving.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "configuration reloaded" in serving.log.read_text(), "reload")
    rank.iterate(phase="special")
    wait_for(lambda: value(scrape(serving.url), count, group="dp") == 1, "second routing")


def test_a_wrong_configuration_is_refused_and_the_old_one_kept(config_file: Path, serving: Serving):
    """One log line with file and key, a metric to alert on, and everything goes on."""
    config_file.write_text("routng: {}\n")
    serving.process.send_signal(signal.SIGHUP)
    metric = "argus_exporter_config_last_reload_successful"
    wait_for(lambda: value(scrape(serving.url), metric) == 0, "refusal")
    assert "unknown key routng; did you mean routing?" in serving.log.read_text()
    assert "Traceback" not in serving.log.read_text()


def test_kill_9_neither_blocks_producers_nor_hides_the_loss(tmp_path: Path, serving: Serving):
    """Steps go on at once without an exporter; the next one gets the totals, the names and the count lost."""
    rank = Rank(serving.socket, 0, patience_s=0.0)
    rank.iterate(kernels=50)
    wait_for(lambda: value(scrape(serving.url), "argus_rank_up", rank="0") == 1, "rank 0")
    serving.process.kill()
    serving.process.wait()
    slowest = 0.0
    for _ in range(200):
        began = time.perf_counter()
        rank.iterate(kernels=50)
        slowest = max(slowest, time.perf_counter() - began)
    assert slowest < 0.5  # a blocked send would wait for a reader that never comes
    second = Serving(tmp_path)
    try:

        def back() -> bool:
            rank.iterate(kernels=50)
            return value(scrape(second.url), "argus_rank_up", rank="0") == 1

        wait_for(back, "rank 0 reconnected")
        count = "argus_iteration_duration_seconds_count"
        wait_for(lambda: value(scrape(second.url), count, rank="0") == rank.step, "the producer's totals")
        dropped = "argus_records_dropped_total"
        lost = value(scrape(second.url), dropped, rank="0", reason="socket")
        assert lost is not None
        assert lost >= 200 * 50
    finally:
        second.process.kill()
        second.process.wait()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--config", "absent.yaml"), "absent.yaml: cannot read"),
        (("--web.listen-address", "nonsense"), "listen address 'nonsense'"),
        (("--web.listen-address", "127.0.0.1:99999"), "a port of 0 to 65535"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(tmp_path: Path, options: tuple[str, ...], says: str):
    """No traceback; the message says what is allowed."""
    command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(tmp_path / "s")]
    result = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path
    )
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert says in line
