"""How the demo judges what was delivered."""

from __future__ import annotations

import dataclasses

import pytest

from argus_simulator.demo.plan import ONSET_STEP, plan
from argus_simulator.demo.story import Outcome
from argus_simulator.demo.truth import FAULT_PHASES, truth_of
from argus_simulator.demo.verdict import judge
from argus_simulator.engine.job import Job
from argus_simulator.stack import Notification

TRUTH = truth_of(3, "forward", 2.0)
DATA_TRUTH = truth_of(3, "data", 2.0)
RIGHT = {"alertname": "ArgusStragglerRank", "rank": "3", "cause": "gpu-compute", "team": "operations"}
KERNEL = {"alertname": "ArgusKernelDegraded", "cause": "gpu-compute", "team": "operations"}


def delivered(labels: dict[str, str], severity: str = "page", status: str = "firing") -> Notification:
    labels = {**labels, "severity": severity}
    return Notification(f"/{labels.get('team')}/{severity}", 1.0, status, labels, {}, 0.5)


def test_every_severity_of_one_accusation_counts_once():
    """info and page of the culprit are one finding."""
    verdict = judge(TRUTH, [delivered(RIGHT, "info"), delivered(RIGHT, "page")])
    assert verdict.found == (verdict.expected,)
    assert verdict.ok


@pytest.mark.parametrize(
    "wrong",
    [
        {**RIGHT, "rank": "4"},
        {**RIGHT, "cause": "host-cpu"},
        {**RIGHT, "alertname": "ArgusCollectiveLateRank", "cause": "collective-late"},
        {**RIGHT, "alertname": "ArgusGroupImbalance", "cause": "workload", "team": "algorithm"},
        {"alertname": "ArgusStragglerRank", "set": "tp:dp0", "cause": "gpu-compute", "team": "operations"},
        {"alertname": "ArgusCollectiveSlowLink", "group": "dp", "cause": "link-slow", "team": "operations"},
        KERNEL,
    ],
    ids=["rank", "cause", "late", "work", "set", "link", "kernels"],
)
@pytest.mark.parametrize("severity", ["info", "ticket", "page"])
def test_any_other_accusation_spoils_the_verdict(wrong: dict[str, str], severity: str):
    """However quiet, and beside the right one."""
    assert not judge(TRUTH, [delivered(RIGHT), delivered(wrong, severity)]).ok


def test_the_right_alert_to_the_wrong_team_is_wrong():
    """Routing is part of the finding."""
    assert not judge(TRUTH, [delivered({**RIGHT, "team": "algorithm"})]).ok


def test_kernels_are_told_of_those_whom_no_finding_names():
    """So an alert on kernels accuses others, whatever the phase."""
    right = {"alertname": "ArgusHostStall", "rank": "3", "cause": "data-input", "team": "algorithm"}
    assert judge(DATA_TRUTH, [delivered(right)]).ok
    assert not judge(DATA_TRUTH, [delivered(right), delivered(KERNEL, "info")]).ok
    assert not judge(TRUTH, [delivered(RIGHT), delivered(KERNEL, "ticket")]).ok


def test_nothing_found_is_not_ok():
    """Silence is a miss."""
    assert not judge(TRUTH, []).ok


def test_alerts_about_the_job_accuse_nobody():
    """A regression of the iteration time tells that, not who."""
    verdict = judge(TRUTH, [delivered(RIGHT), delivered({"alertname": "ArgusIterationRegression"}, "ticket")])
    assert verdict.ok
    assert verdict.other == ("ArgusIterationRegression",)


def test_resolved_alerts_are_not_counted():
    """Only what fires accuses."""
    assert judge(TRUTH, [delivered(RIGHT), delivered({**RIGHT, "rank": "4"}, status="resolved")]).ok


def test_the_last_line_has_found_expected_and_ok():
    """Its shape is what scripts read."""
    page = delivered(RIGHT)
    outcome = Outcome(judge(TRUTH, [page]), (), None, page)
    accusation = '{"alert": "ArgusStragglerRank", "rank": "3", "cause": "gpu-compute", "team": "operations"}'
    assert outcome.as_json() == f'{{"found": [{accusation}], "expected": {accusation}, "ok": true}}'


def test_an_accusation_in_the_healthy_part_is_not_ok():
    """Even the right one came before there was anything to find."""
    page = delivered(RIGHT)
    assert not Outcome(judge(TRUTH, [page]), (TRUTH.expected,), None, page).ok


@pytest.mark.slow
def test_every_story_costs_what_a_page_needs():
    """5 % of the time of the job, with room, whatever the phase and the factor."""

    def seconds(job: Job) -> float:
        job.jump(ONSET_STEP)
        return max(int(job.next_step().end_ns.max()) for _ in range(40)) / 1e9

    for seed in range(40):
        scenario = plan(seed).scenario
        faulty, healthy = seconds(scenario.job()), seconds(dataclasses.replace(scenario, faults={}).job())
        assert 1 - healthy / faulty > 0.06, scenario.faults


def test_seeds_reach_every_phase_and_many_ranks():
    """Twenty seeds tell different stories, and the same seed the same one."""
    stories = [plan(seed) for seed in range(20)]
    assert {story.truth.phase for story in stories} == set(FAULT_PHASES)
    assert len({story.truth.rank for story in stories}) >= 5
    assert plan(11) == plan(11)
