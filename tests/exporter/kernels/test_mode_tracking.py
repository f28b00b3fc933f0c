"""Mode ids stay with their mode from window to window."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from argus_core.modes import Mode
from argus_exporter.kernels.mode_tracking import ModeTracker


def mode(p50: float) -> Mode:
    return Mode(count=100, p50=p50, p99=p50 * 1.1)


def test_new_modes_are_numbered_in_order():
    """The first window names them 0, 1, ... by median."""
    assert ModeTracker().assign((mode(1e-5), mode(1e-4))) == {0: mode(1e-5), 1: mode(1e-4)}


def test_a_mode_keeps_its_id_when_a_faster_one_appears():
    """Ids do not shift with the order."""
    tracker = ModeTracker()
    tracker.assign((mode(1e-4),))
    assert tracker.assign((mode(1e-5), mode(1.05e-4))) == {0: mode(1.05e-4), 1: mode(1e-5)}


def test_a_mode_that_paused_gets_its_id_back():
    """Hysteresis: a window without it does not mint a new series."""
    tracker = ModeTracker()
    tracker.assign((mode(1e-5), mode(1e-4)))
    tracker.assign((mode(1e-5),))
    assert tracker.assign((mode(1e-5), mode(1e-4))) == {0: mode(1e-5), 1: mode(1e-4)}


def test_an_id_becomes_free_after_ten_idle_windows():
    """Retired ids are used again, so that their number stays bounded."""
    tracker = ModeTracker()
    tracker.assign((mode(1e-5), mode(1e-4)))
    for _ in range(10):
        tracker.assign((mode(1e-5),))
    assert tracker.assign((mode(1e-5), mode(3e-3))) == {0: mode(1e-5), 1: mode(3e-3)}


def test_noise_mints_no_ids_in_an_hour():
    """60 windows of two modes with 3 % noise: two ids."""
    rng = np.random.default_rng(1)
    tracker, ids = ModeTracker(), set()
    for _ in range(60):
        low, high = 1e-5 * np.exp(rng.normal(0, 0.03)), 1e-4 * np.exp(rng.normal(0, 0.03))
        ids |= tracker.assign((mode(low), mode(high))).keys()
    assert ids == {0, 1}


def test_two_close_modes_that_move_together_keep_their_ids():
    """7 % slower at once: the new first mode is nearer to the old second one, but order is kept."""
    tracker = ModeTracker()
    tracker.assign((mode(1e-4), mode(1.08e-4)))
    assert tracker.assign((mode(1.07e-4), mode(1.1556e-4))) == {0: mode(1.07e-4), 1: mode(1.1556e-4)}


def test_a_slow_drift_is_followed_without_limit():
    """1 % a window for 200 windows: seven times slower, the same series."""
    tracker, medians = ModeTracker(), 1e-4 * 1.01 ** np.arange(200)
    assert {id_ for median in medians for id_ in tracker.assign((mode(median), mode(9 * median)))} == {0, 1}


def test_a_mode_that_comes_and_goes_has_one_id():
    """Present in one window of seven for an hour: no second series."""
    tracker, ids = ModeTracker(), set()
    for window in range(60):
        ids |= tracker.assign((mode(1e-5), mode(2e-4)) if window % 7 == 0 else (mode(1e-5),)).keys()
    assert ids == {0, 1}


def test_of_two_remembered_modes_the_one_seen_last_is_it():
    """100 us was idle for five windows, 110 us for none: 105 us is the latter."""
    tracker = ModeTracker()
    tracker.assign((mode(1e-4), mode(1.1e-4)))
    for _ in range(5):
        tracker.assign((mode(1.1e-4),))
    assert tracker.assign((mode(1.05e-4),)) == {1: mode(1.05e-4)}


def test_modes_that_merge_and_part_again_take_the_ids_that_they_had():
    """A valley that is shallow in one window of two alternates between two ids."""
    tracker, ids = ModeTracker(), set()
    for window in range(40):
        modes = (mode(1.04e-4),) if window % 2 else (mode(1e-4), mode(1.1e-4))
        ids |= tracker.assign(modes).keys()
    assert ids == {0, 1}


def test_a_pair_that_is_not_published_forgets_its_modes_after_ten_windows():
    """Then the tracker itself can go: memory does not grow with pairs that came once."""
    tracker = ModeTracker()
    tracker.assign((mode(1e-4),))
    assert [tracker.rest() for _ in range(10)] == [True] * 9 + [False]


@given(
    st.lists(
        st.lists(st.floats(-14.0, -2.0), max_size=6).map(
            lambda logs: tuple(mode(np.exp(x)) for x in sorted(logs))
        ),
        max_size=15,
    )
)
def test_every_mode_has_exactly_one_id_and_close_ones_keep_theirs(windows):
    """Whatever comes: all modes of a window are there, and a repeated window has the same ids."""
    tracker = ModeTracker()
    for modes in windows:
        first = tracker.assign(modes)
        assert sorted(first.values(), key=lambda m: m.p50) == sorted(modes, key=lambda m: m.p50)
        assert tracker.assign(modes).keys() == first.keys()
