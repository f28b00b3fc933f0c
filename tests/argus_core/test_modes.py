"""Modes of known windows, and every degenerate window by name (docs/evidence/modes.md)."""

import math

import numpy as np
import pytest

from argus_core.lognormal import lognormal_parameters
from argus_core.modes import Mode, ModeConfig, Modes, find_modes, spread_ties


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def twin(request, monkeypatch):
    """Both twins answer for every sentence here."""
    if request.param == "numpy":
        monkeypatch.setenv("ARGUS_NO_NATIVE", "1")
    else:
        monkeypatch.delenv("ARGUS_NO_NATIVE", raising=False)
        native = pytest.importorskip("argus_core.native")
        if native.library() is None:
            pytest.skip("libargus_numeric is not built here: pip install -e . with a C++ compiler")


def lognormal(seed: int, *modes: tuple[float, float, int]):
    """Durations of (median in seconds, sigma, events) modes."""
    rng = np.random.default_rng(seed)
    return np.concatenate([median * np.exp(rng.normal(0.0, sigma, n)) for median, sigma, n in modes])


def counts(found: Modes) -> list[int]:
    return [mode.count for mode in found.modes]


THREE_MODES = lognormal(1, (1e-4, 0.03, 600), (1.2e-4, 0.03, 200), (1e-3, 0.03, 200))


def test_three_modes_come_back():
    """100 us, 120 us and 1 ms: medians within 1 %, counts within 1 %."""
    found = find_modes(THREE_MODES)
    assert [mode.p50 for mode in found.modes] == pytest.approx([1e-4, 1.2e-4, 1e-3], rel=0.01)
    assert counts(found) == pytest.approx([600, 200, 200], abs=10)


def test_literal_method_merges_close_modes_when_one_is_far():
    """The paper's single bandwidth cannot see 100 and 120 us beside 1 ms: why `recursive` exists."""
    assert counts(find_modes(THREE_MODES, ModeConfig(method="scott"))) == [800, 200]


def test_literal_method_separates_two_modes():
    """Without a third mode the paper's method does the same as ours."""
    window = lognormal(2, (1e-4, 0.03, 500), (2e-4, 0.03, 500))
    assert find_modes(window, ModeConfig(method="scott")).modes == find_modes(window).modes


def test_quantiles_are_type_7_of_the_mode():
    """p50 and p99 interpolate between order statistics, as numpy's default does."""
    window = lognormal(3, (1e-4, 0.05, 333))
    mode = find_modes(window).modes[0]
    assert (mode.p50, mode.p99) == pytest.approx(tuple(np.quantile(window, [0.5, 0.99])), rel=1e-12)


@pytest.mark.parametrize("window", [[], [0.0, -1e-6], [math.nan, math.inf, -math.inf]])
def test_no_usable_event_gives_no_mode(window):
    """An empty window is an answer; what has no logarithm is counted."""
    assert find_modes(np.array(window)) == Modes((), tail_events=0, dropped=len(window))


def test_unusable_durations_are_counted_beside_usable_ones():
    """zero or negative durations: with NaN they go to `dropped`, the rest is one mode."""
    found = find_modes(np.array([0.0, 1e-3, -5e-6, math.nan, 1e-3]))
    assert found == Modes((Mode(2, 1e-3, 1e-3),), tail_events=0, dropped=3)


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("tick", [0.0, 1e-6])
def test_ties_are_one_exact_mode(size, tick):
    """one event or all ties: p50 = p99 = that duration, dithered or not; no spread to estimate."""
    window = np.full(size, 2e-5)
    assert find_modes(window, ModeConfig(tick_seconds=tick)).modes == (Mode(size, 2e-5, 2e-5),)


@pytest.mark.parametrize("size", range(2, 10))
def test_too_few_events_for_two_modes_are_one(size):
    """Under 2 x min_events nothing is split, even 10x apart; nothing is lost either."""
    found = find_modes(np.geomspace(1e-4, 1e-3, size))
    assert counts(found) == [size]


def test_ten_events_can_be_two_modes():
    """Five and five is the smallest window that splits."""
    window = np.concatenate([1e-4 * np.linspace(0.99, 1.01, 5), 1e-3 * np.linspace(0.99, 1.01, 5)])
    assert counts(find_modes(window)) == [5, 5]


@pytest.mark.parametrize("size", [5, 20, 50, 100, 200])
def test_one_outlier_is_tail_and_leaves_the_triple_alone(size):
    """one 5x outlier: kept, it would read as 17 times the sigma at n = 20 and 1.5 times at n = 100."""
    window = lognormal(4, (1e-4, 0.02, size - 1))
    found = find_modes(np.append(window, 5e-4))
    assert found.tail_events == 1
    assert found.modes == find_modes(window).modes


@pytest.mark.parametrize("outlier", [1e-2, 1e-6])
def test_one_far_event_hides_no_mode(outlier):
    """One event 100x away widens the first bandwidth over 100 and 200 us; without it they are two modes."""
    window = lognormal(11, (1e-4, 0.03, 40), (2e-4, 0.03, 10))
    found = find_modes(np.append(window, outlier))
    assert (counts(found), found.tail_events) == ([40, 10], 1)


def test_under_five_events_an_outlier_stays():
    """Among four, nobody can say which one is the outlier."""
    found = find_modes(np.array([1e-4, 1e-4, 1e-4, 5e-4]))
    assert (counts(found), found.tail_events) == ([4], 0)


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e-9, 7e-7])
def test_an_event_at_exactly_the_tail_ratio_stays(unit):
    """2 ticks beside a median of 3 are within the factor 1.5, in whatever unit."""
    found = find_modes(np.array([2.0] + [3.0] * 20) * unit)
    assert (counts(found), found.tail_events) == ([21], 0)


def test_an_early_outlier_is_tail_too():
    """The cut has two sides."""
    found = find_modes(np.append(lognormal(5, (1e-4, 0.02, 200)), 1e-5))
    assert (counts(found), found.tail_events) == ([200], 1)


@pytest.mark.parametrize(
    ("median", "tick", "size"), [(2e-5, 1e-6, 1000), (2e-5, 1e-6, 5000), (2e-6, 3.2e-8, 2000)]
)
def test_clock_ticks_are_not_modes(median, tick, size):
    """clock ticks: sigma 2 % makes three to eight spurious modes without the tick, one with it."""
    exact = lognormal(6, (median, 0.02, size))
    window = np.round(exact / tick) * tick
    assert len(find_modes(window).modes) > 1
    found = find_modes(window, ModeConfig(tick_seconds=tick))
    assert counts(found) == [size]
    # The grouped median resolves a twentieth of a tick.
    assert found.modes[0].p50 == pytest.approx(np.median(exact), abs=tick / 20)


def test_left_skew_is_one_mode_with_its_own_quantiles():
    """left skew: three numbers cannot show it, so p1 is rebuilt 60 % too high; p50 and p99 are true."""
    window = 1e-4 * np.exp(-0.15 * np.random.default_rng(12).gamma(2.0, size=2000))
    found = find_modes(window)
    (mode,) = found.modes
    assert found.tail_events < 20
    assert (mode.p50, mode.p99) == pytest.approx(tuple(np.quantile(window, [0.5, 0.99])), rel=0.003)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", [200, 1000, 5000])
def test_heavy_tails_leave_the_main_mode_true(size, seed):
    """t3 tails: far events are tail or, five together, a small mode; the main one hardly moves."""
    window = 1e-4 * np.exp(0.05 * np.random.default_rng(seed).standard_t(3, size=size))
    found = find_modes(window)
    main = max(found.modes, key=lambda mode: mode.count)
    assert main.count > 0.95 * size
    assert main.p50 == pytest.approx(np.median(window), rel=0.002)
    assert all(mode is main or mode.count < 20 + 0.02 * size for mode in found.modes)


@pytest.mark.parametrize("size", [2, 5, 10, 20, 50, 100, 300])
def test_the_spread_of_a_small_mode_is_read_without_bias(size):
    """sigma from p99: with the small-sample z the mean of many windows is the true 5 %, at every size."""
    rng = np.random.default_rng(size)
    triples = [find_modes(1e-4 * np.exp(rng.normal(0.0, 0.05, size))).modes for _ in range(1500)]
    rows = np.array([(m.count, m.p50, m.p99) for modes in triples if len(modes) == 1 for m in modes])
    assert len(rows) > 1400
    _, sigma = lognormal_parameters(rows[:, 1], rows[:, 2], rows[:, 0])
    assert sigma.mean() == pytest.approx(0.05, rel=0.06)


def test_a_coarse_clock_still_shows_real_modes():
    """20 us and 30 us on a 1 us clock are two modes."""
    window = np.round(lognormal(7, (2e-5, 0.02, 500), (3e-5, 0.02, 500)) / 1e-6) * 1e-6
    assert counts(find_modes(window, ModeConfig(tick_seconds=1e-6))) == [500, 500]


def test_spread_ties_by_hand():
    """Two at 10 and one at 12, tick 1: 10 becomes 9.75 and 10.25, 12 stays."""
    assert spread_ties(np.array([10.0, 10.0, 12.0]), 1.0).tolist() == [9.75, 10.25, 12.0]


def test_spread_ties_keeps_the_order_whatever_the_tick():
    """A tick stated 100 times too coarse reaches halfway to the neighbours and no further."""
    spread = spread_ties(np.repeat([1.0, 2.0, 3.0], 50), 100.0)
    assert np.all(np.diff(spread) > 0.0)
    assert np.round(spread).tolist() == np.repeat([1.0, 2.0, 3.0], 50).tolist()


def test_a_mode_below_half_a_percent_is_tail():
    """4 of 1,000 at 10x are events outside every mode, not a mode."""
    found = find_modes(lognormal(8, (1e-4, 0.03, 996), (1e-3, 0.01, 4)))
    assert (counts(found), found.tail_events) == ([996], 4)


def test_durations_across_the_whole_float_range():
    """1e-300 beside 1e300 s is absurd, but it is two modes and no overflow."""
    found = find_modes(np.repeat([1e-300, 1e300], 50))
    assert found.modes == (Mode(50, 1e-300, 1e-300), Mode(50, 1e300, 1e300))


def test_thousands_of_scattered_events_end():
    """The worst window found: everything is valley, and merging them is quadratic in their number only."""
    window = np.exp(np.random.default_rng(9).uniform(-12.0, 0.0, 20_000))
    found = find_modes(window, ModeConfig(min_share=0.0, prominence=0.99))
    assert sum(counts(found)) + found.tail_events == 20_000


def test_input_is_not_written_to():
    """The caller's durations keep their order."""
    window = lognormal(10, (1e-4, 0.1, 100))
    before = window.copy()
    find_modes(window, ModeConfig(tick_seconds=1e-9))
    assert np.array_equal(window, before)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tick_seconds": -1.0}, "tick_seconds is -1.0; allowed: 0 or a positive number"),
        ({"prominence": 1.0}, "prominence is 1.0; allowed: over 0, under 1"),
        ({"min_events": 0}, "min_events is 0; allowed: 1 or more"),
        ({"method": "silverman"}, "method is 'silverman'; allowed: recursive, scott"),
        ({"tail_ratio": math.nan}, "tail_ratio is nan"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(wrong, message):
    """The message names the key, the value and what is allowed."""
    with pytest.raises(ValueError, match=message):
        ModeConfig(**wrong)
