"""Intervals of shares and rates."""

from __future__ import annotations

import pytest

from argus_simulator.score.intervals import poisson_upper, wilson


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(50, 100, 0.4038, 0.5962), (10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_intervals_are_those_of_the_tables(hits: int, trials: int, low: float, high: float):
    """Known values, the ends among them, where the plain normal interval has no width."""
    assert wilson(hits, trials) == pytest.approx((low, high), abs=1e-4)


def test_without_trials_nothing_is_known():
    """Any share is possible."""
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("events", "bound"), [(0, 2.9957), (1, 4.7439), (10, 16.9622), (100, 118.079)])
def test_poisson_bounds_are_those_of_the_tables(events: int, bound: float):
    """The rule of three for none, chi-squared quantiles for more."""
    assert poisson_upper(events) == pytest.approx(bound, abs=1e-3)
