"""A triple read as a log-normal: known numbers, and no bias in small samples."""

import math

import numpy as np
import pytest

from argus_core.lognormal import SIGMA_FLOOR, expected_p99_z, lognormal_parameters, sigma_from_p99


def test_large_sample_uses_the_papers_2326():
    """ARGUS equation 2 is the limit of many events."""
    assert expected_p99_z(np.array([1e9]))[0] == pytest.approx(2.32635, abs=1e-5)


def test_known_z_of_small_samples():
    """Blom's formula by hand: n = 2 gives Phi^-1(1.615 / 2.25), n = 1 the median."""
    assert expected_p99_z(np.array([1.0, 2.0, 10.0])) == pytest.approx([0.0, 0.57625, 1.47761], abs=2e-5)


def test_equation_2_comes_back():
    """A population triple of sigma 5 % returns mu and sigma."""
    p50, p99 = 2e-4, 2e-4 * math.exp(0.05 * 2.32635)
    mu, sigma = lognormal_parameters(np.array([p50]), np.array([p99]), np.array([1e8]))
    assert (mu[0], sigma[0]) == (pytest.approx(math.log(2e-4)), pytest.approx(0.05, rel=1e-5))


@pytest.mark.parametrize("count", [2, 5, 20, 100, 300])
def test_sigma_is_unbiased_at_every_size(count):
    """2.326 would read 0.24 of sigma at n = 2 and 0.49 at n = 5; z_n stays within 5 %."""
    logs = np.random.default_rng(count).normal(0.0, 0.05, (20_000, count))
    p50, p99 = np.exp(np.quantile(logs, 0.5, axis=1)), np.exp(np.quantile(logs, 0.99, axis=1))
    sigma = sigma_from_p99(p50, p99, np.full(20_000, float(count)))
    assert sigma.mean() / 0.05 == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("p99", "count"), [(1.0, 50.0), (1.2, 1.0), (1.2, 0.0), (0.9, 50.0)])
def test_no_spread_takes_the_floor(p99, count):
    """Ties, one event, no event and a p99 under p50 say nothing about spread."""
    assert sigma_from_p99(np.array(1.0), np.array(p99), np.array(count)) == SIGMA_FLOOR


def test_missing_triple_stays_missing():
    """NaN padding of a batch of triples is NaN in the answer and warns of nothing."""
    mu, sigma = lognormal_parameters(
        np.array([[np.nan, 1.0]]), np.array([[np.nan, 1.1]]), np.array([[0.0, 9.0]])
    )
    assert mu.shape == sigma.shape == (1, 2)
    assert np.isnan(mu[0, 0]) and np.isnan(sigma[0, 0]) and sigma[0, 1] > SIGMA_FLOOR
