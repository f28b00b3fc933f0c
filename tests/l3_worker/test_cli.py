"""The command line: usage errors, configuration, and `serve` as a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from bench.servers import PrometheusServer
from prometheus_client.parser import text_string_to_metric_families

from argus_core import catalogue
from argus_l3_worker.cli import main
from argus_l3_worker.serve import next_tick
from l3_worker.fleets import fleet
from l3_worker.published_fleet import Fleet


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("judge: {windows_needed: 9}", "judge.windows_needed cannot be set, it is always 2"),
        ("cycle_seconds: -1", "cycle_seconds is -1"),
        (
            "cycle_seconds: 91",
            "cycle_seconds is 91.0; allowed: up to 90, as the rules look back three minutes",
        ),
        ("prometheus: {url: localhost}", "http://"),
        ("web: {listen_address: '9878'}", "HOST:PORT"),
        ("cycle_seconds: soon", "cycle_seconds is 'soon'"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, named: str
) -> None:
    """Exit 2 and a line that names file and value."""
    file = tmp_path / "l3.yaml"
    file.write_text(content)
    assert main(["once", "--config", str(file)]) == 2
    message = capsys.readouterr().err
    assert str(file) in message and named in message


def test_a_flag_is_checked_like_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    """A cycle of no length: exit 2."""
    assert main(["once", "--cycle", "0s"]) == 2
    assert "command line: cycle_seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["once", "--time", "nan"], "'nan' is no time; allowed: Unix time in seconds"),
        (["once", "--time", "1e300"], "'1e300' is no time"),
        (["explain", "--job", "llm", "--time", "-1"], "'-1' is no time"),
        (["explain", "--job", "llm", "--since", "0s"], "--since is 0 s; allowed: longer than 0 s"),
        (["diagnose", "--job", "llm", "--since", "99999999d"], "and not before 1970"),
    ],
)
def test_a_time_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    """Exit 2 and a line, before anybody is asked."""
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    message = capsys.readouterr().err
    assert status == 2 and named in message and "Traceback" not in message


def test_prometheus_away_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    """What is so, why it matters, what to do."""
    assert main(["once", "--prometheus.url", "http://127.0.0.1:1"]) == 1
    message = capsys.readouterr().err
    assert "127.0.0.1:1" in message and "--prometheus.url" in message and "Traceback" not in message


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and a line with the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["serve", "--web.listen-address", address]) == 2
    assert f"cannot listen on {address}" in capsys.readouterr().err


def test_missed_ticks_are_skipped() -> None:
    """A cycle that took 130 s of a 60 s grid goes on at the next grid time."""
    assert next_tick(1000.0, 60.0) == 1020.0
    assert next_tick(1020.0 + 130.0, 60.0) == 1200.0


T = TypeVar("T")
_PATIENCE_SECONDS = 60.0
_RUN = "import sys; from argus_l3_worker.cli import main; sys.exit(main())"


class Worker:
    """`argus-l3-worker serve` as a process; what is waited for is looked at after each line that it logs."""

    def __init__(self, arguments: list[str]) -> None:
        self._lines: list[str] = []
        self._more = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUN, "serve", "--web.listen-address", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={key: value for key, value in os.environ.items() if key != "XDG_STATE_HOME"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()

    @property
    def log(self) -> str:
        with self._more:
            return "".join(self._lines)

    def wait_for(self, found: Callable[[], T | None], failure: str) -> T:
        """What `found` returns as soon as it is true: asked at once and after each further line."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            with self._more:
                seen = len(self._lines)
            if result := found():
                return result
            with self._more:
                left = deadline - time.monotonic()
                if not self._more.wait_for(lambda: len(self._lines) > seen, max(left, 0.0)):  # noqa: B023
                    raise AssertionError(f"{failure}\n{''.join(self._lines)}")

    def wait_for_series(self, condition: str, prometheus: PrometheusServer, present: bool) -> None:
        """Until `condition` has (or has no) result now."""
        self.wait_for(
            lambda: bool(prometheus.query(condition, time.time())) == present,
            f"{condition} still {'absent' if present else 'present'}",
        )

    @property
    def url(self) -> str:
        """The chosen address, from the log line that announces it."""
        return self.said(r"msg=listening url=(\S+)")

    def said(self, pattern: str) -> str:
        """Last group of the first log line that matches, once there is one."""
        match = self.wait_for(lambda: re.search(pattern, self.log), f"no {pattern} in the log")
        return match[match.re.groups]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return str(answer.read().decode())

    def value(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        raise AssertionError(f"no {name}{labels}")

    def stop(self) -> int:
        """End it and read the rest of its log."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(_PATIENCE_SECONDS)
        self._reader.join(_PATIENCE_SECONDS)
        return status


@pytest.fixture
def worker(prometheus: PrometheusServer) -> Iterator[Worker]:
    """A worker with a cycle of one second."""
    arguments = ["--prometheus.url", prometheus.url, "--cycle", "1s", "--settle", "0s", "--history", "60s"]
    running = Worker(arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(10)


@pytest.mark.servers
def test_serve_raises_and_ends_a_verdict(prometheus: PrometheusServer, worker: Worker) -> None:
    """Two slow windows raise the anomaly, two healthy ones end it by a stale marker; SIGTERM exits 0."""
    job = Fleet(prometheus)
    anomaly = 'argus_l3_anomaly{rank="3",verdict="culprit",cause="gpu-compute",kernel="all"}'
    judged = "argus_l3_rank_shift_ratio"
    slow = {"3": 1.5}
    job.publish(time.time(), 64, fleet(8, 1, slow))
    worker.wait_for_series(judged, prometheus, present=True)
    job.publish(time.time(), 128, fleet(8, 2, slow))
    worker.wait_for_series(anomaly, prometheus, present=True)
    job.publish(time.time(), 192, fleet(8, 3))
    worker.wait_for_series(f'{judged}{{rank="3"}} < 0.1', prometheus, present=True)
    job.publish(time.time(), 256, fleet(8, 4))
    worker.wait_for_series(anomaly, prometheus, present=False)

    assert worker.get("/healthz") == "ok"
    assert worker.value("argus_l3_worker_cycles_total", result="success") > 0
    assert worker.value("argus_l3_worker_cycles_total", result="failure") == 0
    assert worker.value("argus_l3_worker_samples_total", result="refused") == 0
    assert worker.stop() == 0
    assert "Traceback" not in worker.log
    assert len(re.findall(r"msg=anomaly .*kernel=all", worker.log)) == 1
    assert len(re.findall(r'msg="anomaly ended" subject="llm 3 all all gpu-compute"', worker.log)) == 1


@pytest.mark.servers
def test_serve_goes_on_after_an_outage(prometheus: PrometheusServer, worker: Worker) -> None:
    """Prometheus gone: cycles fail with a log line. Back again: cycles succeed, and age is published."""
    assert worker.url
    worker.wait_for_series("argus_l3_last_success_timestamp_seconds", prometheus, present=True)
    before = worker.value("argus_l3_worker_cycles_total", result="success")
    prometheus.stop()
    worker.wait_for(
        lambda: worker.value("argus_l3_worker_cycles_total", result="failure") > 0, "no cycle has failed"
    )
    prometheus.start()
    worker.wait_for(
        lambda: worker.value("argus_l3_worker_cycles_total", result="success") > before,
        "no cycle has succeeded since",
    )
    assert "cycle failed" in worker.log
    assert worker.get("/healthz") == "ok"


@pytest.mark.servers
def test_metrics_are_those_of_the_catalogue(worker: Worker) -> None:
    """Every family on /metrics is in the catalogue, with its type and help."""
    for family in text_string_to_metric_families(worker.get("/metrics")):
        name = family.name + ("_total" if family.type == "counter" else "")
        if not name.endswith("_created"):
            known = catalogue.BY_NAME[name]
            assert (known.type, known.help) == (family.type, family.documentation)


@pytest.mark.servers
def test_sighup_takes_new_settings_and_refuses_wrong_ones(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    """A threshold is taken over while verdicts go on; a typo is refused; a receiver needs a restart."""
    file = tmp_path / "l3.yaml"
    settings = f"prometheus: {{url: '{prometheus.url}'}}\ncycle_seconds: 1\nsettle_seconds: 0\n"
    file.write_text(settings)
    running = Worker(["--config", str(file)])
    try:
        assert running.url
        file.write_text(settings + "judge: {kernel_effect: 0.2}\nwrite: {url: 'http://other/api/v1/write'}\n")
        running.process.send_signal(signal.SIGHUP)
        assert running.said(r'msg="configuration reloaded" changed=(.*)') == "judge.kernel_effect"
        assert "write.url" in running.said(r"need a restart keep their value. keys=(.*)")
        assert running.value("argus_l3_worker_config_last_reload_successful") == 1
        file.write_text(settings + "judge: {kernel_efect: 0.2}\n")
        running.process.send_signal(signal.SIGHUP)
        assert "did you mean judge.kernel_effect?" in running.said(r"the old one goes on. error=(.*)")
        assert running.value("argus_l3_worker_config_last_reload_successful") == 0
        before = running.value("argus_l3_worker_cycles_total", result="success")
        running.wait_for(
            lambda: running.value("argus_l3_worker_cycles_total", result="success") > before,
            "no cycle has succeeded since",
        )
        assert running.stop() == 0
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(10)
