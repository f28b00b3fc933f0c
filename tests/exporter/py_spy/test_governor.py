"""The rate of sampling follows its cost."""

from __future__ import annotations

from argus_exporter.py_spy.governor import Governor, Level

WALL_S = 10.0


def spend(governor: Governor, *, start_s: float, sample_s: float, windows: int) -> list[Level]:
    """Windows of a sampler that costs so much to start and so much a sample; the level after each."""
    levels = []
    for _ in range(windows):
        level = governor.level
        cost = start_s + sample_s * level.hertz * WALL_S
        governor.measured(cost, WALL_S * (1 + level.rest))
        levels.append(governor.level)
    return levels


def test_a_cheap_process_is_sampled_at_the_full_rate() -> None:
    """0.35 % at 10 Hz."""
    assert set(spend(Governor(10, 0.01), start_s=0.025, sample_s=0.0001, windows=20)) == {Level(10, 0)}


def test_a_dear_process_is_sampled_less_often_until_it_fits() -> None:
    """1.3 % at 10 Hz, as measured on a transformer with 7 threads: 5 Hz fits, and it stays there."""
    levels = spend(Governor(10, 0.01), start_s=0.025, sample_s=0.00105, windows=50)
    assert set(levels) == {Level(5, 0)}


def test_where_the_start_alone_is_too_dear_windows_are_left_out() -> None:
    """0.3 s of CPU a start: only pauses bring the share down, and it ends below the budget."""
    governor = Governor(10, 0.01)
    level = spend(governor, start_s=0.3, sample_s=0.001, windows=50)[-1]
    assert level.hertz == 1
    assert (0.3 + 0.001 * WALL_S) / (WALL_S * (1 + level.rest)) <= 0.01


def test_the_rate_comes_back_when_the_cost_has_gone_but_not_at_once() -> None:
    """Hysteresis: one calm window is not enough."""
    governor = Governor(10, 0.01)
    spend(governor, start_s=0.0, sample_s=0.005, windows=10)
    assert governor.level.hertz < 10
    low = governor.level
    assert spend(governor, start_s=0.0, sample_s=0.0001, windows=5)[-1] == low
    assert spend(governor, start_s=0.0, sample_s=0.0001, windows=50)[-1] == Level(10, 0)


def test_the_lowest_level_is_the_end() -> None:
    """However dear: it keeps watching, at a tenth of a sample a second."""
    assert spend(Governor(10, 0.01), start_s=100.0, sample_s=1.0, windows=50)[-1].mean_hertz == 0.1


def test_a_configured_low_rate_is_never_exceeded() -> None:
    """1 Hz asked for: the ladder has nothing above it."""
    levels = spend(Governor(1, 0.01), start_s=0.0, sample_s=0.0, windows=20)
    assert set(levels) == {Level(1, 0)}
