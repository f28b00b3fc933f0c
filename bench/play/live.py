"""The same jobs on the real stack in real time: what the player is compared with.

Real exporters, one a host, a real Prometheus that scrapes each every 15 s and evaluates the rules as they are
shipped, and the lab's own player. What it did when (scrapes, evaluations, the begin of each job) is read from
it, so that the play of the same jobs can do it at the same moments.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from argus_core import wire
from argus_core.link import Link
from argus_simulator.fast_play.alerts import Spell
from argus_simulator.fast_play.history import SCRAPE_MS, instance_of
from argus_simulator.fast_play.rules import EVALUATION_INTERVAL, read_rules
from argus_simulator.lab import Scenario
from argus_simulator.player import Player, Progress
from argus_simulator.stack.processes import Server, start_server
from argus_simulator.stack.repository import program

_PATIENCE_S: Final = 2.0
_FOREVER_S: Final = 7 * 86_400.0


@dataclass(frozen=True)
class Lived:
    """What happened.

    Attributes:
        begin_ns: Unix time at which each job began.
        end_ms: when the alerts were read; all jobs were running still.
        scrape_offsets_ms: by instance, within 15 s.
        group_offsets_ms: by the name of the file and of the group, within its interval.
        lag_s: by how much the players were late at worst.
        errors: of rules, at their last evaluation.
    """

    begin_ns: dict[str, int]
    end_ms: int
    scrape_offsets_ms: dict[str, int]
    group_offsets_ms: dict[tuple[str, str], int]
    spells: list[Spell]
    of_vmalert: list[Spell]
    lag_s: float
    errors: dict[str, str]


def live(
    jobs: Mapping[str, Scenario],
    files: Sequence[Path],
    seconds: float,
    *,
    worker: bool = False,
    vmalert: bool = False,
) -> Lived:
    """Play jobs, by their names, side by side for so long.

    Args:
        worker: an L3 worker judges them too.
        vmalert: it evaluates the rules on the same samples too.
    """
    servers: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="argus-live-") as name:
        folder = Path(name)
        try:
            return _live(jobs, files, seconds, folder, servers, worker, vmalert)
        finally:
            for server in reversed(servers):
                server.child.stop()


def _live(
    jobs: Mapping[str, Scenario],
    files: Sequence[Path],
    seconds: float,
    folder: Path,
    servers: list[Server],
    worker: bool,
    vmalert: bool,
) -> Lived:
    sockets: dict[str, Path] = {}
    targets = []
    for job, scenario in jobs.items():
        topology = scenario.topology.build()
        for host in range(topology.host_index(topology.ranks - 1) + 1):
            instance = instance_of(job, host)
            sockets[instance] = folder / f"{len(sockets)}.sock"
            exporter = _exporter(instance, sockets[instance], folder)
            servers.append(exporter)
            targets.append({"targets": [f"127.0.0.1:{exporter.port}"], "labels": {"instance": instance}})
    victoria = _victoria(folder) if vmalert else None
    servers += [] if victoria is None else [victoria]
    prometheus = _prometheus(targets, files, folder, victoria)
    servers.append(prometheus)
    if worker:
        servers.append(_worker(prometheus.url, folder))
    if victoria is not None:
        servers.append(_alertmanager(folder))
        servers.append(_vmalert(files, folder, victoria, servers[-1]))
    running = [_Running(job, scenario, sockets) for job, scenario in jobs.items()]
    for one in running:
        one.thread.start()
    try:
        time.sleep(seconds)
        for server in servers:
            server.child.check()
        return _read(prometheus.url, running, None if victoria is None else victoria.url)
    finally:
        for one in running:
            one.player.stop()
        for one in running:
            one.thread.join(20)


class _Running:
    """A job that is being played."""

    def __init__(self, job: str, scenario: Scenario, sockets: Mapping[str, Path]) -> None:
        self.job, self.worst_lag_s = job, 0.0
        topology = scenario.topology.build()

        def link(rank: int, hello: Callable[[], wire.Hello], page: int, nccl: int | None) -> Link:
            socket = sockets[instance_of(job, topology.host_index(rank))]
            return Link(socket, hello, patience_s=_PATIENCE_S, page_fd=page, nccl_fd=nccl)

        self.player = Player(scenario.job(), job, Path("one a host"), on_step=self._after, link=link)
        self.thread = threading.Thread(target=self.player.play, args=(_FOREVER_S,), daemon=True)

    def _after(self, progress: Progress) -> None:
        self.worst_lag_s = max(self.worst_lag_s, progress.lag_seconds)


def _exporter(instance: str, socket: Path, folder: Path) -> Server:
    config = folder / f"{socket.stem}.exporter.yml"
    config.write_text("{}")
    return start_server(
        instance,
        lambda port: [
            program("argus-exporter"),
            "serve",
            f"--config={config}",
            f"--socket={socket}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        "/metrics",
        folder / f"{socket.stem}.exporter.log",
    )


def _prometheus(
    targets: Sequence[Mapping[str, Any]], files: Sequence[Path], folder: Path, victoria: Server | None
) -> Server:
    config = folder / "prometheus.yml"
    content: dict[str, Any] = {
        "global": {"scrape_interval": f"{SCRAPE_MS}ms", "evaluation_interval": EVALUATION_INTERVAL},
        "rule_files": [str(file.resolve()) for file in files],
        "scrape_configs": [{"job_name": "argus", "static_configs": list(targets)}],
    }
    if victoria is not None:
        # What was scraped, and nothing that rules made of it.
        recorded = {rule.record for rule in read_rules(files) if rule.record} | {"ALERTS", "ALERTS_FOR_STATE"}
        dropped = {"source_labels": ["__name__"], "regex": "|".join(sorted(recorded)), "action": "drop"}
        content["remote_write"] = [
            {
                "url": f"{victoria.url}/api/v1/write",
                "write_relabel_configs": [dropped],
                "queue_config": {"batch_send_deadline": "100ms"},
            }
        ]
    config.write_text(json.dumps(content))  # which is YAML
    return start_server(
        "prometheus",
        lambda port: [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            "--web.enable-remote-write-receiver",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        "/-/ready",
        folder / "prometheus.log",
    )


def _worker(prometheus: str, folder: Path) -> Server:
    config = folder / "worker.yml"
    config.write_text(json.dumps({"prometheus": {"url": prometheus}}))
    return start_server(
        "worker",
        lambda port: [
            program("argus-l3-worker"),
            "serve",
            f"--config={config}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        "/healthz",
        folder / "worker.log",
    )


def _victoria(folder: Path) -> Server:
    return start_server(
        "victoria-metrics",
        lambda port: [
            program("victoria-metrics"),
            f"-storageDataPath={folder / 'victoria'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-search.latencyOffset=0s",  # else answers are half a minute old
        ],
        "/health",
        folder / "victoria.log",
    )


def _alertmanager(folder: Path) -> Server:
    """Whom vmalert tells, as it does not start without one."""
    config = folder / "alertmanager.yml"
    config.write_text(json.dumps({"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}))
    return start_server(
        "alertmanager",
        lambda port: [
            program("prometheus-alertmanager", "alertmanager"),
            f"--config.file={config}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ],
        "/-/ready",
        folder / "alertmanager.log",
    )


def _vmalert(files: Sequence[Path], folder: Path, victoria: Server, alertmanager: Server) -> Server:
    return start_server(
        "vmalert",
        lambda port: [
            program("vmalert"),
            *(f"-rule={file.resolve()}" for file in files),
            f"-datasource.url={victoria.url}",
            "-datasource.queryStep=5m",
            f"-remoteWrite.url={victoria.url}",
            "-remoteWrite.flushInterval=1s",
            f"-notifier.url={alertmanager.url}",
            f"-evaluationInterval={EVALUATION_INTERVAL}",
            f"-httpListenAddr=127.0.0.1:{port}",
        ],
        "/health",
        folder / "vmalert.log",
    )


# -- what it did ------------------------------------------------------------------


def _read(url: str, running: Sequence[_Running], victoria: str | None) -> Lived:
    end_ms = time.time_ns() // 1_000_000
    groups = _get(url, "rules")["groups"]
    offsets = {
        (Path(group["file"]).name, group["name"]): _unix_ms(group["lastEvaluation"])
        % round(group["interval"] * 1000)
        for group in groups
    }
    errors = {
        rule["name"]: rule["lastError"]
        for group in groups
        for rule in group["rules"]
        if rule.get("lastError")
    }
    scrapes = {
        one["metric"]["instance"]: round(one["values"][-1][0] * 1000) % SCRAPE_MS
        for one in _series(url, "up", end_ms)
    }
    intervals = {rule["name"]: round(group["interval"] * 1000) for group in groups for rule in group["rules"]}

    def spells(at: str) -> list[Spell]:
        return [
            spell
            for one in _series(at, "ALERTS", end_ms)
            for spell in _spells(one, intervals[one["metric"]["alertname"]])
        ]

    return Lived(
        {one.job: one.player.progress.began_ns for one in running},
        end_ms,
        scrapes,
        offsets,
        spells(url),
        [] if victoria is None else spells(victoria),
        max(one.worst_lag_s for one in running),
        errors,
    )


def _series(url: str, name: str, end_ms: int) -> list[Any]:
    """All samples as they were stored."""
    found: list[Any] = _get(url, "query", query=f"{name}[1d]", time=str(end_ms / 1000))["result"]
    return found


def _spells(series: Mapping[str, Any], interval_ms: int) -> list[Spell]:
    labels = dict(series["metric"])
    state = labels.pop("alertstate")
    del labels["__name__"]
    labels.pop("alertgroup", None)  # vmalert's own
    times = [round(at * 1000) for at, _ in series["values"]]
    begins = [0, *(n for n in range(1, len(times)) if times[n] - times[n - 1] > 1.5 * interval_ms)]
    ends = [*begins[1:], len(times)]
    return [
        Spell(tuple(sorted(labels.items())), state, times[begin], times[end - 1])
        for begin, end in zip(begins, ends, strict=True)
    ]


def _get(url: str, what: str, **parameters: str) -> Any:
    with urllib.request.urlopen(
        f"{url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}", timeout=60
    ) as answer:
        return json.load(answer)["data"]


def _unix_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
