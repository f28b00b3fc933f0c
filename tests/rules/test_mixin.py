"""Rules, alerts, runbooks, tests and the metric catalogue name the same things."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import rjsonnet
import yaml
from tools.lint.runbooks import HEADINGS

from argus_core.catalogue import SAMPLE_NAMES
from tools import generate_rules

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ("rules", "rules/test")
CONTRACT = {
    "ArgusIterationJitter",
    "ArgusIterationRegression",
    "ArgusTrainingStalled",
    "ArgusStragglerRank",
    "ArgusGroupImbalance",
    "ArgusCollectiveLateRank",
    "ArgusCollectiveSlowLink",
    "ArgusKernelDegraded",
    "ArgusKernelGroupShift",
    "ArgusHostStall",
    "ArgusRankMissing",
    "ArgusJobNameClash",
    "ArgusChannelDown",
    "ArgusRecordsDropped",
    "ArgusOverheadBudget",
    "ArgusL3WorkerBehind",
    "ArgusRulesBehind",
}
"""Alert names that sites route by."""


def rules_of(file: str) -> list[dict[str, Any]]:
    document = yaml.load((ROOT / file).read_text(encoding="utf-8"), yaml.CSafeLoader)
    return [rule for group in document["groups"] for rule in group["rules"]]


def rules(profile: str) -> list[dict[str, Any]]:
    files = sorted((ROOT / profile).glob("argus.*.rules.yaml"))
    assert files, f"no rule file in {profile}"
    return [rule for file in files for rule in rules_of(str(file.relative_to(ROOT)))]


def alerts(profile: str = "rules") -> list[dict[str, Any]]:
    return [rule for rule in rules(profile) if "alert" in rule]


def records(profile: str = "rules") -> list[dict[str, Any]]:
    return [rule for rule in rules(profile) if "record" in rule]


def described(rule: dict[str, Any]) -> str:
    return str(rule["alert"])


def test_generated_files_are_current() -> None:
    """`make generate` would change nothing."""
    assert generate_rules.main(["--check"]) == 0


COUNTED = re.compile(r"count_over_time\(([\w:]+)(?:\{([^}]*)\})?\[(\d+)s\]\) >= (\d+)")


def test_what_must_be_there_so_often_is_recorded_so_often() -> None:
    """promtool evaluates all groups alike, a server each at its interval: a slow one too seldom."""
    groups = [
        group
        for file in sorted((ROOT / "rules").glob("argus.*.rules.yaml"))
        for group in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)["groups"]
    ]
    units = {"s": 1, "m": 60, "h": 3600}

    def interval(name: str, matchers: str) -> int:
        """Of the slowest group that records it."""
        asked = dict(re.findall(r'(\w+)="([^"]*)"', matchers))
        return max(
            int(group["interval"][:-1]) * units[group["interval"][-1]]
            for group in groups
            for rule in group["rules"]
            if rule.get("record") == name
            and all(rule.get("labels", {}).get(label, value) == value for label, value in asked.items())
        )

    found = [match for group in groups for rule in group["rules"] for match in COUNTED.findall(rule["expr"])]
    assert found
    for name, matchers, seconds, times in found:
        least = (int(seconds) + 1) // interval(name, matchers)
        assert least >= int(times), f"{name}{{{matchers}}} is {least} times in {seconds} s, not {times}"


@pytest.mark.parametrize("profile", PROFILES)
def test_alert_names_are_the_contract(profile: str) -> None:
    """No alert of the contract is missing and none was invented."""
    assert {rule["alert"] for rule in alerts(profile)} == CONTRACT


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """docs/runbooks holds one page an alert."""
    assert {page.stem for page in ROOT.glob("docs/runbooks/Argus*.md")} == CONTRACT


def test_runbooks_answer_the_same_questions() -> None:
    """Meaning, impact, what to look at, causes, what fixed it, when it is wrong, how to silence."""
    for name in sorted(CONTRACT):
        text = (ROOT / f"docs/runbooks/{name}.md").read_text(encoding="utf-8")
        headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
        assert tuple(headings) == HEADINGS, name


ITSELF = {
    "ArgusChannelDown",
    "ArgusRecordsDropped",
    "ArgusOverheadBudget",
    "ArgusL3WorkerBehind",
    "ArgusRulesBehind",
}
"""On ARGUS itself, not on a job."""
COVERAGE = {"ArgusRankMissing", "ArgusJobNameClash"}
"""On what of a job is not seen, of which there is no trace."""


@pytest.mark.parametrize("rule", alerts(), ids=described)
def test_alert_is_routable_and_readable(rule: dict[str, Any]) -> None:
    """Severity, team and level (its own, or those that the expression carries), a text, and links."""
    allowed = {
        "severity": {"page", "ticket", "info"},
        "level": {"L1", "L2", "L3"},
        "team": {"operations", "infrastructure", "algorithm"},
    }
    for label, values in allowed.items():
        carried = re.search(rf'rank:argus_decision|"{label}"|by \([^)]*\b{label}\b', rule["expr"])
        assert rule.get("labels", {}).get(label) in values or carried, f"no {label}"
    text = {"summary", "description", "runbook_url", "dashboard_url"}
    traced = rule["alert"] not in ITSELF | COVERAGE
    carded = traced and "Kernel" not in rule["alert"]  # which tell of several ranks
    expected = text | ({"trace_key"} if traced else set()) | ({"card"} if carded else set())
    assert set(rule["annotations"]) == expected
    assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{rule['alert']}.md")
    board = "argus-itself" if rule["alert"] in ITSELF else "argus-job"
    assert rule["annotations"]["dashboard_url"].startswith(f"/d/{board}/{board}?")


@pytest.mark.parametrize("rule", alerts(), ids=described)
def test_no_word_of_ours_reaches_the_phone(rule: dict[str, Any]) -> None:
    """Neither names of causes nor of series, but in conditions and queries."""
    for name in ("summary", "description"):
        read = re.sub(r"{{.*?}}", "", rule["annotations"][name])
        assert not re.search(r"culprit|verdict|abstain|victim|straggler|argus_|[a-z]+-[a-z]+-", read, re.I), (
            read
        )


def test_names_are_contract_and_alerts_have_one_rule_each() -> None:
    """A stall has one a severity: its page does not wait for a decision, which has the severity of others."""
    assert sorted(rule["alert"] for rule in alerts()) == sorted([*CONTRACT, "ArgusTrainingStalled"])


def test_a_site_has_labels_severities_and_addresses_of_its_own() -> None:
    """In every alert."""
    config = """{
        alertLabels: { site: 'north' },
        severities: { page: 'critical', ticket: 'warning', info: 'none' },
        runbookUrl: 'https://wiki/%s',
        dashboardUrl: 'https://grafana/job?orgId=2',
        itselfUrl: 'https://grafana/itself',
        traceUrl: 'https://argus',
    }"""
    source = f"((import 'jsonnet/mixin.libsonnet') + {{ _config+:: {config} }}).prometheusAlerts.groups"
    groups = json.loads(rjsonnet.evaluate_snippet("site", source, jpathdir=[f"{ROOT}/"]))
    found = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert {rule["alert"] for rule in found} == CONTRACT
    for rule in found:
        assert rule["labels"]["site"] == "north"
        assert not re.search(r'"(page|ticket|info)"', rule["expr"] + str(rule["labels"]))
        links = rule["annotations"]
        assert links["runbook_url"] == f"https://wiki/{rule['alert']}"
        assert links["dashboard_url"].startswith(("https://grafana/job?orgId=2&", "https://grafana/itself?"))
        assert ("trace_url" in links) == ("trace_key" in links)


def test_the_rules_say_their_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for profile in PROFILES:
        (info,) = [rule for rule in records(profile) if rule["record"] == "argus_rules_info"]
        assert info["labels"] == {"flavour": profile, "version": project["version"]}


def test_every_group_says_how_often_it_is_evaluated() -> None:
    """Whatever a site lists: who counts that sees a ruler that falls behind."""
    listed = "{_config+:: {phases: ['forward', 'data']}}"
    source = f"((import 'jsonnet/mixin.libsonnet') + {listed}).prometheusRulesByFile"
    files = json.loads(rjsonnet.evaluate_snippet("groups", source, jpathdir=[f"{ROOT}/"]))
    for group in (group for groups in files.values() for group in groups):
        (beat,) = [rule for rule in group["rules"] if rule.get("record") == "argus_rules_interval_seconds"]
        assert beat["labels"] == {"rule_group": group["name"]}
        assert beat["expr"] == f"vector({seconds_of(group['interval']):g})"


@pytest.mark.parametrize("profile", PROFILES)
def test_every_metric_is_in_the_catalogue_or_recorded(profile: str) -> None:
    """A misspelt name is an empty result for ever, which promtool does not notice."""
    recorded = {rule["record"] for rule in records(profile)}
    for rule in records(profile) + alerts(profile):
        names = set(re.findall(r"\b(?:(?:rank|group|job):)?argus_[a-z0-9_]+(?::[a-z0-9_]+)?\b", rule["expr"]))
        unknown = names - recorded - SAMPLE_NAMES
        assert not unknown, f"{rule.get('record', rule.get('alert'))} reads {unknown}"


@pytest.mark.parametrize("profile", PROFILES)
def test_no_rule_keeps_scrape_labels(profile: str) -> None:
    """A rank that moves to another pod must not break a join: no aggregation keeps job, instance or pod."""
    for rule in records(profile) + alerts(profile):
        kept = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
        assert not {label.strip() for labels in kept for label in labels.split(",")} & {
            "job",
            "instance",
            "pod",
        }
        assert "without (" not in rule["expr"]


SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
CADENCE = {"rules": (15.0, 1.0), "rules/test": (1.5, 0.1)}
"""By flavour: seconds between scrapes, and those that a range is short of its window (`rangeEpsilon`)."""


def seconds_of(text: str) -> float:
    return sum(float(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+)(ms|s|m|h|d)", text))


@pytest.mark.parametrize("profile", CADENCE)
def test_no_range_ends_on_a_sample(profile: str) -> None:
    """Prometheus 3 and VictoriaMetrics have ranges that are open on the left, Prometheus 2 closed ones.

    They agree where a range is a window of whole scrapes, and an epsilon less or more; a subquery in finer
    steps than a scrape is short by half such a step. What is told at once wants two samples of every target,
    so it takes the chance that one is scraped in the very millisecond.
    """
    scrape, epsilon = CADENCE[profile]
    found = 0
    for rule in records(profile) + alerts(profile):
        for window, step in re.findall(r"\[(\w+)(?::(\w*))?\]", rule["expr"]):
            found += 1
            grid = scrape
            short = epsilon
            if step and seconds_of(step) < scrape:
                grid, short = seconds_of(step), seconds_of(step) / 2
            name = rule.get("record", rule.get("alert"))
            if name == "rank:argus_phase_fast:ratio":
                short = 0.0
            scrapes = round(seconds_of(window) / grid)
            assert abs(seconds_of(window) - scrapes * grid) == pytest.approx(short) and scrapes >= 1, (
                f"[{window}:{step}] of {name} is not whole steps of {grid:g} s, {short:g} s less or more"
            )
    assert found > 30
