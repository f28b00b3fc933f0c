"""The generated files: what promtool and vmalert make of them, and that the demo's differ in time alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rules.promtool import needs_promtool, promtool

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("rules/*.yaml"), *ROOT.glob("rules/test/*.yaml")])


@needs_promtool
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_rules_are_valid_without_duplicates(file: Path) -> None:
    """promtool accepts the file, and lint finds nothing."""
    check = promtool("check", "rules", "--lint=all", "--lint-fatal", str(file))
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.servers
@pytest.mark.skipif(
    shutil.which("vmalert") is None, reason="vmalert is not on PATH (part of Debian's victoria-metrics)"
)
def test_vmalert_accepts_every_file() -> None:
    """It refuses a whole file for one field that it does not know (`keep_firing_for`, before 1.92)."""
    check = subprocess.run(
        ["vmalert", "-dryRun", f"-rule={ROOT / 'rules/*.yaml'}"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr[-2000:]
