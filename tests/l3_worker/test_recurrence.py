"""What comes back to a rank, and what every rank has now and then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from bench.evidence.far_launches import LOOKS_A_WEEK, RATES, false_episodes

from argus_l3_worker.config import Config
from argus_l3_worker.judge.recurrence import Occurrences, Visits, recurring, together
from long_forms import long_only

CONFIG = Config()
RANKS, WINDOWS = 16, CONFIG.judge.tail_windows
LOOKS_AN_HOUR = round(3_600 / CONFIG.cycle_seconds)


def occurrences(seen: str) -> Occurrences:
    """`x` for a window with something on a rank, `.` for one without."""
    return Occurrences(seen.count("x"), len(seen.replace(".", " ").split()), len(seen))


NEW = Visits({}, 0.0)
"""The past of a job that begins."""


def visits(seen: Sequence[str], ranks: int) -> Visits:
    """Of so many ranks, of which the first have seen something."""
    looked_at = len(seen[0]) if seen else WINDOWS
    return Visits({str(rank): occurrences(of) for rank, of in enumerate(seen)}, ranks * looked_at)


def found(*seen: str, needed: int = 2, ranks: int = RANKS, past: Visits = NEW) -> frozenset[str]:
    """Ranks that recur, by what was seen on the first ranks, of 16 in 12 windows; nothing on the others."""
    return recurring(visits(seen, ranks), past, needed)


def hour(ranks: int, rate: float, ill: float, seed: int) -> Iterator[frozenset[str]]:
    """Whom each look accuses where windows are visited by chance, those of rank 0 by the rate `ill` too."""
    random = np.random.default_rng([ranks, seed])
    seen = random.random((LOOKS_AN_HOUR + WINDOWS, ranks)) < rate
    seen[:, 0] |= random.random(len(seen)) < ill
    for look in range(LOOKS_AN_HOUR):
        columns = np.where(seen[look : look + WINDOWS].T, "x", ".")
        yield found(*map("".join, columns), ranks=ranks)


def test_a_few_visits_recur_where_nobody_else_is_visited() -> None:
    """As memory errors do: four of twelve windows; three or two are enough where many others had none."""
    assert (found("x..x.x....x."), found("x..x.x......")) == ({"0"}, frozenset())
    assert (found("x..x.x......", ranks=64), found("x..x........", ranks=64)) == ({"0"}, frozenset())
    assert (found("x..x........", ranks=2048), found("x...........", ranks=2048)) == ({"0"}, frozenset())


def test_what_lasts_from_one_window_to_the_next_came_once() -> None:
    """A long sample, or the same part of the data: six in a row are more than that explains."""
    assert (found("....xxxxx..."), found("....xxxxxx..")) == (frozenset(), {"0"})
    in_runs = ("..xxxx......", "xxx....xxxx.", ".......xxxxx")
    assert found("....xxxxxx..", *in_runs) == frozenset(), "where others' last as long"


def test_visits_that_used_to_last_explain_one_that_does() -> None:
    """Of others, hours ago; what the rank itself had explains nothing, and a time without visits neither."""
    long_ago = "." * 80 + "xxxxx" + "." * 10
    others = ["." * len(long_ago), long_ago, long_ago, long_ago]
    assert found("....xxxxxx..", past=visits(others, RANKS)) == frozenset()
    assert found("....xxxxxx..", past=visits([long_ago], RANKS)) == {"0"}
    quiet = Visits({}, 720.0 * RANKS)
    assert found("x..x.x..x...", *["....x......."] * 5, past=quiet) == frozenset()


@pytest.mark.parametrize("order", [1, -1])
def test_a_rank_that_moved_to_another_role_keeps_its_visits(order: int) -> None:
    """Two in each role, which are four that do not follow each other, whichever role is looked at first."""
    roles = [visits(["x..x.x......"], RANKS // 2), visits(["x..x.....x.."], RANKS // 2)]
    assert recurring(together(roles[::order]), NEW, 2) == {"0"}
    assert recurring(together(roles, left_out=["0"]), NEW, 2) == frozenset()


def test_a_few_visits_are_chance_where_others_are_visited_too() -> None:
    """Sizes of samples: a rank has a large one four times, five others once."""
    assert found("x..x.x..x...", *["....x......."] * 5) == frozenset()


@pytest.mark.parametrize(
    ("ranks", "share"), [(4, 4), (8, 4), (16, 4), (64, 8), (256, 8), *long_only([(10_240, 8)])]
)
def test_a_healthy_fleet_is_accused_at_most_once_a_week(ranks: int, share: int) -> None:
    """Windows are visited by chance alone: at each of six rates for a fourth of a week, or an eighth."""
    looks = LOOKS_A_WEEK // share
    assert sum(false_episodes(ranks, rate, seed, looks) for seed, rate in enumerate(RATES)) <= 1


@pytest.mark.parametrize(("ranks", "ill"), [(8, 0.4), (16, 0.35), (64, 0.25), (256, 0.25)])
def test_an_ill_rank_is_found_within_the_hour(ranks: int, ill: float) -> None:
    """So many of its windows beside a healthy fleet's 0.3 %: found in 19 of 20 hours at least."""
    hours = (hour(ranks, 0.003, ill, seed) for seed in range(20))
    assert sum(any("0" in accused for accused in one) for one in hours) >= 19


@pytest.mark.parametrize("ranks", [4, 16, 64, 256])
def test_samples_that_come_in_runs_accuse_seldom(ranks: int) -> None:
    """A half of the visits lasts into the next window: counted one by one they accuse hundreds a week.

    In the first hours nothing is known of it, so the mean over a fourth of a week may be above one.
    """
    weeks = [false_episodes(ranks, rate, seed, LOOKS_A_WEEK // 4, 2.0) for seed, rate in enumerate(RATES)]
    assert 4.0 * np.mean(weeks) <= 3.0


def test_a_rank_that_is_visited_most_of_the_time_recurs_beside_others() -> None:
    """Eight windows of twelve are more than the rate of the others explains."""
    assert found("xx.xx.xx.xx.", *["....x......."] * 5) == {"0"}


def test_several_ranks_may_recur() -> None:
    """Each is measured by the others, the bad ones among them."""
    assert found(*["xx.xx.xx.xx."] * 3, ranks=64) == {"0", "1", "2"}


def test_nothing_recurs_without_visits() -> None:
    """No window at all, or none with anything in it."""
    assert found() == found("............") == recurring(NEW, NEW, 2) == frozenset()
