"""W1 scores: closed forms, fine quadrature, the metric's axioms, and the fence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from argus_core import native
from argus_l3_worker.judge.wasserstein import Mixtures, grid, mean_distances, upper_fence
from argus_l3_worker.triples import Floats


def one_component(mu: list[float], sigma: list[float]) -> Mixtures:
    ones = np.ones((len(mu), 1))
    return Mixtures(ones, np.array(mu)[:, None], np.array(sigma)[:, None])


def random_mixtures(seed: int, ranks: int, modes: int) -> Mixtures:
    random = np.random.default_rng(seed)
    weight = random.dirichlet(np.ones(modes), ranks)
    mu = np.sort(random.uniform(math.log(1e-5), math.log(1e-2), modes)) + 0.1 * random.standard_normal(
        (ranks, modes)
    )
    return Mixtures(weight, mu, random.uniform(0.005, 0.2, (ranks, modes)))


def pair_distance(mixtures: Mixtures, a: int, b: int) -> float:
    chosen = Mixtures(mixtures.weight[[a, b]], mixtures.mu[[a, b]], mixtures.sigma[[a, b]])
    return float(mean_distances(chosen, grid(mixtures))[0])


def closed_form(mu: tuple[float, float], sigma: tuple[float, float]) -> float:
    """W1 of two log-normals in seconds: split at the crossing z*, with partial expectations."""
    (mu_a, mu_b), (sigma_a, sigma_b) = mu, sigma

    def parts(m: float, s: float, z: float) -> tuple[float, float]:
        mean = math.exp(m + s * s / 2.0)
        below = mean * norm.cdf(z - s)
        return below, mean - below

    z = (mu_b - mu_a) / (sigma_a - sigma_b) if sigma_a != sigma_b else 40.0
    a, b = parts(mu_a, sigma_a, z), parts(mu_b, sigma_b, z)
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


@pytest.mark.parametrize("sigma", [0.002, 0.005, 0.03, 0.1, 0.5])
@pytest.mark.parametrize("factor", [1.03, 1.07, 1.5, 50.0])
def test_a_shifted_distribution_meets_the_closed_form(sigma: float, factor: float) -> None:
    """Same width, another median: right to 1e-4."""
    mu = (math.log(1e-4), math.log(1e-4 * factor))
    distances = mean_distances(one_component(list(mu), [sigma, sigma]))
    assert distances[0] == pytest.approx(closed_form(mu, (sigma, sigma)), rel=1e-4)


@pytest.mark.parametrize("sigma", [(0.03, 0.05), (0.2, 0.1), (0.8, 0.5)])
@pytest.mark.parametrize("factor", [1.0, 1.07, 1.5, 50.0])
def test_distributions_that_cross_meet_the_closed_form(sigma: tuple[float, float], factor: float) -> None:
    """Other widths: right to 1e-4 on the worker's grid, and to 1e-6 on a fine one."""
    mu = (math.log(1e-4), math.log(1e-4 * factor))
    mixtures = one_component(list(mu), list(sigma))
    exact = closed_form(mu, sigma)
    assert mean_distances(mixtures)[0] == pytest.approx(exact, rel=1e-4)
    wide = 8.0 * max(sigma)
    fine = mean_distances(mixtures, np.linspace(min(mu) - wide, max(mu) + wide, 100_001))
    assert fine[0] == pytest.approx(exact, rel=1e-6)


def test_modes_a_thousandfold_apart_meet_fine_quadrature() -> None:
    """Where a log-uniform grid errs by 10 %, the composite grid is right to 1e-4 with few points."""
    weight = np.array([[0.7, 0.3], [0.7, 0.3]])
    base = np.log([1e-6, 1e-3])
    mixtures = Mixtures(weight, np.array([base, base + math.log(1.07)]), np.full((2, 2), 0.005))
    fine = np.linspace(base[0] - 0.2, base[1] + 0.3, 2_000_001)
    exact = mean_distances(mixtures, fine)
    distances = mean_distances(mixtures)
    assert grid(mixtures).size < 700
    assert distances[0] == pytest.approx(exact[0], rel=1e-4)


def test_ranking_equals_all_pairs() -> None:
    """The mean by ranks and prefix sums is the mean of the matrix, to 1e-7."""
    mixtures = random_mixtures(seed=5, ranks=23, modes=3)
    points = grid(mixtures)
    cdf = mixtures.cdf(points)
    differences = np.abs(cdf[:, :, None] - cdf[:, None, :])
    matrix = np.trapezoid(differences, np.exp(points), axis=0)
    assert mean_distances(mixtures) == pytest.approx(matrix.sum(axis=1) / 22, rel=1e-7)


@pytest.mark.skipif(native.library() is None, reason="libargus_numeric is not built here")
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), ranks=st.integers(2, 40), modes=st.integers(1, 4))
def test_compiled_and_numpy_agree(seed: int, ranks: int, modes: int) -> None:
    """Both twins give the same scores, up to the table of the normal distribution."""
    mixtures = random_mixtures(seed, ranks, modes)
    compiled = mean_distances(mixtures)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARGUS_NO_NATIVE", "1")
        plain = mean_distances(mixtures)
    assert compiled == pytest.approx(plain, rel=1e-6)


@pytest.mark.skipif(native.library() is None, reason="libargus_numeric is not built here")
def test_mixtures_of_the_wrong_shape_are_refused() -> None:
    """A sigma of 0, or shapes that differ, are an error before the library reads."""
    ones = np.ones((3, 2))
    for bad in ((ones, ones, np.zeros((3, 2))), (ones, ones[:2], ones)):
        with pytest.raises(ValueError, match="sigma > 0"):
            native.library().w1_mean_of_mixtures(bad, np.arange(4.0), np.ones((1, 4)))


def test_grid_has_a_point_in_every_sigma_and_none_in_gaps() -> None:
    """Steps stay under the smallest sigma nearby and 0.02 where a distribution rises."""
    mixtures = one_component([0.0, 5.0], [0.002, 0.5])
    points = grid(mixtures)
    narrow = points[(points > -0.01) & (points < 0.01)]
    wide = points[(points > 2.6) & (points < 7.4)]
    assert np.diff(narrow).max() <= 0.002
    assert np.diff(wide).max() <= 0.02 * 1.0001
    assert not ((points > 0.1) & (points < 2.4)).any()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), modes=st.integers(1, 4))
def test_distance_is_a_metric(seed: int, modes: int) -> None:
    """Not negative, zero to itself, symmetric, and never longer than a detour."""
    mixtures = random_mixtures(seed, 3, modes)
    ab, ba = pair_distance(mixtures, 0, 1), pair_distance(mixtures, 1, 0)
    bc, ac = pair_distance(mixtures, 1, 2), pair_distance(mixtures, 0, 2)
    assert pair_distance(mixtures, 0, 0) == pytest.approx(0.0, abs=1e-12)
    assert ab == pytest.approx(ba, rel=1e-9)
    assert ab >= 0.0
    # Where b lies between a and c the two are equal, up to the rounding of the sums, as above.
    assert ac <= (ab + bc) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.floats(1e-3, 1e3))
def test_changing_the_unit_scales_the_distance(seed: int, factor: float) -> None:
    """W1 in milliseconds is 1000 times W1 in seconds."""
    mixtures = random_mixtures(seed, 5, 2)
    scaled = Mixtures(mixtures.weight, mixtures.mu + math.log(factor), mixtures.sigma)
    before, after = mean_distances(mixtures), mean_distances(scaled)
    assert after == pytest.approx(before * factor, rel=1e-3)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_renaming_ranks_renames_scores(seed: int) -> None:
    """Scores follow their ranks through any permutation."""
    mixtures = random_mixtures(seed, 9, 2)
    order = np.random.default_rng(seed).permutation(9)
    moved = Mixtures(mixtures.weight[order], mixtures.mu[order], mixtures.sigma[order])
    assert mean_distances(moved) == pytest.approx(mean_distances(mixtures)[order], rel=1e-9)


def test_absent_modes_do_not_count() -> None:
    """A padded mode of weight 0 changes nothing."""
    plain = one_component([0.0, 0.1], [0.05, 0.05])

    def padded(values: Floats, filler: float) -> Floats:
        return np.hstack([values, np.full((2, 1), filler)])

    wider = Mixtures(padded(plain.weight, 0.0), padded(plain.mu, 9.0), padded(plain.sigma, 0.01))
    assert mean_distances(wider) == pytest.approx(mean_distances(plain), rel=1e-12)


def test_fence_is_the_third_quartile_plus_alpha_quartile_ranges() -> None:
    """Scores 1..5: Q1 = 2, Q3 = 4, so alpha 3 puts the fence at 10."""
    assert upper_fence(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3.0) == 10.0


def test_fence_is_blind_once_over_a_quarter_is_bad() -> None:
    """Why the fence alone never decides: three of eight far ranks move the quartile beyond themselves."""
    scores = np.array([1.0, 1.1, 1.0, 1.1, 1.0, 9.0, 9.1, 9.2])
    assert not (scores > upper_fence(scores, 3.0)).any()
