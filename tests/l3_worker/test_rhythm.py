"""KAIR's rhythm score: against scipy's K-S statistic, and on ranks that lag or stall."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from argus_l3_worker.judge.rhythm import distributions, scores


def fleet(ranks: int, slices: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(200, (ranks, slices)).astype(float)


def test_scores_are_the_mean_of_scipys_statistic() -> None:
    """12 ranks with counts of 0-5 a slice, expanded to samples."""
    counts = np.random.default_rng(1).integers(0, 6, (12, 16)).astype(float)
    samples = [np.repeat(np.arange(16), row.astype(int)) for row in counts]
    expected = [
        np.mean([ks_2samp(samples[a], samples[b]).statistic for b in range(12) if b != a]) for a in range(12)
    ]
    assert scores(counts) == pytest.approx(expected, abs=1e-6)


def test_a_rank_that_stalls_for_a_while_stands_out() -> None:
    """Same total, nothing in a quarter of the time."""
    counts = fleet(32)
    counts[7, 16:32] = 0.0
    found = scores(counts)
    assert found.argmax() == 7
    assert found[7] > 10 * np.median(found)


def test_a_rank_that_starts_late_stands_out() -> None:
    """A constant delay shifts the whole distribution."""
    counts = fleet(32)
    counts[3] = np.concatenate((np.zeros(12), counts[3, :-12]))
    assert scores(counts).argmax() == 3


def test_sampled_peers_give_nearly_the_same_scores() -> None:
    """Beyond 2,048 ranks 256 peers stand for all: the straggler stays first, scores move little."""
    counts = fleet(3000, 16)
    counts[1234, 4:8] = 0.0
    found = scores(counts)
    assert found.argmax() == 1234
    exact = np.abs(distributions(counts)[1234] - distributions(counts)).max(axis=1).sum() / 2999
    assert found[1234] == pytest.approx(exact, rel=0.02)


def test_a_rank_without_completions_has_no_score() -> None:
    """Nothing completed: unknown, and no peer of the others."""
    counts = fleet(8)
    counts[2] = 0.0
    found = scores(counts)
    assert np.isnan(found[2])
    assert found[[0, 1, 3, 4, 5, 6, 7]] == pytest.approx(scores(np.delete(counts, 2, axis=0)))
    assert np.isnan(scores(counts[2:3])).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_scores_follow_their_ranks(seed: int) -> None:
    """And lie in [0, 1]."""
    counts = fleet(20, 8, seed)
    order = np.random.default_rng(seed).permutation(20)
    found = scores(counts)
    assert ((found >= 0.0) & (found <= 1.0)).all()
    assert scores(counts[order]) == pytest.approx(found[order], abs=1e-6)
