"""The change-point scan on histories that it once got wrong: large steps, and noise that looks calm."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rules.scenario import STEP, STORIES, Scenario

pytestmark = STORIES
Floats = NDArray[np.float64]
MINUTES = 16
RATIO = 'max by (training_job) (max_over_time(job:argus_iteration:regression_ratio{window="10m"}[%s]))'


def scraped(job: Scenario, durations: Floats) -> None:
    """The totals of a job whose iterations follow one another, at each scrape."""
    scrapes = np.arange(0.0, MINUTES * 60 + 1, STEP)
    ended = np.searchsorted(np.cumsum(durations), scrapes, side="right")
    for metric, each in (
        ("argus_iteration_duration_seconds_count", np.ones_like(durations)),
        ("argus_iteration_duration_seconds_sum", durations),
        ("argus_iteration_duration_seconds_squared_total", durations**2),
    ):
        totals = np.concatenate([[0.0], np.cumsum(each)])[ended]
        job.add(metric, " ".join(f"{total:.12g}" for total in totals), rank=0)
    job.add("argus_rank_up", f"1x{len(scrapes)}", rank=0)


@pytest.mark.parametrize(("flavour", "factor"), [("rules", 1.4), ("rules", 2.7), ("rules/portable", 2.7)])
def test_a_large_step_is_seen_as_well_as_a_small_one(flavour: str, factor: float) -> None:
    """It lies within a scrape interval: a side that held part of it had too large a deviation."""
    job = Scenario(("job", "regression"), flavour=flavour)
    durations = np.random.default_rng(1).normal(1.0, 0.02, MINUTES * 60)
    # Within the interval that ends at 8m, which holds some of either pace.
    durations[470:] *= factor
    scraped(job, durations)
    # All three minutes long, in which a fixed split comes by once.
    job.expect(f"{RATIO % '3m'} > bool {1 + 0.95 * (factor - 1)}", "15m", {'{training_job="a"}': 1})
    job.expect(f"{RATIO % '3m'} > bool {1 + 1.05 * (factor - 1)}", "15m", {'{training_job="a"}': 0})
    job.run()


@pytest.mark.parametrize("seed", [6, 105])
def test_noise_is_no_regression(seed: int) -> None:
    """Eight iterations sometimes look far calmer than they are."""
    job = Scenario(("job", "regression"))
    scraped(job, np.random.default_rng(seed).normal(2.0, 0.12, 600))
    job.expect(RATIO % "16m", "16m", {})
    job.run()
