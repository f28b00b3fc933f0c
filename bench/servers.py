"""A real Prometheus of one's own, for benches and tests that write to it and ask it."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argus_core import remote_write
from argus_simulator.stack.ports import free_port

_READY_SECONDS = 30.0
_WRITE_SECONDS = 120.0
"""Generous: a server that cuts its blocks on a busy machine takes no samples meanwhile."""


@dataclass
class PrometheusServer:
    """One Prometheus with the remote write receiver on, storing under `folder`.

    Attributes:
        arguments: further flags, such as `--web.config.file=...`.
        rules: files of rules, patterns allowed.
        evaluation_interval: of groups of rules, and steps of subqueries, that name none.
        context, headers: how to reach it where it serves TLS or asks for a password.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    receiver: bool = True
    arguments: Sequence[str] = ()
    rules: Sequence[Path] = ()
    context: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    evaluation_interval: str = "1m"
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self.context is None else 'https'}://127.0.0.1:{self.port}"

    def start(self) -> PrometheusServer:
        """Start and wait until it is ready."""
        config = self.folder / "prometheus.yml"
        intervals = {"scrape_interval": "1h", "evaluation_interval": self.evaluation_interval}
        content = {"global": intervals, "rule_files": [str(path) for path in self.rules]}
        config.write_text(json.dumps(content))  # which is YAML
        self._launch(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                *(["--web.enable-remote-write-receiver"] if self.receiver else []),
                *self.arguments,
            ],
            "/-/ready",
        )
        return self

    def _launch(self, command: Sequence[str], ready: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            with contextlib.suppress(OSError), self._open(urllib.request.Request(self.url + ready), 1):
                return
            time.sleep(0.05)
        raise AssertionError(f"{command[0]} is not ready after {_READY_SECONDS} s")

    def stop(self) -> None:
        """Stop this process, by its id, and wait for it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def kill(self) -> None:
        """End this process, by its id, without a chance to say goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def flush(self) -> None:
        """What was written can be read: at once, here."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Let it take another configuration; it needs `--web.enable-lifecycle`."""
        (self.folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # which is YAML
        self._open(urllib.request.Request(f"{self.url}/-/reload", method="POST"), 60).close()

    def own_metrics(self) -> list[str]:
        """What it says of itself, by line."""
        with self._open(urllib.request.Request(f"{self.url}/metrics"), 60) as answer:
            return str(answer.read().decode()).splitlines()

    def refusals(self) -> float:
        """Samples that this process has refused as duplicates or out of order."""
        values = (line for line in self.own_metrics() if re.split(r"[{ ]", line)[0] in _REFUSALS)
        return sum(float(line.rsplit(" ", 1)[1]) for line in values)

    def write(self, series: Sequence[bytes]) -> None:
        """Store encoded series."""
        request = urllib.request.Request(
            f"{self.url}/api/v1/write", data=remote_write.pack(series), headers=dict(remote_write.HEADERS)
        )
        with self._open(request, _WRITE_SECONDS):
            pass

    def query(self, query: str, at: float) -> list[tuple[dict[str, str], float]]:
        """(labels without the name, value) of an instant query."""
        arguments = urllib.parse.urlencode({"query": query, "time": at})
        request = urllib.request.Request(f"{self.url}/api/v1/query?{arguments}")
        with self._open(request, 20) as answer:
            result: Any = json.load(answer)["data"]["result"]
        return [
            ({k: v for k, v in element["metric"].items() if k != "__name__"}, float(element["value"][1]))
            for element in result
        ]

    def _open(self, request: urllib.request.Request, timeout: float) -> Any:
        for name, value in self.headers.items():
            request.add_header(name, value)
        return urllib.request.urlopen(request, timeout=timeout, context=self.context)


_REFUSALS = (
    "prometheus_target_scrapes_sample_out_of_order_total",
    "prometheus_target_scrapes_sample_duplicate_timestamp_total",
    "prometheus_tsdb_out_of_order_samples_total",
    "prometheus_tsdb_too_old_samples_total",
    "vm_rows_ignored_total",
)


def process_metric(server: PrometheusServer, name: str) -> float:
    """One number that a server says of its process."""
    return float(next(line.split()[1] for line in server.own_metrics() if line.startswith(name + " ")))


@dataclass
class VictoriaMetricsServer(PrometheusServer):
    """One VictoriaMetrics, storing under `folder`; it speaks the same protocols."""

    def start(self) -> VictoriaMetricsServer:
        """Start and wait until it is ready."""
        self._launch(
            [
                "victoria-metrics",
                f"-storageDataPath={self.folder / 'data'}",
                f"-httpListenAddr=127.0.0.1:{self.port}",
                "-search.latencyOffset=0s",
                "-retentionPeriod=1",
                *self.arguments,
            ],
            "/health",
        )
        return self

    def flush(self) -> None:
        """It answers from what is up to a second old, else."""
        with self._open(urllib.request.Request(f"{self.url}/internal/force_flush"), 20):
            pass

    def kill(self) -> None:
        """Ends it in an orderly way: what it took in its last seconds lies in memory alone, by its design, so
        that after SIGKILL samples are gone that it had acknowledged."""
        self.stop()
