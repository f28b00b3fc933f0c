"""What comes back to a rank, and what every rank has now and then."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from bench.evidence.far_launches import LOOKS_A_WEEK, RATES, false_episodes

from argus_l3_worker.config import Config
from argus_l3_worker.judge.recurrence import Occurrences, recurring

CONFIG = Config()
RANKS, WINDOWS = 16, CONFIG.judge.tail_windows
LOOKS_AN_HOUR = round(3_600 / CONFIG.cycle_seconds)


def found(*windows: int, needed: int = 2, ranks: int = RANKS) -> frozenset[str]:
    """Ranks that recur, of 16 in 12 windows; these many on the first ranks, none on the others."""
    occurrences = {str(rank): Occurrences(times, WINDOWS) for rank, times in enumerate(windows)}
    return recurring(occurrences, ranks * WINDOWS, needed)


def hour(ranks: int, rate: float, ill: float, seed: int) -> Iterator[frozenset[str]]:
    """Whom each look accuses where windows are visited by chance, those of rank 0 by the rate `ill` too."""
    random = np.random.default_rng([ranks, seed])
    seen = random.random((LOOKS_AN_HOUR + WINDOWS, ranks)) < rate
    seen[:, 0] |= random.random(len(seen)) < ill
    for look in range(LOOKS_AN_HOUR):
        visits = seen[look : look + WINDOWS].sum(axis=0)
        yield found(*visits.tolist(), ranks=ranks)


def test_a_few_visits_recur_where_nobody_else_is_visited() -> None:
    """As memory errors do: four of twelve windows; three or two are enough where many others had none."""
    assert (found(4), found(3)) == ({"0"}, frozenset())
    assert (found(3, ranks=64), found(2, ranks=64)) == ({"0"}, frozenset())
    assert (found(2, ranks=2048), found(1, ranks=2048)) == ({"0"}, frozenset())


def test_a_few_visits_are_chance_where_others_are_visited_too() -> None:
    """Sizes of samples: a rank has a large one three times, five others once."""
    assert found(3, 1, 1, 1, 1, 1) == frozenset()


@pytest.mark.parametrize("ranks", [4, 8, 16, 64, 256, pytest.param(10_240, marks=pytest.mark.slow)])
def test_a_healthy_fleet_is_accused_at_most_once_a_week(ranks: int) -> None:
    """On average of as many weeks as there are rates, at which windows are visited by chance alone."""
    weeks = [false_episodes(ranks, rate, seed, LOOKS_A_WEEK) for seed, rate in enumerate(RATES)]
    assert np.mean(weeks) <= 1.0


@pytest.mark.parametrize(("ranks", "ill"), [(8, 0.35), (16, 0.25), (64, 0.25), (256, 0.25)])
def test_an_ill_rank_is_found_within_the_hour(ranks: int, ill: float) -> None:
    """A quarter of its windows beside a healthy fleet's 0.3 %: found in 19 of 20 hours at least."""
    hours = (hour(ranks, 0.003, ill, seed) for seed in range(20))
    assert sum(any("0" in accused for accused in one) for one in hours) >= 19


def test_a_rank_that_is_visited_most_of_the_time_recurs_beside_others() -> None:
    """Eight windows of twelve are more than the rate of the others explains."""
    assert found(8, 1, 1, 1, 1, 1) == {"0"}


def test_several_ranks_may_recur() -> None:
    """Each is measured by the others, the bad ones among them."""
    assert found(8, 8, 8) == {"0", "1", "2"}


def test_nothing_recurs_without_visits() -> None:
    """No window at all, or none with anything in it."""
    assert found() == found(0, 0) == recurring({}, 0, 2) == frozenset()
