"""From the fault to the alert: `info` in a minute, `page` in less than four; here in a tenth of that."""

from __future__ import annotations

import pytest

from argus_simulator.demo.plan import plan
from argus_simulator.demo.training import SimulatedTraining
from argus_simulator.stack import Notification, Stack
from argus_simulator.stack.pace import SECOND_S
from e2e.conftest import delivered

pytestmark = pytest.mark.e2e

INFO_S, LASTING_S, PAGE_S = 60 * SECOND_S, 180 * SECOND_S, 225 * SECOND_S
"""What is promised. A loss must last before it is a page; one evaluation in twelve may be missed."""
SEED = 1  # rank 1 takes 1.83 times as long in forward


def first(stack: Stack, alert: str, severity: str) -> Notification | None:
    """The first delivery of the alert at that severity."""
    found = [n for n in stack.notifications() if n.alert == alert and n.labels["severity"] == severity]
    return found[0] if found else None


def test_a_slow_rank_is_info_at_once_and_a_page_after_persistence(stack: Stack):
    """Counted from the end of the first slow step, whose span is the first that tells of the fault."""
    training = SimulatedTraining(plan(SEED))
    truth = training.truth
    alert = truth.expected.alert
    training.start(stack)
    try:
        page = stack.wait_for(lambda: training.check() or first(stack, alert, "page"), 120, "the page")
        info = first(stack, alert, "info")
        onset = training.onset()
        assert info is not None
        assert onset is not None
        slow_step_s = stack.query('max(argus_iteration_window_max_seconds{training_job="demo"})')[0][1]
        to_info, to_page = info.starts_at - onset, page.starts_at - onset
        print(f"info {to_info:.1f} s, page {to_page:.1f} s after the fault began")
        assert to_info <= slow_step_s + INFO_S
        assert LASTING_S * 11 / 12 <= to_page <= slow_step_s + PAGE_S
        assert delivered(stack, "demo", alert) == {
            ("/info", str(truth.rank)),
            (f"/{truth.expected.team}/page", str(truth.rank)),
        }
    finally:
        training.stop()
