"""EROICA's two distances: by the letter of the equations where they hold, and with the repairs where not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_l3_worker.judge.eroica import distances


def fleet(ranks: int, beta: float = 0.2, variation: float = 0.05, seed: int = 0) -> np.ndarray:
    """(beta, mu, sigma) of healthy ranks; this coefficient of variation in sigma, 2 % in the others."""
    random = np.random.default_rng(seed)
    noise = 1.0 + np.array([0.02, 0.02, variation]) * random.standard_normal((ranks, 3))
    return np.clip(np.array([beta, 0.6, 0.1]) * noise, 0.0, 1.0)


def by_the_letter(patterns: np.ndarray) -> np.ndarray:
    """Equations 8-10 with all ranks as peers and the maximum as the norm."""
    normal = patterns / patterns.max(axis=0)
    apart = np.abs(normal[:, None, :] - normal[None, :, :]).sum(axis=2)
    return (apart >= 0.4).mean(axis=1)


def test_differential_distance_is_that_of_the_paper_where_no_rank_is_extreme() -> None:
    """64 ranks, all of them peers: the same ranks differ from most others."""
    patterns = fleet(64)
    patterns[5, 0] *= 1.8
    found = distances(patterns, "compute")
    assert found.differential[5] == pytest.approx(by_the_letter(patterns)[5], abs=0.05)
    assert found.abnormal.tolist() == [rank == 5 for rank in range(64)]


def test_healthy_ranks_are_not_abnormal() -> None:
    """Coefficients of variation of 2-10 % in sigma, 10,000 ranks: at most 2e-4."""
    for variation in (0.02, 0.05, 0.1):
        assert distances(fleet(10_000, variation=variation), "compute").abnormal.mean() <= 2e-4


def test_a_tight_fleet_does_not_flag_one_peers_difference() -> None:
    """A deviation of 0 is no reason to flag whoever differs from a single peer."""
    patterns = np.full((200, 3), 0.2)
    patterns[0] *= [1.5, 1.0, 1.0]
    found = distances(patterns, "compute")
    assert found.abnormal.tolist() == [rank == 0 for rank in range(200)]


def test_one_extreme_rank_does_not_hide_the_others() -> None:
    """One rank at 10x, twenty at 2x: under the maximum norm the twenty look alike, here all 21 are found."""
    patterns = fleet(1000, beta=0.08)
    patterns[:20, 0] *= 2.0
    patterns[20, 0] *= 10.0
    found = np.flatnonzero(distances(patterns, "compute").abnormal)
    assert found.tolist() == list(range(21))
    assert (by_the_letter(patterns)[:20] < 0.5).all()


@pytest.mark.parametrize(
    ("class_", "beta", "expected"),
    [
        ("host", 0.2, 0.19),
        ("host", 0.009, 0.0),
        ("comm", 0.35, 0.05),
        ("comm", 0.25, 0.0),
        ("compute", 0.9, 0.0),
    ],
)
def test_distance_from_expectation(class_: str, beta: float, expected: float) -> None:
    """Host functions may hold 1 % of the path, collectives 30 %, kernels all of it (equation 6)."""
    found = distances(np.full((8, 1), beta), class_)
    assert found.expectation == pytest.approx(expected)
    assert found.abnormal.all() == (expected > 0.0)


def test_all_ranks_loading_slowly_is_a_common_problem() -> None:
    """Nobody differs, everybody is outside the expected range: EROICA case 1, problem 1."""
    found = distances(np.full((64, 1), 0.15), "host")
    assert found.abnormal.all()
    assert not found.differential.any()


def test_rare_functions_raise_nothing() -> None:
    """Under 1 % of the path a function may differ as it likes."""
    patterns = np.full((64, 1), 0.002)
    patterns[3] = 0.009
    assert not distances(patterns, "compute").abnormal.any()


@pytest.mark.parametrize(
    "patterns", [np.zeros((0, 1)), np.zeros((4, 2)), np.full((4, 1), 1.5), np.full((4, 1), np.nan)]
)
def test_what_is_no_pattern_is_refused(patterns: np.ndarray) -> None:
    """Empty, of two dimensions, outside [0, 1], unknown."""
    with pytest.raises(ValueError, match="patterns"):
        distances(patterns, "compute")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_renaming_ranks_renames_distances(seed: int) -> None:
    """With all ranks as peers."""
    patterns = fleet(40, seed=seed)
    patterns[0, 0] *= 2.0
    order = np.random.default_rng(seed).permutation(40)
    plain, moved = distances(patterns, "compute"), distances(patterns[order], "compute")
    assert moved.differential == pytest.approx(plain.differential[order])
