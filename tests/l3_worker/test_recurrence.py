"""What comes back to a rank, and what every rank has now and then."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from argus_l3_worker.config import Config
from argus_l3_worker.judge.recurrence import Occurrences, recurring

CONFIG = Config()
RANKS, WINDOWS = 16, CONFIG.judge.tail_windows
LOOKS_A_DAY = round(86_400 / CONFIG.cycle_seconds)


def found(*windows: int, needed: int = 2, ranks: int = RANKS) -> frozenset[str]:
    """Ranks that recur, of 16 in 12 windows; these many on the first ranks, none on the others."""
    occurrences = {str(rank): Occurrences(times, WINDOWS) for rank, times in enumerate(windows)}
    return recurring(occurrences, ranks * WINDOWS, needed)


def accused(ranks: int, rate: float, seed: int, looks: int, ill: float = 0.0) -> Iterator[frozenset[str]]:
    """Whom each look accuses where windows are visited by chance; rank 0 is visited by the rate `ill` too."""
    random = np.random.default_rng([ranks, seed])
    seen = random.random((looks + WINDOWS, ranks)) < rate
    seen[:, 0] |= random.random(looks + WINDOWS) < ill
    summed = np.cumsum(seen, axis=0)
    for before, now in zip(summed, summed[WINDOWS:], strict=False):
        visited = now - before
        yield recurring(
            {str(rank): Occurrences(int(visited[rank]), WINDOWS) for rank in np.flatnonzero(visited)},
            ranks * WINDOWS,
            CONFIG.judge.windows_needed,
        )


def false_episodes(ranks: int, rate: float, seed: int) -> int:
    """How often a healthy rank begins to be accused in a day of looks."""
    episodes, held = 0, frozenset[str]()
    for found in accused(ranks, rate, seed, LOOKS_A_DAY):
        episodes += len(found - held)
        held = found
    return episodes


def test_a_few_visits_recur_where_nobody_else_is_visited() -> None:
    """As memory errors do: three of twelve windows, or two where 1,023 others had none."""
    assert found(3) == {"0"}
    assert found(2) == frozenset()
    assert (found(2, ranks=1024), found(1, ranks=1024)) == ({"0"}, frozenset())


def test_a_few_visits_are_chance_where_others_are_visited_too() -> None:
    """Sizes of samples: a rank has a large one three times, five others once."""
    assert found(3, 1, 1, 1, 1, 1) == frozenset()


@pytest.mark.parametrize("ranks", [16, 64, 256, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_healthy_fleet_is_accused_at_most_once_a_week(ranks: int) -> None:
    """Six days of looks at occurrences that come by chance alone, one for each rate."""
    rates = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
    assert sum(false_episodes(ranks, rate, seed) for seed, rate in enumerate(rates)) <= 1


def test_an_ill_rank_is_found_within_the_hour() -> None:
    """A quarter of its windows beside a healthy fleet's 0.3 %: found in 19 of 20 hours at least."""
    hours = (accused(64, 0.003, seed, LOOKS_A_DAY // 24, ill=0.25) for seed in range(20))
    assert sum(any("0" in found for found in hour) for hour in hours) >= 19


def test_a_rank_that_is_visited_most_of_the_time_recurs_beside_others() -> None:
    """Eight windows of twelve are more than the rate of the others explains."""
    assert found(8, 1, 1, 1, 1, 1) == {"0"}


def test_several_ranks_may_recur() -> None:
    """Each is measured by the others, the bad ones among them."""
    assert found(8, 8, 8) == {"0", "1", "2"}


def test_nothing_recurs_without_visits() -> None:
    """No window at all, or none with anything in it."""
    assert found() == found(0, 0) == recurring({}, 0, 2) == frozenset()
