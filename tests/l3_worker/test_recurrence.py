"""What comes back to a rank, and what visits everybody now and then."""

from __future__ import annotations

from argus_l3_worker.recurrence import Visits, recurring

RANKS, WINDOWS = 16, 12


def found(*windows: int, needed: int = 2) -> frozenset[str]:
    """Ranks that recur, of 16 in 12 windows; these many on the first ranks, none on the others."""
    visits = {str(rank): Visits(times, WINDOWS) for rank, times in enumerate(windows)}
    return recurring(visits, RANKS * WINDOWS, needed)


def test_two_visits_recur_where_nobody_else_is_visited() -> None:
    """As memory errors do."""
    assert found(2) == {"0"}
    assert found(1) == frozenset()


def test_two_visits_are_chance_where_others_are_visited_too() -> None:
    """Sizes of samples: a rank has a large one twice, five others once."""
    assert found(2, 1, 1, 1, 1, 1) == frozenset()


def test_a_rank_that_is_visited_most_of_the_time_recurs_beside_others() -> None:
    """Eight windows of twelve are more than the rate of the others explains."""
    assert found(8, 1, 1, 1, 1, 1) == {"0"}


def test_several_ranks_may_recur() -> None:
    """Each is measured by the others, the bad ones among them."""
    assert found(6, 6, 6) == {"0", "1", "2"}


def test_nothing_recurs_without_visits() -> None:
    """No window at all, or none with anything in it."""
    assert found() == found(0, 0) == recurring({}, 0, 2) == frozenset()
