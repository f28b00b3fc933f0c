"""The table of causes as programs read it."""

from __future__ import annotations

import json

import rjsonnet
from tools.generate_causes import main, module
from tools.generate_rules import ROOT
from tools.lint.sources import rules

from argus_core import causes

ROWS = json.loads(rjsonnet.evaluate_file(str(ROOT / "jsonnet" / "causes.libsonnet")))


def test_the_committed_module_is_up_to_date() -> None:
    """`make lint` says where it is not."""
    assert main(["--check"]) == 0


def test_another_team_in_the_table_is_another_in_the_module() -> None:
    """Every row that somebody acts on has its team, and every row its words."""
    assert set(causes.TEAMS.values()) == {row["team"] for row in ROWS if "team" in row}
    assert set(causes.WORDS.values()) == {row["words"] for row in ROWS}
    assert '"host-jit": "infrastructure"' in module()


def test_rules_send_findings_to_the_same_teams() -> None:
    """What a verdict carries is what the worker would say of its row."""
    told = {
        (rule.labels["row"], rule.labels["team"])
        for rule in rules("rules")
        if rule.name == "rank:argus_verdict:lost_ratio" and "team" in rule.labels
    }
    assert told and {(row, causes.TEAMS[row]) for row, _ in told} == told


def test_whoever_hangs_is_told_as_the_rules_tell_it() -> None:
    """By the cause of the verdict, as several rows have one kind of evidence."""
    hanging = {
        rule.labels["cause"]: rule.labels["team"]
        for rule in rules("rules")
        if rule.name == "rank:argus_verdict:active" and rule.labels.get("cause", "").startswith("hang-")
    }
    assert hanging == {cause: causes.TEAMS[cause] for cause in causes.HANGS}
