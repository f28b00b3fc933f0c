"""The promtool checks and the promtool tests of the generated rules."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from long_forms import LONG
from rules.beside import play
from rules.promtool import Document, needs_promtool, promtool

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted(
    [*ROOT.glob("rules/*.yaml"), *ROOT.glob("rules/test/*.yaml"), *ROOT.glob("rules/portable/*.yaml")]
)
SUBJECTS = sorted(ROOT.glob("rules/tests/*.yaml"))
OF_PRODUCTION = [subject for subject in SUBJECTS if "../test/" not in subject.read_text(encoding="utf-8")]
"""The others are about long windows, and play the rules of the demo."""
SPLITS_APART = 75
"""Seconds between two of the fixed splits of ten minutes."""
SCAN = "argus.regression.rules.yaml"
FINDINGS = "argus_l3_"
EXACT = "regression_split_timestamp_seconds"
"""What only the exact scan knows to the scrape."""

pytestmark = needs_promtool


def may_differ(subject: Path) -> bool:
    """Whether a subject may end otherwise on the portable rules, where LONG does not play it anyway."""
    text = subject.read_text(encoding="utf-8")
    return LONG or SCAN in text or "argus.*" in text or f"'{FINDINGS}" in text


@pytest.mark.parametrize("file", RULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_rules_are_valid_without_duplicates(file: Path) -> None:
    """promtool accepts the file, and lint finds nothing."""
    check = promtool("check", "rules", "--lint=all", "--lint-fatal", str(file))
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.beside_others
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.stem)
def test_subject(subject: Path) -> None:
    """Every scenario of one subject file ends as the file says."""
    play(document(subject))


def rules_of_flavour(folder: Path) -> dict[str, list[Any]]:
    """By file; several rules may have one name."""
    return {
        file.name: [
            rule
            for group in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)["groups"]
            for rule in group["rules"]
        ]
        for file in sorted(folder.glob("argus.*.yaml"))
    }


def test_the_flavours_differ_in_the_scan_and_in_alerts_about_the_worker_s_findings() -> None:
    """So a subject that neither scans nor has findings cannot end otherwise on the portable rules."""
    exact, portable = (rules_of_flavour(ROOT / folder) for folder in ("rules", "rules/portable"))
    assert exact.keys() == portable.keys()
    differing = {name for name in exact if exact[name] != portable[name]}
    assert differing == {SCAN, "argus.alerts.yaml"}
    for one, other in zip(exact["argus.alerts.yaml"], portable["argus.alerts.yaml"], strict=True):
        assert one == other or {f"{FINDINGS}anomaly", f"{FINDINGS}group_shift"} & set(
            re.findall(r"argus_\w+", one["expr"])
        )


@pytest.mark.beside_others
@pytest.mark.parametrize(
    "subject",
    [subject for subject in OF_PRODUCTION if may_differ(subject)],
    ids=lambda subject: subject.stem,
)
def test_subject_on_the_portable_rules(subject: Path) -> None:
    """Every scenario ends the same, a regression by at most a step of the fixed splits later.

    The long form plays those too whose rules are the same in both flavours.
    """
    play(on_the_portable_rules(document(subject)))


def promtool_version() -> tuple[int, ...]:
    if shutil.which("promtool") is None:
        return (0,)
    said = promtool("--version")
    found = re.search(r"version (\d+)\.(\d+)", said.stdout + said.stderr)
    return tuple(map(int, found.groups())) if found else (0,)


@pytest.mark.skipif(
    promtool_version() < (3, 5),
    reason="promtool is older than 3.5, which knows `__type__` (make prometheus; `make verify` plays it)",
)
def test_subjects_where_the_store_types_its_series() -> None:
    """The same ends where Prometheus runs with `type-and-unit-labels`: every scraped series has a type."""
    for subject in OF_PRODUCTION:
        play(with_types(document(subject)))


def document(subject: Path) -> Document:
    """What the file holds, with the paths of its rules made absolute."""
    found: Document = yaml.load(subject.read_text(encoding="utf-8"), yaml.CSafeLoader)
    files = [file for pattern in found["rule_files"] for file in sorted(subject.parent.glob(pattern))]
    assert files
    return found | {"rule_files": [str(file.resolve()) for file in files]}


def on_the_portable_rules(subject: Document) -> Document:
    files = [str(ROOT / "rules/portable" / Path(file).name) for file in subject["rule_files"]]
    for test in subject["tests"]:
        expressions = test.get("promql_expr_test", ())
        test["promql_expr_test"] = [one for one in expressions if EXACT not in one["expr"]]
        for one in test["promql_expr_test"]:
            if "ArgusIterationRegression" in str(one["exp_samples"]):
                one["eval_time"] = later(one["eval_time"], SPLITS_APART)
    return subject | {"rule_files": files}


def with_types(subject: Document) -> Document:
    """A type at every series of its input, but for recorded ones."""
    for series in (one for test in subject["tests"] for one in test["input_series"]):
        name, brace, labels = series["series"].partition("{")
        if ":" not in name:
            series["series"] = f'{name}{{__type__="gauge"{", " + labels if brace else "}"}'
    return subject


def later(time: str, seconds: int) -> str:
    """A time of promtool (18m15s), by so much."""
    parts = re.findall(r"(\d+)([hms])", time)
    return f"{sum(int(number) * {'h': 3600, 'm': 60, 's': 1}[unit] for number, unit in parts) + seconds}s"
