"""The flavour for engines whose evaluation differs: no pinned ends, no state, the same alert."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from rules.promtool import needs_promtool
from rules.scenario import ROOT, Scenario

pytestmark = needs_promtool


def test_nothing_is_pinned() -> None:
    """No `@` in any expression."""
    files = sorted((ROOT / "rules/portable").glob("*.yaml"))
    assert files
    for file in files:
        assert "@" not in file.read_text(encoding="utf-8"), file.name


@pytest.mark.beside_others
@pytest.mark.parametrize("factor", [1.25, 1.0])
def test_a_regression_is_found_at_a_fixed_split(factor: float) -> None:
    """25 % slower in the last half of 10 minutes: the ratio of the halves; else nothing."""
    job = Scenario(("job", "regression"), flavour="rules/portable")
    job.add("argus_rank_up", "1x60", rank=0)
    seconds = np.where(np.arange(60) < 25, 15.0, 15.0 * factor)
    for metric, steps in (
        ("argus_iteration_duration_seconds_count", np.full(60, 15.0)),
        ("argus_iteration_duration_seconds_sum", seconds),
        ("argus_iteration_duration_seconds_squared_total", seconds**2 / 15),
    ):
        job.add(metric, " ".join(f"{value:.12g}" for value in np.cumsum(steps)), rank=0)
    found = {'{window="10m"}': 1.25} if factor > 1 else {}
    # The totals are read 5 s late, so the change at 6m is at the split of 5 minutes from 11m15s on.
    ratio = 'job:argus_iteration:regression_ratio{window="10m"}'
    job.expect(f"round(max by (window) ({ratio}), 1e-6)", "11m15s", found)
    job.run()


@pytest.mark.skipif(
    shutil.which("vmalert") is None, reason="vmalert is not on PATH (part of Debian's victoria-metrics)"
)
@pytest.mark.servers
def test_vmalert_accepts_every_file() -> None:
    """It refuses a whole file for one field that it does not know (`keep_firing_for`, before 1.92)."""
    check = subprocess.run(
        ["vmalert", "-dryRun", f"-rule={ROOT / 'rules/portable/*.yaml'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr[-2000:]
