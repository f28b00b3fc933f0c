"""Known modes come back, on the designs of bench/mode_designs.py (seeded)."""

import numpy as np
import pytest
from bench.modes import quality


@pytest.fixture(scope="module")
def scores():
    """Two windows of every design: about 1,900 windows a method."""
    return quality(np.random.default_rng(20), repeats=2)


@pytest.mark.parametrize("outliers", [0.0, 0.01])
def test_three_modes_are_counted_exactly(scores, outliers):
    """A third mode 10x away: the exact count in at least 90 % of windows (measured 96-98 %)."""
    assert scores["recursive", "third 10x away", outliers]["exact_k"] >= 0.90


def test_the_literal_method_is_the_worse_one_there(scores):
    """27 % by the paper's formula: the reason for the default."""
    assert scores["scott (paper)", "third 10x away", 0.0]["exact_k"] <= 0.40


@pytest.mark.parametrize("outliers", [0.0, 0.01])
def test_one_mode_is_not_split(scores, outliers):
    """A single log-normal of any width and size is one mode (measured 100 %, 99 % with outliers)."""
    assert scores["recursive", "one mode", outliers]["exact_k"] >= 0.97


def test_modes_over_all_designs(scores):
    """F1 of modes at their true places, and exact counts (measured 0.97 and 0.96, outliers or not)."""
    for outliers in (0.0, 0.01):
        assert scores["recursive", "all", outliers]["mode_f1"] >= 0.95
        assert scores["recursive", "all", outliers]["exact_k"] >= 0.93


def test_triples_rebuild_the_distribution(scores):
    """p25 to p95 within 2 % of the sample's own (measured 90 % of windows clean, 86 % with outliers)."""
    assert scores["recursive", "all", 0.0]["p25_p95_within_2pct"] >= 0.86
    assert scores["recursive", "all", 0.01]["p25_p95_within_2pct"] >= 0.83
