"""From the fault to the alert: two scrapes and two evaluations to `info`, `page` after persistence."""

from __future__ import annotations

import pytest

from argus_simulator.demo.plan import plan
from argus_simulator.demo.training import SimulatedTraining
from argus_simulator.stack import Notification, Stack
from e2e.conftest import delivered

pytestmark = pytest.mark.e2e

SCRAPE_S = EVALUATION_S = 1.0
PERSISTENCE_EVALUATIONS = 3
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
        # Scrape and evaluation are not in step with one another: the second evaluation may just have missed
        # the second scrape, and Prometheus stamps an alert with the time its evaluation was due.
        assert to_info <= slow_step_s + 2 * SCRAPE_S + 2 * EVALUATION_S
        assert to_page - to_info >= (PERSISTENCE_EVALUATIONS - 1) * EVALUATION_S
        assert delivered(stack, "demo", alert) == {
            ("/info", str(truth.rank)),
            (f"/{truth.expected.team}/page", str(truth.rank)),
        }
    finally:
        training.stop()
