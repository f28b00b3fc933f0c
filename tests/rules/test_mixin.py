"""Rules, alerts, runbooks, tests and the metric catalogue name the same things."""

from __future__ import annotations

import json
import re
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
}
"""Alert names that sites route by."""


def rules_of(file: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
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


@pytest.mark.parametrize("rule", alerts(), ids=described)
def test_alert_is_routable_and_readable(rule: dict[str, Any]) -> None:
    """Severity, level, a team (its own, or the one that the expression carries), and all annotations."""
    assert rule["labels"]["severity"] in {"page", "ticket", "info"}
    allowed = {"level": {"L1", "L2", "L3"}, "team": {"operations", "infrastructure", "algorithm"}}
    for label, values in allowed.items():
        carried = re.search(rf"verdict|by \([^)]*\b{label}\b", rule["expr"])
        assert rule["labels"].get(label) in values or carried, f"no {label}"
    assert set(rule["annotations"]) - {"cost"} == {
        "summary",
        "description",
        "runbook_url",
        "dashboard_url",
        "trace_key",
        "host",
        "gpu",
    }
    assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{rule['alert']}.md")


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

    They agree where a range is a window of whole scrapes less the epsilon; a subquery in finer steps than a
    scrape is short by half such a step.
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
            scrapes = (seconds_of(window) + short) / grid
            name = rule.get("record", rule.get("alert"))
            assert scrapes == pytest.approx(round(scrapes)) and round(scrapes) >= 1, (
                f"[{window}:{step}] of {name} is not whole steps of {grid:g} s less {short:g} s"
            )
    assert found > 30
