"""The command: scenarios in, a score out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from bench.play.__main__ import main

SCENARIO = """
step_seconds: 0.5
faults:
  throttled: {mechanism: kernels, ranks: [2], factor: 2.0, onset_step: 60}
topology: {dp: 4}
truth:
  row: slow
  findings:
    - {causes: [gpu-compute], team: operations, level: L2}
"""
SLOW_FORWARD = """
rate(argus_phase_duration_seconds_sum{phase="forward"}[2m]) > on (training_job) group_left ()
1.3 * min by (training_job) (rate(argus_phase_duration_seconds_sum{phase="forward"}[2m]))
"""


def a_rule(folder: Path) -> Path:
    """A folder with one alert: the rate of a phase's seconds against that of the fastest rank."""
    alert = {
        "alert": "ArgusStragglerRank",
        "expr": SLOW_FORWARD,
        "labels": {"severity": "page", "team": "operations", "cause": "gpu-compute"},
    }
    rules = folder / "rules"
    rules.mkdir()
    (rules / "own.yaml").write_text(yaml.safe_dump({"groups": [{"name": "own", "rules": [alert]}]}))
    return rules


@pytest.mark.servers
def test_a_slow_rank_is_injected_found_and_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """By any folder of rules: found as its onset, at minute 4, fills the two minutes; named alone."""
    scenario = tmp_path / "slow.yaml"
    scenario.write_text(SCENARIO)
    arguments = ["--rules", str(a_rule(tmp_path)), "--suite", str(scenario), "--processes", "1"]
    assert main(arguments) == 0
    *said, last = capsys.readouterr().out.strip().splitlines()
    score = json.loads(last)
    assert (score["detection"], score["precision"], score["recall"]) == (1, 1, 1)
    [row] = score["rows"]
    assert (row["named"], row["accusations"]) == ([2], [])
    assert 0 < row["seconds"] <= 90
    assert any("INJECTED kernels factor 2 rank 2" in line for line in said)
    assert any(line.split()[0].startswith("5:") and "page" in line for line in said)


def test_a_folder_without_rules_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Status 2, and the folder."""
    with pytest.raises(SystemExit, match="2"):
        main(["--rules", str(tmp_path)])
    assert str(tmp_path) in capsys.readouterr().err
