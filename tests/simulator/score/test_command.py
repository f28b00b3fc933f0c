"""`argus-simulator score`: scenarios in, a score out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from argus_simulator.cli import main
from argus_simulator.commands.score import product
from argus_simulator.score.results import ResultFile
from simulator.score.judged import finding, judged, result, said, truth
from simulator.score.test_results import RANK_3

SLOW = """
topology: {dp: 4}
faults: {throttled: {mechanism: kernels, ranks: [2], factor: 2.0, onset_step: 60}}
truth: {row: slow, findings: [{causes: [gpu-compute], team: operations, level: L2}]}
"""


@pytest.mark.servers
@pytest.mark.slow
def test_the_shipped_rules_are_scored_in_virtual_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Found, named alone, in minutes of the job; its cost told within 0.05 of the wall time."""
    scenario = tmp_path / "slow.yaml"
    scenario.write_text(SLOW)
    assert main(["score", "--suite", str(scenario), "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    figures = ("detection", "precision", "recall", "named_alone", "cause", "team")
    assert [score[figure] for figure in figures] == [1.0] * len(figures)
    assert (score["victims"], score["false_accusations"]) == (0.0, 0)
    assert 0 < score["first_right_name_p50_s"] == score["first_right_name_p90_s"] < 300
    [row] = score["rows"]
    assert row["cost"] == pytest.approx(row["effect"] / (1 + row["effect"]), abs=0.05)
    assert score["cost_error_p50"] < 0.05
    assert (score["source"], score["seeds"], score["held_out"]) == ("documented", 1, False)
    assert score["shapes"]["dp4"]["best_simple_f1"] is not None


def test_what_is_in_the_file_is_not_played_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The score of finished lines is there at once, and its last line is JSON."""
    scenario = tmp_path / "slow.yaml"
    scenario.write_text(
        "faults: {slow: {mechanism: kernels, where: rank, factor: 2}}\ntruth: {row: slow, findings: [{}]}\n"
    )
    found = judged(truth(finding()), said(RANK_3))
    lines = ResultFile(tmp_path / "lines", f"{product()}, signals hooks, virtual time")
    for seed in (4, 5):
        lines.add(result(found, row="slow", scenario="slow.yaml", seed=seed))
    arguments = ["score", "--suite", str(scenario), "--seed", "4-5", "--resume", str(tmp_path / "lines")]
    assert main(arguments) == 0
    printed = capsys.readouterr().out.strip().splitlines()
    assert json.loads(printed[-1])["detection"] == 1.0
    assert any("2 are in" in line for line in printed)


@pytest.mark.parametrize("seed", ["-1", "1000", "5-3", "a", "0-1000"])
def test_seeds_outside_the_development_range_are_refused(seed: str, capsys: pytest.CaptureFixture[str]):
    """Those above are held out."""
    with pytest.raises(SystemExit) as refused:
        main(["score", f"--seed={seed}"])
    assert refused.value.code == 2
    assert "from 0 to 999" in capsys.readouterr().err
