"""The rules of the score (docs/fault-lab.md), one by one."""

from __future__ import annotations

import pytest

from argus_simulator.score.claims import claims_of
from argus_simulator.score.job_timeline import JobTimeline
from argus_simulator.score.judging import judge_healthy
from argus_simulator.score.scene import SHIPPED
from simulator.score.judged import (
    JOB,
    ONSET,
    ONSET_STEP,
    SLOW,
    STEP_S,
    TIMELINE,
    finding,
    judged,
    members,
    said,
    truth,
)

RANK_3 = {**SLOW, "rank": "3"}
RANK_4 = {**SLOW, "rank": "4"}
REGRESSION = {"alertname": "ArgusIterationRegression", "team": "infrastructure"}
LINK = {
    "alertname": "ArgusCollectiveSlowLink",
    "group": "tp:dp0.pp0",
    "cause": "link-slow",
    "team": "operations",
}
ONE = truth(finding())


def test_the_right_page_is_right_in_everything():
    """Found, exactly the rank, cause and team, in steps from the onset."""
    found = judged(ONE, said(RANK_3, at=ONSET + 3))
    assert found.detected
    assert (found.precision, found.recall, found.cause_right, found.team_right) == (1, 1, True, True)
    assert (found.steps, found.seconds) == (3 / STEP_S, 3)
    assert (found.victims, found.accusations) == ((), ())
    assert found.healthy_hours == pytest.approx(ONSET_STEP * STEP_S / 3600)


def test_silence_is_a_miss():
    """Wrong in recall, cause and team; precision is unknown, as nobody was accused."""
    found = judged(ONE)
    assert (found.detected, found.steps, found.precision, found.recall) == (False, None, None, 0)
    assert (found.cause_right, found.team_right) == (False, False)


def test_an_info_is_no_detection():
    """Only what is above info reaches somebody."""
    found = judged(ONE, said(RANK_3, "info"))
    assert not found.detected
    assert found.recall == 0


def test_an_info_that_names_a_victim_costs_precision():
    """However quiet."""
    found = judged(ONE, said(RANK_3), said(RANK_4, "info"))
    assert (found.precision, found.recall, found.victims) == (0.5, 1, (4,))


def test_a_job_wide_alert_finds_the_fault_but_not_the_rank():
    """Detected, localisation and cause unknown."""
    found = judged(ONE, said(REGRESSION))
    assert (found.detected, found.precision, found.recall) == (True, None, 0)
    assert (found.causes, found.cause_right, found.team_right) == ((), False, False)


def test_an_alert_from_before_the_onset_detects_nothing():
    """It is a false accusation, even of the right rank."""
    found = judged(ONE, said(RANK_3, at=ONSET - 5))
    assert not found.detected
    assert found.accusations == ("page ArgusStragglerRank rank 3 (gpu-compute forward)",)


def test_after_the_fault_and_its_windows_nothing_counts():
    """The interval ends a window and an evaluation after the last faulty step."""
    short = truth(finding(end_step=ONSET_STEP + 40))
    end = ONSET + 40 * STEP_S
    assert judged(short, said(RANK_3, at=end + 13.4)).detected
    assert not judged(short, said(RANK_3, at=end + 13.6)).detected


def test_the_shipped_rules_have_longer_windows():
    """Two minutes and an evaluation of 15 s, at steps of whatever length."""
    short = truth(finding(end_step=ONSET_STEP + 40))
    end = ONSET + 40 * STEP_S
    assert judged(short, said(RANK_3, at=end + 134), pace=SHIPPED).detected
    assert not judged(short, said(RANK_3, at=end + 136), pace=SHIPPED).detected


def test_some_of_the_culprits_are_some_recall():
    """Two of four ranks, none wrongly."""
    found = judged(truth(finding((1, 2, 3, 4))), said(RANK_3), said(RANK_4))
    assert (found.precision, found.recall) == (1, 0.5)


def test_an_exact_group_is_right():
    """Members named together."""
    found = judged(truth(finding((0, 1, 2, 3), "group", ("link-slow",))), said(LINK))
    assert (found.precision, found.recall, found.cause_right, found.victims) == (1, 1, True, ())


def test_one_member_of_a_group_is_a_part_of_it():
    """Precision 1, recall 1 / size."""
    found = judged(truth(finding((0, 1, 2, 3), "group")), said(RANK_3))
    assert (found.precision, found.recall) == (1, 0.25)


def test_a_group_accuses_its_healthy_members():
    """Four named where one is to blame."""
    found = judged(ONE, said(LINK))
    assert (found.precision, found.recall, found.victims) == (0.25, 1, (0, 1, 2))


def test_a_job_wide_fault_is_right_only_without_a_rank():
    """The regression alone is right; beside a named rank it is not."""
    everybody = truth(finding((), "job", ("overlap-config",), "infrastructure"))
    alone = judged(everybody, said(REGRESSION))
    assert (alone.precision, alone.recall, alone.team_right) == (1, 1, True)
    named = judged(everybody, said(REGRESSION), said(RANK_3, "info"))
    assert (named.precision, named.recall, named.victims) == (0, 0, (3,))


def test_the_page_decides_cause_and_team():
    """Tickets beside it do not: the engineer reads the page first. Two pages must both be right."""
    other = {**RANK_3, "cause": "host-cpu", "team": "algorithm"}
    assert judged(ONE, said(RANK_3), said(other, "ticket")).cause_right
    both = judged(ONE, said(RANK_3), said(other))
    assert (both.cause_right, both.team_right) == (False, False)


def test_of_several_faults_none_may_be_masked():
    """Each cause must be heard, if only in a ticket."""
    loader = {"alertname": "ArgusHostStall", "rank": "4", "cause": "data-input", "team": "algorithm"}
    two = truth(finding((3,)), finding((4,), causes=("data-input",), team="algorithm"))
    assert judged(two, said(RANK_3), said(loader, "ticket")).cause_right
    assert not judged(two, said(RANK_3)).cause_right


def test_a_control_may_only_be_told_info_without_a_rank():
    """Info about the job is harmless; a rank, or anything louder, is an accusation."""
    uneven = {"alertname": "ArgusGroupImbalance", "team": "algorithm", "group": "dp:pp0.tp0"}
    control = truth(control=True)
    assert judged(control, said(uneven, "info")).accusations == ()
    assert len(judged(control, said(uneven, "ticket")).accusations) == 1
    assert len(judged(control, said(RANK_3, "info")).accusations) == 1
    assert judged(control).detected is None


def test_a_control_may_allow_an_alert_by_name():
    """A missing rank is missing, whatever else is right."""
    missing = {"alertname": "ArgusRankMissing", "rank": "3", "team": "operations"}
    assert (
        judged(truth(control=True, allowed=("ArgusRankMissing",)), said(missing, "ticket")).accusations == ()
    )
    assert len(judged(truth(control=True), said(missing, "ticket")).accusations) == 1


def test_incidents_are_counted_and_alerts_too():
    """Two ranks at once are one incident of two alerts."""
    found = judged(truth(control=True), said(RANK_3), said(RANK_4))
    assert (len(found.accusations), found.alerts) == (1, 2)
    assert found.healthy_hours == pytest.approx((TIMELINE.end - TIMELINE.start) / 3600)


def test_the_run_before_is_healthy_time():
    """What is said in the history that a fault is compared with is false, and its hours count."""
    before = judge_healthy(
        ONE, TIMELINE.start - 65, TIMELINE.start, claims_of(JOB, [said(RANK_3, at=950)], members)
    )
    found = judged(ONE, said(RANK_3)).after(before)
    assert (found.detected, len(found.accusations), found.alerts) == (True, 1, 1)
    assert found.healthy_hours == pytest.approx((65 + ONSET_STEP * STEP_S) / 3600)


def test_alerts_about_argus_find_no_fault():
    """Records that are dropped tell nothing about the training."""
    dropped = {"alertname": "ArgusRecordsDropped", "team": "infrastructure"}
    assert not judged(ONE, said(dropped, "ticket")).detected
    assert judged(truth(control=True), said(dropped, "ticket")).accusations == ()


def test_a_job_that_hangs_has_no_more_steps():
    """Time still passes: the stall is found after as many steps as there would have been."""
    hang = JobTimeline(TIMELINE.start, TIMELINE.end, TIMELINE.step_ends[:ONSET_STEP])
    stalled = {**RANK_3, "alertname": "ArgusTrainingStalled"}
    found = judged(ONE, said(stalled, at=ONSET + 12), timeline=hang)
    assert (found.detected, found.steps, found.seconds) == (True, 12 / STEP_S, 12)
