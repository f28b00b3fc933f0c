"""Scenario files: what is accepted, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_core.settings import SettingsError
from argus_simulator.cli import main
from argus_simulator.scenario import load_scenario, shipped
from argus_simulator.truth import truth_of


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_load(name: str):
    """Each one makes a job, and its faults have an expected accusation."""
    scenario = load_scenario(name)
    assert len(scenario.job().next_step()) == 8
    for fault in scenario.faults.items():
        assert truth_of(*fault).expected.rank


def test_the_scenarios_of_issue_2_are_shipped():
    """By these names they are called."""
    assert {"healthy", "slow-forward", "slow-data", "late-collective"} <= set(shipped())


FAULT = "faults: {f: {rank: 1, phase: forward, factor: 2, "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainin_job: x", r"unknown key trainin_job; did you mean training_job\?"),
        ("step_seconds: 0", "step_seconds is 0.0; allowed: 0.02 to 600"),
        ("seed: -1", "seed is -1; allowed: 0 or more"),
        ("topology: {dp: 0}", "topology.dp is 0; allowed: 1 or more"),
        ("topology: {pp: 2}", "topology.pp is 2; allowed: 1 "),
        ("topology: {dp: 300}", "at most 256 ranks"),
        ("noise: {step_cv: 2}", "noise.step_cv is 2.0; allowed: 0 to 1"),
        ("faults: {f: {phase: forward, factor: 2}}", r"faults.f.rank is -1; allowed: a rank of the topology"),
        ("faults: {f: {rank: 8, phase: forward, factor: 2}}", "faults.f.rank is 8; allowed: 0 to 7"),
        (
            "faults: {f: {rank: 1, phase: attention, factor: 2}}",
            "faults.f.phase is 'attention'; allowed: .*forward",
        ),
        ("faults: {f: {rank: 1, factor: 2}}", "exactly one of phase, kernels and late_seconds"),
        ("faults: {f: {rank: 1, kernels: '*nothing*', factor: 2}}", "matches no simulated kernel"),
        ("faults: {f: {rank: 1, phase: data, factor: 0.5}}", "faults.f.factor is 0.5; allowed: 1 to 1000"),
        (FAULT + "onset_step: 9, end_step: 9}}", "faults.f.end_step is 9; allowed: above onset_step"),
        ("[1, 2]", "must be a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_wrong_scenario_is_refused_with_file_key_and_what_is_allowed(
    tmp_path: Path, text: str, message: str
):
    """The person who wrote the file can correct it from the message alone."""
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message) as error:
        load_scenario(str(path))
    assert str(path) in str(error.value)


def test_an_unknown_scenario_is_answered_with_the_shipped_ones():
    """A typing error is corrected at a glance."""
    with pytest.raises(SettingsError, match=r"slow-forwad: no such scenario; .*slow-forward"):
        load_scenario("slow-forwad")


def test_bad_input_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """One line on stderr, no traceback."""
    path = tmp_path / "scenario.yaml"
    path.write_text("seed: soon")
    assert main(["run", str(path), "--socket", str(tmp_path / "s")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "healthy", "--seed", "-1"], ["run", "healthy", "--duration", "0"], []]
)
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """argparse's own status, for our own checks too."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_no_exporter_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The message says which command to start first."""
    assert main(["run", "healthy", "--socket", str(tmp_path / "s")]) == 2
    assert "argus-exporter serve --socket" in capsys.readouterr().err
