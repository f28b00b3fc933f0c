"""The cross-checks on what Prometheus answers: per role, with gaps, resets and ranks that lack a phase."""

from __future__ import annotations

import numpy as np
import pytest

from argus_l3_worker.cross_checks import (
    AbnormalFunction,
    CrossChecks,
    abnormal_functions,
    divergences,
    series_of,
)
from argus_l3_worker.read.prometheus import Sample, Series

RANKS = [str(rank) for rank in range(8)]


def shares(**of_phase: list[float]) -> list[Sample]:
    return [
        Sample({"rank": str(rank), "phase": phase, "kind": "host" if phase == "data" else "compute"}, value)
        for phase, values in of_phase.items()
        for rank, value in enumerate(values)
    ]


def launches(totals: np.ndarray) -> list[Series]:
    return [
        Series({"rank": str(rank)}, [(15.0 * slice_, float(v)) for slice_, v in enumerate(row) if v == v])
        for rank, row in enumerate(totals)
    ]


def test_a_rank_that_loads_data_longer_than_expected_is_named_with_both_distances() -> None:
    """20 % of wall time in data where 1 % is expected, and no peer does so."""
    found = abnormal_functions(shares(data=[0.001] * 7 + [0.2], forward=[0.3] * 8), RANKS, seed=0)
    assert found == [AbnormalFunction("7", "data", pytest.approx(0.19), pytest.approx(7 / 8))]


def test_spans_of_several_threads_and_unknown_values_are_no_error() -> None:
    """A share over 1 counts as 1, NaN as nothing, an unknown rank not at all."""
    samples = shares(forward=[1.7] * 8)
    samples.append(Sample({"rank": "0", "phase": "data", "kind": "host"}, float("nan")))
    samples.append(Sample({"rank": "99", "phase": "data", "kind": "host"}, 0.9))
    assert abnormal_functions(samples, RANKS, seed=0) == []


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
    """Two distances a function, one score a rank; an empty replica is no label."""
    checks = CrossChecks("llm", (AbnormalFunction("7", "data", 0.19, 0.875),), {"3": 0.25})
    assert dict(series_of(checks, "")) == {
        (("__name__", "argus_l3_eroica_distance"), ("distance", "expectation"), ("function", "data"),
         ("rank", "7"), ("training_job", "llm")): 0.19,
        (("__name__", "argus_l3_eroica_distance"), ("distance", "differential"), ("function", "data"),
         ("rank", "7"), ("training_job", "llm")): 0.875,
        (("__name__", "argus_l3_rhythm_divergence"), ("rank", "3"), ("training_job", "llm")): 0.25,
    }  # fmt: skip
