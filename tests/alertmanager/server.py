"""A real Alertmanager on a port of its own, and what is told to it."""

from __future__ import annotations

import copy
import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from argus_simulator.stack.processes import Server, start_server
from argus_simulator.stack.repository import program
from argus_simulator.stack.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "alertmanager"
PATIENCE_S = 30.0
"""Long beyond what a busy machine needs: only a failing test waits so long."""


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return document


def hurried(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same routes with the test configuration's waits, whatever the hour of the day."""
    result = copy.deepcopy(dict(config))
    result.pop("time_intervals", None)
    for route in (result["route"], *result["route"]["routes"]):
        route.update(group_wait="1s", group_interval="2s", repeat_interval="1h")
        route.pop("active_time_intervals", None)
        route.pop("mute_time_intervals", None)
    return result


def labels(name: str, severity: str, job: str, team: str = "operations", **more: str) -> dict[str, str]:
    return {"alertname": name, "severity": severity, "team": team, "training_job": job, **more}


class Alertmanager:
    """Talks to one that runs."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._sentinels = 0

    def fire(self, *alerts: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
        """All of them in one request, as Prometheus sends them."""
        self._post([{"labels": one, "annotations": annotations or {}} for one in alerts])

    def resolve(self, *alerts: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
        now = datetime.now(UTC).isoformat()
        self._post([{"labels": one, "annotations": annotations or {}, "endsAt": now} for one in alerts])

    def is_silent(self, alert: Mapping[str, str]) -> bool:
        """Whether something inhibits it now."""
        with urllib.request.urlopen(f"{self.server.url}/api/v2/alerts", timeout=PATIENCE_S) as answer:
            known = json.load(answer)
        [found] = [one for one in known if one["labels"] == dict(alert)]
        return bool(found["status"]["inhibitedBy"])

    def settle(self) -> None:
        """Wait until inhibition knows all that was told: alerts are taken in order, and the last are ours."""
        self._sentinels += 1
        job = f"sentinel-{self._sentinels}"
        source, target = labels("ArgusTrainingStalled", "page", job), labels("ArgusHostStall", "page", job)
        self.fire(source, target)
        wait_for(lambda: self.is_silent(target), PATIENCE_S, "inhibition to take what it was told")

    def _post(self, alerts: list[dict[str, Any]]) -> None:
        request = urllib.request.Request(
            f"{self.server.url}/api/v2/alerts",
            data=json.dumps(alerts).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            pass


@contextmanager
def running(config: Mapping[str, Any], folder: Path) -> Iterator[Alertmanager]:
    """One with this configuration and our templates, its state in `folder`; ended by its id."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "alertmanager.yml"
    content = {**config, "templates": [str(FOLDER / "templates" / "*.tmpl")]}
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    binary = program("alertmanager", "prometheus-alertmanager")
    server = start_server(
        "alertmanager",
        lambda port: [
            binary,
            f"--config.file={file}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--web.external-url=http://alertmanager.example:{port}",
            "--cluster.listen-address=",
        ],
        "/-/ready",
        folder / "log",
    )
    try:
        yield Alertmanager(server)
    finally:
        server.child.stop()
