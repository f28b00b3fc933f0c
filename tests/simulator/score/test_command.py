"""`argus-simulator score`: scenarios in, a score out."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import pytest

from argus_simulator.cli import main
from argus_simulator.commands import score
from argus_simulator.commands.score import product
from argus_simulator.score.results import ResultFile
from argus_simulator.score.scene import SHIPPED, Scene
from argus_simulator.score.suites import held_out_seeds, playables
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
    digest = score.files([Scene(one) for one in playables(str(scenario), [4])])
    lines = ResultFile(tmp_path / "lines", f"{product()}{digest}, signals hooks, virtual time")
    for seed in (4, 5):
        lines.add(result(found, row="slow", scenario=str(scenario), seed=seed))
    arguments = ["score", "--suite", str(scenario), "--seed", "4-5", "--resume", str(tmp_path / "lines")]
    assert main(arguments) == 0
    printed = capsys.readouterr().out.strip().splitlines()
    assert json.loads(printed[-1])["detection"] == 1.0
    assert any("2 are in" in line for line in printed)


def test_a_file_that_changed_is_played_again(tmp_path: Path):
    """Shipped ones are part of the product; two files of one name are two scenarios."""
    one, other = tmp_path / "a" / "x.yaml", tmp_path / "b" / "x.yaml"
    for file in (one, other):
        file.parent.mkdir()
        file.write_text("faults: {}\n")
    scenes = [Scene(playable) for file in (one, other) for playable in playables(str(file), [0])]
    assert len({scene.key for scene in scenes}) == 2
    before = score.files(scenes)
    one.write_text("step_seconds: 2\n")
    assert score.files(scenes) != before != ""
    assert score.files([Scene(playable) for playable in playables("gpu-throttle", [0])]) == ""


def test_a_product_is_a_commit_and_what_was_changed_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each change is another product, also a rule file that git does not know yet; held-out seeds stay."""
    monkeypatch.setenv("ARGUS_REPO", str(tmp_path))
    rules, notes = tmp_path / "rules" / "one.yaml", tmp_path / "lines"
    for folder in ("rules", "alertmanager"):
        (tmp_path / folder).mkdir()
    rules.write_text("1")

    def git(*arguments: str) -> None:
        named = ("-c", "user.name=n", "-c", "user.email=e")
        subprocess.run(["git", *named, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = product()
    assert len(clean) == 40
    notes.write_text("a file of results")
    assert product() == clean
    options = score_options("--held-out", "2")
    seeds = {scene.seed for scene in score.chosen(options, SHIPPED)}
    rules.write_text("2")
    second = product()
    rules.write_text("3")
    third = product()
    assert {scene.seed for scene in score.chosen(options, SHIPPED)} == seeds == {*held_out_seeds(clean, 2)}
    rules.write_text("1")
    (tmp_path / "rules" / "two.yaml").write_text("1")
    fourth = product()
    assert len({clean, second, third, fourth}) == 4
    assert all(one.startswith(f"{clean}-dirty-") for one in (second, third, fourth))


def score_options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    score.add_arguments(parser)
    return parser.parse_args(["--suite", "smoke", *arguments])


def test_a_score_is_of_what_was_there_when_it_began(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Whoever commits while it is played changes the name of nothing that was played."""
    products = iter(["before"])
    monkeypatch.setattr(score, "product", lambda: next(products, "after"))
    monkeypatch.setattr(score, "_fast", lambda *_, **__: [])
    assert main(["score", "--suite", "healthy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["product"] == "before"


@pytest.mark.parametrize("seed", ["-1", "1000", "5-3", "a", "0-1000"])
def test_seeds_outside_the_development_range_are_refused(seed: str, capsys: pytest.CaptureFixture[str]):
    """Those above are held out."""
    with pytest.raises(SystemExit) as refused:
        main(["score", f"--seed={seed}"])
    assert refused.value.code == 2
    assert "from 0 to 999" in capsys.readouterr().err
