"""The whole stack on 127.0.0.1, as a context manager: for the demo and for end-to-end tests."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from argus_simulator.stack import prometheus
from argus_simulator.stack.parts import Exporter, Parts, StackOptions
from argus_simulator.stack.processes import Child, Server, kill_server, start_again
from argus_simulator.stack.prometheus import Alert, PrometheusApi, Samples
from argus_simulator.stack.signals import StopSignals
from argus_simulator.stack.waiting import wait_for
from argus_simulator.stack.webhook import Notification, WebhookReceiver

T = TypeVar("T")

_SCRAPED_S = 20.0


class Stack:
    """Exporter, Prometheus with the rules of `rules/test`, Alertmanager, L3 worker and a webhook receiver.

    Everything runs between `__enter__` and `__exit__`: also on Ctrl-C, SIGTERM and exceptions all parts are
    stopped in reverse order, and should this process be killed, the kernel ends them. Enter it from a thread
    that lives as long as the stack (see `processes.Child`), best the main thread: only there can SIGTERM be
    turned into an orderly end.
    """

    def __init__(self, options: StackOptions | None = None) -> None:
        self._options = options or StackOptions()
        self._cleanup = contextlib.ExitStack()
        self._signals = StopSignals()
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
        return self._parts.worker_config

    @property
    def trace_store(self) -> Path:
        """Where the exporter puts traces and the worker finds them."""
        return self._parts.trace_store

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each part, by its name."""
        return {child.name: child.pid for child in self._parts.children}

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
        for child in self._parts.children:
            child.check()

    def wait_for(self, condition: Callable[[], T], timeout_s: float, what: str) -> T:
        """The condition's first truthy value.

        Raises:
            WaitTimeout: it stayed falsy.
            StackError: a part of the stack died meanwhile.
        """
        return wait_for(condition, timeout_s, what, every_s=0.2, meanwhile=self.check)

    def restart(self, server: Server, meanwhile: Callable[[], None] = lambda: None) -> Server:
        """Kill a part outright, and start it again on its port.

        Args:
            meanwhile: called while it is away.
        """
        kill_server(server)
        self._parts.children.remove(server.child)
        meanwhile()
        again = start_again(server)
        self._cleanup.callback(again.child.stop)
        self._parts.children.append(again.child)
        for name in ("exporter", "prometheus", "alertmanager", "l3_worker"):
            if getattr(self, name) is server:
                setattr(self, name, again)
        return again

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
        added = self._parts.exporter(name, models or {})
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
        self._parts = Parts(self.folder, options, self._cleanup)
        targets = self.folder / "targets"
        targets.mkdir()
        self.webhook = WebhookReceiver()
        self._cleanup.callback(self.webhook.stop)

        options.say("starting Alertmanager")
        self.alertmanager = self._parts.alertmanager(self.webhook.url)
        options.say("starting the exporter")
        first = self._parts.exporter("exporter", {})
        self.exporter = first.server
        self.scrape(first.address)
        options.say("starting Prometheus")
        self.prometheus = self._parts.prometheus(targets, f"127.0.0.1:{self.alertmanager.port}")
        self._api = PrometheusApi(self.prometheus.url)
        if options.l3_worker:
            options.say("starting the L3 worker")
            self.l3_worker = self._parts.l3_worker(self.prometheus.url)
            prometheus.write_target(targets, "argus-l3-worker", f"127.0.0.1:{self.l3_worker.port}")
        # The worker answers already; Prometheus takes up to 5 s to notice its target, which nobody needs.
        self.wait_for(lambda: self.query('up{job="argus-exporter"} == 1'), _SCRAPED_S, "the first scrape")
