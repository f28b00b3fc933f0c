"""The routes that docs/deployment.md offers for an Alertmanager that is there already."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is not on PATH (tools/setup.sh)"
)


def merged() -> dict[str, Any]:
    """A site's own configuration, with the routes of the page before its own."""
    page = (ROOT / "docs/deployment.md").read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n(route:\n.*?)^```$", page, re.M | re.S)
    offered = yaml.safe_load(text)["route"]["routes"]
    own = {"matchers": ['severity="page"'], "receiver": "everybody"}
    names = ("default", "everybody", "training-tickets", "training-chat", "training-pager")
    return {
        "route": {"receiver": "default", "routes": [*offered, own]},
        "receivers": [{"name": name} for name in names],
    }


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=ArgusStragglerRank", "severity=page"), "training-pager"),
        (("alertname=ArgusStragglerRank", "severity=info"), "training-chat"),
        (("alertname=ArgusIterationJitter", "severity=ticket"), "training-tickets"),
        (("alertname=ArgusRankMissing", "severity=ticket"), "training-tickets"),
        (("alertname=NodeDown", "severity=page"), "everybody"),
        (("alertname=NodeDown", "severity=ticket"), "default"),
    ],
)
def test_each_alert_reaches_whom_it_is_for(labels: tuple[str, ...], receiver: str, tmp_path: Path) -> None:
    """ARGUS' own go to the new receivers, all others where they went before."""
    file = tmp_path / "alertmanager.yaml"
    file.write_text(yaml.safe_dump(merged()))
    command = ["amtool", "config", "routes", "test", f"--config.file={file}", *labels]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == receiver, done.stderr
