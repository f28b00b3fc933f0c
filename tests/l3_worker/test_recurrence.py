"""What comes back to a rank, and what visits everybody now and then."""

from __future__ import annotations

import numpy as np
from bench.l3_recurrence import false_episodes, found_within

from argus_l3_worker.recurrence import Visits, recurring

RANKS, WINDOWS = 16, 12


def found(*windows: int, needed: int = 2, ranks: int = RANKS) -> frozenset[str]:
    """Ranks that recur, of 16 in 12 windows; these many on the first ranks, none on the others."""
    visits = {str(rank): Visits(times, WINDOWS) for rank, times in enumerate(windows)}
    return recurring(visits, ranks * WINDOWS, needed)


def test_a_few_visits_recur_where_nobody_else_is_visited() -> None:
    """As memory errors do: three of twelve windows, or two where 255 others had none."""
    assert found(3) == {"0"}
    assert found(2) == frozenset()
    assert (found(2, ranks=256), found(1, ranks=256)) == ({"0"}, frozenset())


def test_a_few_visits_are_chance_where_others_are_visited_too() -> None:
    """Sizes of samples: a rank has a large one three times, five others once."""
    assert found(3, 1, 1, 1, 1, 1) == frozenset()


def test_a_healthy_fleet_is_accused_at_most_once_a_day() -> None:
    """1,440 looks a day at visits that come by chance alone: 0.05 a look made 8 episodes a day of these."""
    days = [(64, 0.003), (256, 0.003), (256, 0.01), (64, 0.1)]
    assert np.mean([false_episodes(ranks, rate, seed) for seed, (ranks, rate) in enumerate(days)]) <= 1.0


def test_an_ill_rank_is_found_within_the_hour() -> None:
    """A quarter of its windows beside a healthy fleet's 0.3 %: found in 19 of 20 hours at least."""
    assert sum(found_within(64, 0.003, seed, looks=60) for seed in range(20)) >= 19


def test_a_rank_that_is_visited_most_of_the_time_recurs_beside_others() -> None:
    """Eight windows of twelve are more than the rate of the others explains."""
    assert found(8, 1, 1, 1, 1, 1) == {"0"}


def test_several_ranks_may_recur() -> None:
    """Each is measured by the others, the bad ones among them."""
    assert found(7, 7, 7) == {"0", "1", "2"}


def test_nothing_recurs_without_visits() -> None:
    """No window at all, or none with anything in it."""
    assert found() == found(0, 0) == recurring({}, 0, 2) == frozenset()
