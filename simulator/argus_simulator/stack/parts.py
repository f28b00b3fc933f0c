"""The parts of a stack: each is started with its configuration in the stack's folder, on a free port."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from argus_simulator.stack import alertmanager, pace, prometheus
from argus_simulator.stack.processes import Child, Server, start_server
from argus_simulator.stack.repository import find_repository, program, rule_files


@dataclass(frozen=True)
class Exporter:
    """An exporter that runs: the one of a (simulated) host, or of several."""

    server: Server
    socket: Path
    """Where producers reach it."""

    @property
    def address(self) -> str:
        """host:port that Prometheus scrapes."""
        return f"127.0.0.1:{self.server.port}"


WINDOWS: Final = {"seconds": 60.0, "settle_seconds": 2.0, "extremes_seconds": 60.0}
"""The exporter's own, in seconds of production; here they last `pace.SECOND_S`."""
STACKS_S: Final = 10
"""Window of stacks, likewise. Simulated ranks sample themselves: no py-spy starts."""
WORKER: Final = {"cycle": 60.0, "settle": 10.0, "history": 600.0}
"""The worker's own, likewise."""
TRACE_S: Final = 30.0
"""Of what comes before a verdict, so much goes into the traces that explain it; likewise."""


@dataclass(frozen=True)
class StackOptions:
    """What to start, and on what configuration; the defaults are the repository's, at the pace of `pace`."""

    l3_worker: bool = True
    repository: Path | None = None
    rules: tuple[Path, ...] | None = None
    alertmanager_config: Path | None = None
    say: Callable[[str], None] = lambda _: None
    """Told what is being started."""


class Parts:
    """Starts the parts, one method each; `cleanup` stops them, in reverse order.

    Args:
        folder: configurations, data and logs.
    """

    def __init__(self, folder: Path, options: StackOptions, cleanup: contextlib.ExitStack) -> None:
        self.folder = folder
        self.children: list[Child] = []
        self._options = options
        self._cleanup = cleanup

    @property
    def worker_config(self) -> Path:
        """What the worker is started with."""
        return self.folder / "l3-worker.yml"

    @property
    def trace_store(self) -> Path:
        """Where the exporters put traces and the worker finds them."""
        return self.folder / "traces"

    def alertmanager(self, webhook_url: str) -> Server:
        """With every receiver turned into the webhook."""
        source = self._options.alertmanager_config or alertmanager.configuration_file(self._repository())
        config = self.folder / "alertmanager.yml"
        config.write_text(alertmanager.configuration(source, webhook_url))
        binary = program("alertmanager", "prometheus-alertmanager")
        return self._server(
            "alertmanager",
            lambda port: [
                binary,
                f"--config.file={config}",
                f"--storage.path={self.folder / 'alertmanager'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",  # one alone: no gossip port
            ],
            "/-/ready",
        )

    def exporter(self, name: str, models: Mapping[str, str]) -> Exporter:
        """With a ring of its own and the stack's store; `models`: what each job trains, by its name."""
        config, socket = self.folder / f"{name}.yml", self.folder / f"{name}.sock"
        content: dict[str, Any] = {
            "windows": {key: seconds * pace.SECOND_S for key, seconds in WINDOWS.items()},
            "stacks": {"window_seconds": round(STACKS_S * pace.SECOND_S)},
            "traces": {"folder": str(self.folder / f"{name}-ring"), "store": self._store()},
        }
        if models:
            topology = self.folder / f"{name}-topology.yml"
            topology.write_text(yaml.safe_dump({job: {"model": model} for job, model in models.items()}))
            content["topology"] = {"file": str(topology)}
        config.write_text(yaml.safe_dump(content, sort_keys=False))
        binary = program("argus-exporter")
        server = self._server(
            name,
            lambda port: [
                binary,
                "serve",
                f"--config={config}",
                f"--socket={socket}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            "/metrics",
        )
        return Exporter(server, socket)

    def prometheus(self, targets: Path, alertmanager: str) -> Server:
        """With the rules; it scrapes what stands in the folder `targets`."""
        config = self.folder / "prometheus.yml"
        config.write_text(prometheus.configuration(self._rules(), targets, alertmanager))
        binary = program("prometheus")
        return self._server(
            "prometheus",
            lambda port: [
                binary,
                f"--config.file={config}",
                f"--storage.tsdb.path={self.folder / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
                f"--web.external-url=http://127.0.0.1:{port}",
                "--web.enable-remote-write-receiver",
                "--alertmanager.notification-queue-capacity=1000",
                f"--query.lookback-delta={pace.duration(pace.LOOKBACK_S)}",
            ],
            "/-/ready",
        )

    def l3_worker(self, prometheus_url: str) -> Server:
        """On a grid at our pace."""
        binary = program("argus-l3-worker")
        self.worker_config.write_text(
            yaml.safe_dump(
                {"traces": {"store": self._store(), "request": {"seconds": TRACE_S * pace.SECOND_S}}}
            )
        )
        return self._server(
            "l3-worker",
            lambda port: [
                binary,
                "serve",
                f"--config={self.worker_config}",
                f"--prometheus.url={prometheus_url}",
                *(f"--{name}={pace.duration(seconds * pace.SECOND_S)}" for name, seconds in WORKER.items()),
                f"--spool.dir={self.folder / 'spool'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            "/healthz",
        )

    def _repository(self) -> Path:
        return self._options.repository or find_repository()

    def _rules(self) -> list[Path]:
        rules = self._options.rules
        return list(rules) if rules is not None else rule_files(self._repository() / "rules" / "test")

    def _server(self, name: str, command: Callable[[int], list[str]], ready_path: str) -> Server:
        server = start_server(name, command, ready_path, self.folder / f"{name}.log")
        self._cleanup.callback(server.child.stop)
        self.children.append(server.child)
        return server

    def _store(self) -> dict[str, str]:
        return {"type": "folder", "folder": str(self.trace_store)}
