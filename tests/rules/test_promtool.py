"""The promtool checks and the promtool tests of the generated rules."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rules.scenario import needs_promtool

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted(
    [*ROOT.glob("rules/*.yaml"), *ROOT.glob("rules/test/*.yaml"), *ROOT.glob("rules/portable/*.yaml")]
)
SUBJECTS = sorted(ROOT.glob("rules/tests/*.yaml"))

pytestmark = needs_promtool


@pytest.mark.parametrize("file", RULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_rules_are_valid_without_duplicates(file: Path) -> None:
    """promtool accepts the file, and lint finds nothing."""
    check = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.stem)
def test_subject(subject: Path) -> None:
    """Every scenario of one subject file ends as the file says."""
    run = subprocess.run(
        ["promtool", "test", "rules", subject.name],
        cwd=subject.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
