"""Alertmanager's configurations: valid, complete, and without a secret in them."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest

from alertmanager.server import FOLDER, load

CONFIGURATIONS = tuple(sorted(file.name for file in FOLDER.glob("*.yaml")))
TEAMS = ("operations", "infrastructure", "algorithm")

needs_amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is not on PATH (part of Alertmanager; tools/setup.sh)"
)


def amtool(*arguments: str) -> str:
    run = subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


def receiver_of(name: str, **labels: str) -> str:
    pairs = [f"{label}={value}" for label, value in labels.items()]
    return amtool("config", "routes", "test", f"--config.file={FOLDER / name}", *pairs)


def test_every_kind_of_receiver_has_a_configuration() -> None:
    """The complete one, one for each kind, and that of the demo."""
    kinds = {f"alertmanager.{kind}.yaml" for kind in ("webhook", "slack", "pagerduty", "email", "test")}
    assert set(CONFIGURATIONS) == kinds | {"alertmanager.yaml"}


@needs_amtool
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_is_valid(name: str) -> None:
    """amtool accepts it and finds the message templates."""
    assert "1 templates" in amtool("check-config", str(FOLDER / name))


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
    """An alert that no route matches is for operations: a page pages, also by the name that sites give it."""
    for severity, kind in (
        ("page", "page"),
        ("critical", "page"),
        ("ticket", "ticket"),
        ("warning", "ticket"),
    ):
        for team in ("nobody", "operations"):
            found = receiver_of("alertmanager.yaml", team=team, severity=severity)
            assert found == f"argus-operations-{kind}"


def test_webhooks_are_under_one_replaceable_base() -> None:
    """A demo replaces http://127.0.0.1:9/ and has every receiver; the paths are /team/severity and /info."""
    configs = [receiver["webhook_configs"] for receiver in load("alertmanager.test.yaml")["receivers"]]
    paths = {"info"} | {f"{team}/{severity}" for team in TEAMS for severity in ("page", "ticket")}
    assert {hook["url"] for hooks in configs for hook in hooks} == {f"http://127.0.0.1:9/{p}" for p in paths}


def test_pages_go_to_the_pager_and_tickets_to_mail() -> None:
    """The complete configuration: each team its own pager, address and channel; all of it in chat too."""
    for receiver in load("alertmanager.yaml")["receivers"]:
        kinds = {key for key in receiver if key.endswith("_configs")}
        severity = receiver["name"].rsplit("-", 1)[1]
        assert (
            kinds
            == {
                "page": {"pagerduty_configs", "slack_configs"},
                "ticket": {"email_configs", "slack_configs"},
                "info": {"slack_configs"},
            }[severity]
        )


def test_only_tickets_keep_hours() -> None:
    """Nobody sleeps through a page; tickets wait for the morning, but one that ends before.

    Of a job whose ranks are all lost the series end five minutes later, and with them the only alert.
    """
    config = load("alertmanager.yaml")
    assert [one["name"] for one in config["time_intervals"]] == ["maintenance", "working-hours"]
    routes = config["route"]["routes"]
    (lost,) = (route for route in routes if route["matchers"] == ['alertname="ArgusRankMissing"'])
    assert lost["receiver"] == "argus-operations-ticket"
    assert routes.index(lost) < min(
        at for at, route in enumerate(routes) if route["receiver"].endswith("-ticket") and route is not lost
    )
    for route in routes:
        waits = route["receiver"].endswith("-ticket") and route is not lost
        assert route.get("active_time_intervals", []) == (["working-hours"] if waits else [])
        assert route["mute_time_intervals"] == ["maintenance"]


def secrets_of(value: Any, key: str = "") -> list[tuple[str, str]]:
    """(key, text) of everything in a configuration whose key says that it is a secret."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in secrets_of(item, name)]
    if isinstance(value, list):
        return [found for item in value for found in secrets_of(item, key)]
    secret = re.search(r"password|token|credentials|routing_key|service_key|api_url|secret", key)
    return [(key, str(value))] if secret else []


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_secrets_are_named_by_file(name: str) -> None:
    """What must not be read by everybody lies in a mounted file of its own."""
    found = secrets_of(load(name))
    assert bool(found) == (name != "alertmanager.test.yaml")
    for key, value in found:
        assert key.endswith("_file"), key
        assert value.startswith("/etc/alertmanager/secrets/")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_only_a_page_silences_and_only_within_its_job(name: str) -> None:
    """And no page but the others of a job that stands still: tickets wait for the morning, pages do not."""
    for rule in load(name)["inhibit_rules"]:
        assert {"cluster", "training_job"} <= set(rule["equal"])
        assert 'severity="page"' in rule["source_matchers"]
        stalled = 'alertname="ArgusTrainingStalled"' in rule["source_matchers"]
        assert stalled or 'severity!="page"' in rule["target_matchers"]
