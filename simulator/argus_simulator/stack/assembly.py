"""The whole stack on 127.0.0.1, as a context manager: for the demo and for end-to-end tests."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import yaml

from argus_simulator.stack import alertmanager, prometheus
from argus_simulator.stack.processes import Child, Server, start_server
from argus_simulator.stack.prometheus import Alert, PrometheusApi, Samples
from argus_simulator.stack.repository import find_repository, program, rule_files
from argus_simulator.stack.signals import StopSignals
from argus_simulator.stack.waiting import wait_for
from argus_simulator.stack.webhook import Notification, WebhookReceiver

T = TypeVar("T")


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


EXPORTER_CONFIG = """\
windows:
  seconds: 4
  settle_seconds: 0.5
  extremes_seconds: 5
"""
"""Windows that fit steps of a quarter of a second and scrapes of one second."""

TRACE_SECONDS = 4
"""Of what comes before a verdict, so much goes into the traces that explain it."""

_SCRAPED_S = 20.0


@dataclass(frozen=True)
class StackOptions:
    """What to start, and on what configuration; the defaults are the repository's test profile."""

    l3_worker: bool = True
    repository: Path | None = None
    rules: tuple[Path, ...] | None = None
    alertmanager_config: Path | None = None
    exporter_config: str = EXPORTER_CONFIG
    say: Callable[[str], None] = lambda _: None
    """Told what is being started."""


class Stack:
    """Exporter, Prometheus with the test-profile rules, Alertmanager, L3 worker and a webhook receiver.

    Everything runs between `__enter__` and `__exit__`: also on Ctrl-C, SIGTERM and exceptions all parts are
    stopped in reverse order, and should this process be killed, the kernel ends them. Enter it from a thread
    that lives as long as the stack (see `processes.Child`), best the main thread: only there can SIGTERM be
    turned into an orderly end.
    """

    def __init__(self, options: StackOptions | None = None) -> None:
        self._options = options or StackOptions()
        self._cleanup = contextlib.ExitStack()
        self._signals = StopSignals()
        self._children: list[Child] = []
        self._exporters: list[str] = []

    def __enter__(self) -> Stack:
        self._signals.raise_them()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; a second call does nothing."""
        self._signals.put_off()
        try:
            self._cleanup.close()
        finally:
            self._signals.restore()

    # -- what runs where ------------------------------------------------------------------------------------

    folder: Path
    """Configurations, data and logs; removed at the end."""
    exporter: Server
    prometheus: Server
    alertmanager: Server
    l3_worker: Server | None = None
    webhook: WebhookReceiver

    @property
    def socket(self) -> Path:
        """Where producers reach the exporter."""
        return self.folder / "exporter.sock"

    @property
    def worker_config(self) -> Path:
        """What the worker was started with; its other commands find the traces by it."""
        return self.folder / "l3-worker.yml"

    @property
    def trace_store(self) -> Path:
        """Where the exporter puts traces and the worker finds them."""
        return self.folder / "traces"

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each part, by its name."""
        return {child.name: child.pid for child in self._children}

    # -- questions ------------------------------------------------------------------------------------------

    def query(self, promql: str) -> Samples:
        """(labels, value) of an instant query."""
        return self._api.query(promql)

    def alerts(self) -> list[Alert]:
        """Pending and firing alerts, as Prometheus sees them now."""
        return self._api.alerts()

    def rule_errors(self) -> list[str]:
        """Rules whose last evaluation failed, with the reason."""
        return self._api.rule_errors()

    def notifications(self) -> list[Notification]:
        """What Alertmanager has delivered so far, one entry an alert."""
        return self.webhook.notifications()

    def missed_evaluations(self) -> float:
        """Share of rule evaluations that Prometheus had no time for, so far."""
        return self._api.missed_evaluations()

    def check(self) -> None:
        """Raise where a part has died.

        Raises:
            StackError: with the end of its log.
        """
        for child in self._children:
            child.check()

    def wait_for(self, condition: Callable[[], T], timeout_s: float, what: str) -> T:
        """The condition's first truthy value.

        Raises:
            WaitTimeout: it stayed falsy.
            StackError: a part of the stack died meanwhile.
        """
        return wait_for(condition, timeout_s, what, every_s=0.2, meanwhile=self.check)

    def scrape(self, address: str) -> None:
        """Have Prometheus scrape another exporter, at host:port, beside the stack's own."""
        self._exporters.append(address)
        prometheus.write_target(self.folder / "targets", "argus-exporter", *self._exporters)

    def scrape_no_more(self, address: str) -> None:
        """Take an exporter from what Prometheus scrapes: from its side, a host that no scrape reaches."""
        self._exporters.remove(address)
        prometheus.write_target(self.folder / "targets", "argus-exporter", *self._exporters)

    def add_exporter(self, name: str, models: Mapping[str, str] | None = None) -> Exporter:
        """Start another exporter and have it scraped.

        Args:
            models: what each job trains, by its name; jobs alike are compared with one another's past.
        """
        added = self._start_exporter(name, models or {})
        self.scrape(added.address)
        return added

    def start_child(
        self,
        name: str,
        command: list[str],
        *,
        environment: dict[str, str] | None = None,
        folder: Path | None = None,
        orderly_death: bool = False,
    ) -> Child:
        """Run something beside the stack, such as a training job: stopped first, ignored by `check`."""
        child = Child(
            name,
            command,
            self.folder / f"{name}.log",
            environment=environment,
            folder=folder,
            orderly_death=orderly_death,
        )
        self._cleanup.callback(child.stop)
        return child

    # -- start ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        options = self._options
        self.folder = Path(tempfile.mkdtemp(prefix="argus-"))
        self._cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
        targets = self.folder / "targets"
        targets.mkdir()
        rules = list(options.rules) if options.rules is not None else rule_files(self._repository())
        self.webhook = WebhookReceiver()
        self._cleanup.callback(self.webhook.stop)

        options.say("starting Alertmanager")
        self.alertmanager = self._start_alertmanager()
        options.say("starting the exporter")
        first = self._start_exporter("exporter", {})
        self.exporter = first.server
        self.scrape(first.address)
        options.say("starting Prometheus")
        self.prometheus = self._start_prometheus(rules, targets)
        self._api = PrometheusApi(self.prometheus.url)
        if options.l3_worker:
            options.say("starting the L3 worker")
            self.l3_worker = self._start_l3_worker()
            prometheus.write_target(targets, "argus-l3-worker", f"127.0.0.1:{self.l3_worker.port}")
        # The worker answers already; Prometheus takes up to 5 s to notice its target, which nobody needs.
        self.wait_for(lambda: self.query('up{job="argus-exporter"} == 1'), _SCRAPED_S, "the first scrape")

    def _repository(self) -> Path:
        return self._options.repository or find_repository()

    def _server(self, name: str, command: Callable[[int], list[str]], ready_path: str) -> Server:
        server = start_server(name, command, ready_path, self.folder / f"{name}.log")
        self._cleanup.callback(server.child.stop)
        self._children.append(server.child)
        return server

    def _start_alertmanager(self) -> Server:
        source = self._options.alertmanager_config or alertmanager.configuration_file(self._repository())
        config = self.folder / "alertmanager.yml"
        config.write_text(alertmanager.configuration(source, self.webhook.url))
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

    def _start_exporter(self, name: str, models: Mapping[str, str]) -> Exporter:
        config, socket = self.folder / f"{name}.yml", self.folder / f"{name}.sock"
        content = yaml.safe_load(self._options.exporter_config)
        content.setdefault("traces", {"folder": str(self.folder / f"{name}-ring"), "store": self._store()})
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

    def _start_prometheus(self, rules: list[Path], targets: Path) -> Server:
        config = self.folder / "prometheus.yml"
        config.write_text(prometheus.configuration(rules, targets, f"127.0.0.1:{self.alertmanager.port}"))
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
            ],
            "/-/ready",
        )

    def _store(self) -> dict[str, str]:
        return {"type": "folder", "folder": str(self.trace_store)}

    def _start_l3_worker(self) -> Server:
        binary = program("argus-l3-worker")
        self.worker_config.write_text(
            yaml.safe_dump({"traces": {"store": self._store(), "request": {"seconds": TRACE_SECONDS}}})
        )
        return self._server(
            "l3-worker",
            lambda port: [
                binary,
                "serve",
                f"--config={self.worker_config}",
                f"--prometheus.url={self.prometheus.url}",
                "--cycle=2s",
                "--settle=1s",
                "--history=60s",
                f"--spool.dir={self.folder / 'spool'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            "/healthz",
        )
