"""The card in an alert is what the worker prints: filled by a real Prometheus, and by a real vmalert."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from argus_l3_worker.commands.explain import RUNBOOK_URL
from argus_simulator.stack.ports import free_port
from argus_simulator.stack.waiting import wait_for
from l3_worker.played_jobs import END_S, RULES, explained, played

pytestmark = [pytest.mark.servers, pytest.mark.slow]
TOLD: Final = (
    "slow-rank",
    "late-rank",
    "data-stall",
    "suspect-set",
    "slow-link",
    "regression",
    "half-heard",
    "hang",
    "hang-of-nobody",
)
"""Of these jobs an alert is told when they end, which is when the servers begin."""
PATIENCE_S: Final = 60.0


@pytest.fixture(scope="module")
def storage() -> Iterator[str]:
    """Jobs that ended within the last minute: nothing is written any more, and nothing is stale yet."""
    with played(math.floor((time.time() - END_S) / 60) * 60_000) as url:
        yield url


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The alerts on findings alone, as they are shipped: what they read is played already."""
    found = []
    for file in RULES:
        for group in yaml.load(file.read_text("utf-8"), yaml.CSafeLoader)["groups"]:
            rules = [rule for rule in group["rules"] if "card" in rule.get("annotations", {})]
            found += [{"name": group["name"], "interval": "1s", "rules": rules}] if rules else []
    path = tmp_path_factory.mktemp("rules") / "alerts.json"
    path.write_text(json.dumps({"groups": found}).replace('"for": "45s"', '"for": "0s"'))
    return path


def prometheus(storage: str, alerts: Path, folder: Path, port: int) -> list[str]:
    config = {"remote_read": [{"url": f"{storage}/api/v1/read", "read_recent": True}]}
    (folder / "config.json").write_text(json.dumps(config | {"rule_files": [str(alerts)]}))
    flags = {"config.file": folder / "config.json", "storage.tsdb.path": folder / "data"}
    at = f"--web.listen-address=127.0.0.1:{port}"
    return ["prometheus", at, *(f"--{name}={value}" for name, value in flags.items())]


def vmalert(storage: str, alerts: Path, _folder: Path, port: int) -> list[str]:
    at = f"-httpListenAddr=127.0.0.1:{port}"
    return [
        "vmalert",
        at,
        f"-datasource.url={storage}",
        f"-rule={alerts}",
        "-notifier.url=http://127.0.0.1:9",
    ]


def cards(url: str) -> dict[str, str]:
    """By job, what its alert says."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["alerts"] or []
    except OSError:
        return {}
    return {one["labels"]["training_job"]: one["annotations"]["card"] for one in found}


@pytest.mark.parametrize("engine", [prometheus, vmalert])
def test_an_alert_says_what_the_worker_says(engine: Any, storage: str, alerts: Path, tmp_path: Path) -> None:
    """Line for line, but for the address of the runbook: its last line, typed as it is, prints the rest."""
    if shutil.which(engine.__name__) is None:
        pytest.skip("vmalert is not on PATH (apt-get install victoria-metrics)")
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(engine(storage, alerts, tmp_path, port), stdout=log, stderr=log)
    try:
        found = wait_for(
            lambda: said if (said := cards(f"http://127.0.0.1:{port}")).keys() >= set(TOLD) else None,
            PATIENCE_S,
            "an alert of each job",
        )
    finally:
        server.terminate()
        server.wait(20)
    for job in TOLD:
        command = shlex.split(found[job].splitlines()[-1].split(maxsplit=2)[2])
        assert command[:4] == ["argus-l3-worker", "explain", "--job", job]
        at = float(command[command.index("--time") + 1])
        verdict = json.loads(explained(storage, job, "--json", at=at)[1])
        assert verdict["text"] == with_our_runbooks(found[job]) + "\n"


def with_our_runbooks(card: str) -> str:
    """The alerts lead to the project's own pages, `explained` asks for others."""
    before, after = RUNBOOK_URL.split("%s")
    lines = card.splitlines()
    look = next(number for number, line in enumerate(lines) if line.startswith("look"))
    lines[look] = lines[look].replace(before, "https://runbooks/").replace(after, "")
    return "\n".join(lines)
