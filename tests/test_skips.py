"""CI fails when something skips that may not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
SKIPPING = """\
import pytest

def test_passes(): pass

def test_skips(): pytest.skip({reason!r})
"""


@pytest.mark.parametrize(
    ("reason", "ci", "status"),
    [
        ("no promtool here", "true", 1),
        ("no promtool here", "", 0),
        ("no NVIDIA GPU", "true", 0),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "with workers"])
def test_a_skip_that_is_not_on_the_list_fails_ci(
    tmp_path: Path, reason: str, ci: str, status: int, workers: list[str]
) -> None:
    """By its reason, and also where the tests run in other processes."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "test_one.py").write_text(SKIPPING.format(reason=reason))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("not in tests/skips.py" in done.stdout) is bool(status)
