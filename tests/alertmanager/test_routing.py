"""Alertmanager: who is told, in what words, and what silences what."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ALERTMANAGER = Path(__file__).resolve().parents[2] / "alertmanager"
CONFIGURATIONS = ("alertmanager.yaml", "alertmanager.test.yaml")
TEAMS = ("operations", "infrastructure", "algorithm")

needs_amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is not on PATH (part of Alertmanager; tools/setup.sh)"
)


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ALERTMANAGER / name).read_text(encoding="utf-8"))
    return document


def amtool(*arguments: str) -> str:
    run = subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


def receiver_of(name: str, **labels: str) -> str:
    pairs = [f"{label}={value}" for label, value in labels.items()]
    return amtool("config", "routes", "test", f"--config.file={ALERTMANAGER / name}", *pairs)


@needs_amtool
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_is_valid(name: str) -> None:
    """amtool accepts it and finds the message template."""
    assert "1 templates" in amtool("check-config", str(ALERTMANAGER / name))


@needs_amtool
@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("severity", ["page", "ticket"])
def test_team_and_severity_choose_the_receiver(name: str, team: str, severity: str) -> None:
    """A page of a team goes to that team's pager, a ticket to its queue."""
    assert receiver_of(name, team=team, severity=severity, training_job="a") == f"argus-{team}-{severity}"


@needs_amtool
@pytest.mark.parametrize("team", TEAMS)
def test_info_goes_to_nobody_in_particular(team: str) -> None:
    """Information has one channel, whatever its team."""
    assert receiver_of("alertmanager.yaml", team=team, severity="info") == "argus-info"


@needs_amtool
def test_an_unknown_team_is_seen_by_somebody() -> None:
    """An alert that no route matches is a ticket for operations."""
    assert receiver_of("alertmanager.yaml", team="nobody", severity="page") == "argus-operations-ticket"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_webhooks_are_under_one_replaceable_base(name: str) -> None:
    """A demo replaces http://127.0.0.1:9/ and has every receiver; the paths are /team/severity and /info."""
    urls = [hook["url"] for receiver in load(name)["receivers"] for hook in receiver["webhook_configs"]]
    paths = {"info"} | {f"{team}/{severity}" for team in TEAMS for severity in ("page", "ticket")}
    assert set(urls) == {f"http://127.0.0.1:9/{path}" for path in paths}


def test_one_page_a_job() -> None:
    """Notifications are grouped by the job alone."""
    assert load("alertmanager.yaml")["route"]["group_by"] == ["training_job"]


def inhibited(name: str, source: dict[str, str], target: dict[str, str]) -> bool:
    """Whether `source` mutes `target`, by the inhibition rules. A missing label equals an empty one."""

    def matches(matchers: list[str], labels: dict[str, str]) -> bool:
        for matcher in matchers:
            label, operator, value = re.fullmatch(r'(\w+)(=~|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
            actual = labels.get(label, "")
            if not (re.fullmatch(value, actual) if operator == "=~" else value == actual):
                return False
        return True

    return any(
        matches(rule["source_matchers"], source)
        and matches(rule["target_matchers"], target)
        and all(source.get(label, "") == target.get(label, "") for label in rule["equal"])
        for rule in load(name)["inhibit_rules"]
    )


def alert(name: str, severity: str, rank: str = "", job: str = "a") -> dict[str, str]:
    return {"alertname": name, "severity": severity, "rank": rank, "training_job": job}


STALL = alert("ArgusTrainingStalled", "page")
STRAGGLER = alert("ArgusStragglerRank", "page", rank="2")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (STALL, STRAGGLER, True),
        (STALL, alert("ArgusKernelDegraded", "ticket", rank="1"), True),
        (STALL, alert("ArgusRankMissing", "ticket", rank="1"), False),
        (STALL, alert("ArgusStragglerRank", "page", rank="2", job="b"), False),
        (STRAGGLER, alert("ArgusIterationRegression", "page"), True),
        (STRAGGLER, alert("ArgusCollectiveLateRank", "page", rank="3"), True),
        (STRAGGLER, alert("ArgusStragglerRank", "info", rank="2"), True),
        (STRAGGLER, alert("ArgusStragglerRank", "info", rank="3"), False),
        (STRAGGLER, alert("ArgusHostStall", "page", rank="3"), False),
        (alert("ArgusChannelDown", "ticket"), alert("ArgusIterationJitter", "info"), False),
    ],
    ids=[
        "stall mutes a straggler",
        "stall mutes a kernel",
        "stall leaves the lost rank",
        "another job is untouched",
        "a culprit mutes the slow job",
        "a culprit mutes those it makes late",
        "a page mutes its own info",
        "a page leaves the info of another rank",
        "two culprits both speak",
        "health says nothing about speed",
    ],
)
def test_inhibition(source: dict[str, str], target: dict[str, str], expected: bool) -> None:
    """What explains something mutes it, and nothing else."""
    assert inhibited("alertmanager.yaml", source, target) is expected


@needs_amtool
def test_message_says_what_to_do(tmp_path: Path) -> None:
    """The text names the finding and carries runbook, dashboard and traces."""
    data = {
        "status": "firing",
        "groupLabels": {"training_job": "a"},
        "commonLabels": {"severity": "page"},
        "alerts": [
            {
                "labels": {"alertname": "ArgusStragglerRank", "severity": "page", "level": "L2"},
                "annotations": {
                    "summary": "Rank 2 of a is slow.",
                    "description": "The job loses 20 %.",
                    "runbook_url": "https://runbook",
                    "dashboard_url": "/d/argus-job",
                    "trace_key": "a/2026-11-21/2/",
                },
                "startsAt": "2026-11-21T03:00:00Z",
            }
        ],
    }
    file = tmp_path / "data.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    text = amtool(
        "template",
        "render",
        f"--template.glob={ALERTMANAGER}/templates/*.tmpl",
        f"--template.data={file}",
        '--template.text={{ template "argus.title" . }}|{{ template "argus.text" . }}',
    )
    title, body = text.split("|", 1)
    assert title == "[FIRING page] a: Rank 2 of a is slow."
    for part in (
        "ArgusStragglerRank",
        "The job loses 20 %.",
        "https://runbook",
        "/d/argus-job",
        "a/2026-11-21/2/",
    ):
        assert part in body
