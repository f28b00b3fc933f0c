"""Mode ids stay with their mode from window to window."""

from __future__ import annotations

import numpy as np

from argus_core.modes import Mode
from argus_exporter.mode_tracking import ModeTracker


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
