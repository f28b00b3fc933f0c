"""The cross-check on what Prometheus answers: with gaps and resets."""

from __future__ import annotations

import numpy as np

from argus_l3_worker.cross_checks import CrossChecks, divergences, series_of
from argus_l3_worker.read.prometheus import Series

RANKS = [str(rank) for rank in range(8)]


def launches(totals: np.ndarray) -> list[Series]:
    return [
        Series({"rank": str(rank)}, [(15.0 * slice_, float(v)) for slice_, v in enumerate(row) if v == v])
        for rank, row in enumerate(totals)
    ]


def test_a_rank_that_stalls_has_another_rhythm() -> None:
    """100 launches a slice, except on rank 3, which stops for a third of the time."""
    totals = np.cumsum(np.full((8, 31), 100.0), axis=1)
    totals[3, 10:20] = totals[3, 10]
    found = divergences(launches(totals), RANKS, seed=0)
    assert max(found, key=found.__getitem__) == "3"
    assert found["3"] > 5 * np.median(list(found.values()))


def test_a_counter_reset_and_a_scrape_gap_are_no_stall() -> None:
    """Rank 0 restarts, rank 1 misses scrapes: neither looks stalled."""
    totals = np.cumsum(np.full((8, 31), 100.0), axis=1)
    totals[0, 15:] -= totals[0, 15]
    totals[1, 5:8] = np.nan
    found = divergences(launches(totals), RANKS, seed=0)
    assert max(found.values()) < 0.06


def test_too_few_scrapes_say_nothing() -> None:
    """Two points make one slice."""
    assert divergences(launches(np.ones((8, 2))), RANKS, seed=0) == {}
    assert divergences([], RANKS, seed=0) == {}


def test_opinions_as_series() -> None:
    """One score a rank; a worker without a name has no label."""
    assert dict(series_of(CrossChecks("llm", {"3": 0.25}), "")) == {
        (("__name__", "argus_l3_rhythm_divergence"), ("rank", "3"), ("training_job", "llm")): 0.25,
    }
