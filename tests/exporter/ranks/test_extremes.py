"""Trailing extremes equal the maximum over the window, however values arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_exporter.ranks.extremes import TrailingExtreme


def test_a_spike_survives_exactly_its_window():
    """Visible until the window has passed, then gone."""
    extreme = TrailingExtreme(10.0)
    extreme.add(0.0, 5.0)
    extreme.add(1.0, 1.0)
    assert extreme.value(9.9) == 5.0
    assert extreme.value(10.5) == 1.0
    assert extreme.value(11.5) is None


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(-1e6, 1e6)), max_size=60), st.floats(0.1, 20))
def test_it_equals_the_naive_maximum(gaps_and_values: list[tuple[float, float]], window_s: float):
    """Against a plain list."""
    extreme, seen, now = TrailingExtreme(window_s), [], 0.0
    for gap, value in gaps_and_values:
        now += gap
        extreme.add(now, value)
        seen.append((now, value))
        assert extreme.value(now) == max(v for t, v in seen if t > now - window_s)


def test_ever_smaller_values_take_no_more_memory():
    """A thousand a second for ten minutes, never scraped; the maximum is right to a 64th of the window."""
    extreme = TrailingExtreme(64.0)
    for at in range(600_000):
        extreme.add(at / 1000, -float(at))
    assert len(extreme._queue) <= 2 * 64 + 1
    assert extreme.value(600.0) == pytest.approx(-536_001.0, abs=1001.0)
