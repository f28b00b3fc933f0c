"""`argus-simulator score` where nothing is left to play."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from argus_simulator.cli import main
from argus_simulator.commands.score import product
from argus_simulator.score.results import ResultFile
from simulator.score.judged import finding, judged, result, said, truth
from simulator.score.test_results import RANK_3


def test_what_is_in_the_file_is_not_played_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The score of finished lines is there at once, and its last line is JSON."""
    scenario = tmp_path / "slow.yaml"
    scenario.write_text(
        "faults: {slow: {mechanism: kernels, where: rank, factor: 2}}\ntruth: {row: slow, findings: [{}]}\n"
    )
    found = judged(truth(finding()), said(RANK_3))
    lines = ResultFile(tmp_path / "lines", f"{product()}, signals hooks")
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
