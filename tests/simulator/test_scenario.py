"""Scenario files: what is accepted, what a wrong one is told, and what the shipped ones promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus_core.settings import SettingsError
from argus_simulator.cli import main
from argus_simulator.lab import all_scenarios, load_scenario, shipped, variants


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_play(name: str):
    """Every variant makes a job; its truth names ranks of the job, or none where nobody is to blame."""
    for scenario in all_scenarios(name, seed=3):
        step = scenario.job().next_step()
        assert len(step.end_ns) == scenario.topology.build().ranks
        truth = scenario.truth
        assert truth.row
        assert truth.control == (not truth.findings)
        for finding in truth.findings:
            assert (finding.scope == "job") == (not finding.ranks)
            assert max(finding.ranks, default=0) < len(step.end_ns)
            assert finding.causes
            assert finding.onset_step < 1000
        assert scenario.training_job == "simulated"  # a name that tells nothing


def test_the_scenarios_of_issue_2_are_shipped():
    """By these names they are called."""
    assert {"healthy", "slow-forward", "slow-data", "late-collective"} <= set(shipped())


def test_a_seed_moves_the_fault_and_the_truth_together():
    """Which rank is hit is the seed's choice."""
    hit = {load_scenario("faults/gpu-throttle", seed=seed).truth.culprits for seed in range(12)}
    assert len(hit) > 4
    scenario = load_scenario("faults/gpu-throttle", seed=5)
    assert scenario.truth.culprits == set(scenario.faults["throttled"].ranks)
    assert load_scenario("faults/gpu-throttle", seed=5) == scenario


def test_magnitude_and_topology_replace_settings():
    """One file, several scenarios."""
    assert len(variants("faults/gpu-throttle")) == 12
    low = load_scenario("faults/gpu-throttle", magnitude="low", topology="pipeline")
    high = load_scenario("faults/gpu-throttle", magnitude="high")
    assert low.faults["throttled"].factor < high.faults["throttled"].factor
    assert (low.topology.pp, high.topology.pp) == (2, 1)


def test_a_group_finding_names_the_group_as_the_exporter_does(tmp_path: Path):
    """Members follow from the topology, whichever of them the fault names."""
    path = tmp_path / "s.yaml"
    path.write_text(
        "topology: {dp: 8, ep: 4}\n"
        "faults: {slow: {mechanism: link, ranks: [5], dimension: edp, factor: 3}}\n"
        "truth: {row: x, findings: [{scope: group, causes: [link-slow], team: operations}]}\n"
    )
    (finding,) = load_scenario(str(path)).truth.findings
    assert finding.groups == ("edp:pp0.tp0.ep1",)
    assert finding.ranks == (1, 5)


FAULT = "faults: {f: {mechanism: kernels, ranks: [1], factor: 2, "
RESTART = "faults: {r: {mechanism: restart, where: all, onset_step: 3, "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainin_job: x", r"unknown key trainin_job; did you mean training_job\?"),
        ("step_seconds: 0", "step_seconds is 0.0; allowed: 0.02 to 600"),
        ("seed: -1", "seed is -1; allowed: 0 or more"),
        ("topology: {dp: 0}", "topology.dp is 0; allowed: 1 or more"),
        ("topology: {ep: 3}", r"topology.ep is 3; allowed: a divisor of dp \(8\)"),
        ("topology: {dp: 300}", "allowed: 256 ranks together"),
        ("noise: {step_cv: 2}", "noise.step_cv is 2.0; allowed: 0 to 1"),
        ("noise: {family: cauchy}", "noise.family is 'cauchy'; allowed: lognormal, gamma"),
        ("faults: {f: {ranks: [1], factor: 2}}", "faults.f.mechanism is missing; allowed: kernels, link"),
        (
            "faults: {f: {mechanism: heat, ranks: [1]}}",
            "faults.f.mechanism is 'heat'; allowed: kernels, link",
        ),
        (
            "faults: {f: {mechanism: kernels, factor: 2}}",
            "faults.f.ranks: give exactly one of ranks and where",
        ),
        (
            "faults: {f: {mechanism: kernels, ranks: [8], factor: 2}}",
            r"faults.f.ranks has 8; allowed: 0 to 7",
        ),
        (FAULT + "seconds: 3}}", "faults.f.seconds means nothing to mechanism kernels; allowed .*factor"),
        (FAULT + "onset_step: 9, end_step: 9}}", "faults.f.end_step is 9; allowed: above onset_step"),
        ("faults: {f: {mechanism: data, ranks: [1], seconds: -1}}", "seconds is -1.0; allowed: 0 to 600"),
        ("faults: {f: {mechanism: data, where: rnak}}", "faults.f.where is 'rnak'; allowed: all | rank"),
        ("faults: {f: {mechanism: data, where: 9 ranks}}", "asks for 9 ranks; allowed: 1 to the 8"),
        ("faults: {f: {mechanism: data, where: stage 1}}", "stage 1; allowed: 0 to 0"),
        ("truth: {findings: [{of: [g]}]}", "truth.findings.0..of names 'g'; allowed: no fault exists"),
        ("truth: {control: true, findings: [{}]}", "truth.findings: a control has none"),
        ("magnitudes: {huge: {}}", "magnitudes has 'huge'; allowed: low, mid, high"),
        ("faults: {f: {mechanism: [kernels], where: rank}}", r"faults.f.mechanism is \['kernels'\]"),
        (
            "faults: {f: {mechanism: data, ranks: [0]}}\ntruth: {findings: [{scope: group, dimension: dq}]}",
            "truth.findings.0..dimension is 'dq'; allowed: .*dp",
        ),
        (RESTART + "dp: 3}}\ntopology: {ep: 2}", "faults.r.dp is 3: ep is 2; allowed: a divisor of dp"),
        (RESTART + "dp: 300}}", "faults.r.dp is 300: .*allowed: 256 ranks together"),
        (
            RESTART + "dp: 2}, f: {mechanism: data, ranks: [3], seconds: 1}}",
            "faults.f.ranks has 3; allowed: 0 to 1, as many as are left after a restart",
        ),
        ("topologies: [1]", "topologies must map names"),
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


def test_an_unknown_variant_is_answered_with_those_that_exist():
    """Of a file that has some, and of one that has none."""
    allowed = "dense, sharded, mesh, pipeline"
    with pytest.raises(SettingsError, match=f"topologies has no 'ring'; allowed: {allowed}"):
        load_scenario("faults/gpu-throttle", topology="ring")
    with pytest.raises(SettingsError, match="magnitudes has no 'low'; allowed: none"):
        load_scenario("healthy", magnitude="low")


def test_an_unknown_scenario_is_answered_with_the_shipped_ones():
    """A typing error is corrected at a glance."""
    with pytest.raises(SettingsError, match=r"slow-forwad: no such scenario; .*slow-forward"):
        load_scenario("slow-forwad")


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("all", 16), ("rank", 1), ("3 ranks", 3), ("25% of ranks", 4), ("host", 4), ("2 hosts", 8),
        ("rack", 8), ("stage last", 8), ("rank of stage first", 1), ("group ep", 2), ("half of group ep", 1),
        ("rank of group tp", 1), ("2 groups tp", 4), ("2 ranks of group dp", 2),
    ],
)  # fmt: skip
def test_ranks_are_chosen_by_topology(tmp_path: Path, where: str, count: int):
    """As many as the words say, by the seed, and the same for the same words."""
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "topology: {dp: 4, tp: 2, pp: 2, ep: 2, ranks_per_host: 4, hosts_per_rack: 2}\n"
        f"faults: {{a: {{mechanism: data, where: {where}}}, b: {{mechanism: launch, where: {where}}}}}\n"
    )
    chosen = {load_scenario(str(path), seed=seed).faults["a"].ranks for seed in range(8)}
    assert {len(ranks) for ranks in chosen} == {count}
    assert len(chosen) > 1 or where in ("all", "stage last")
    scenario = load_scenario(str(path), seed=5)
    assert scenario.faults["a"].ranks == scenario.faults["b"].ranks


def test_bad_input_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """One line on stderr, no traceback."""
    path = tmp_path / "scenario.yaml"
    path.write_text("seed: soon")
    assert main(["run", str(path), "--socket", str(tmp_path / "s")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_check_says_what_every_variant_is(capsys: pytest.CaptureFixture[str]):
    """Without an exporter."""
    assert main(["run", "--check", "faults/gpu-throttle"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 12
    assert told[0].startswith(
        "dense low: simulated: 16 ranks (dp16), steps of 0.5 s, seed 0; faults: kernels"
    )


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "healthy", "--seed", "-1"], ["run", "healthy", "--duration", "0"]]
)
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """And one line, for our own checks too."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("; see argus-simulator run --help\n")


def test_no_exporter_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The message says which command to start first."""
    assert main(["run", "healthy", "--socket", str(tmp_path / "s")]) == 2
    assert "argus-exporter serve --socket" in capsys.readouterr().err
