"""What holds for any window, and that both twins answer alike."""

import os
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from argus_core import native
from argus_core.modes import ModeConfig, Modes, find_modes

CONFIGS = st.builds(
    ModeConfig,
    method=st.sampled_from(["recursive", "scott"]),
    tick_seconds=st.sampled_from([0.0, 1e-9, 3.2e-8, 1e-6]),
    min_events=st.sampled_from([1, 5]),
    min_share=st.sampled_from([0.0, 0.005, 0.2]),
    prominence=st.sampled_from([0.5, 0.85, 0.99]),
    bandwidth_floor=st.sampled_from([0.0, 0.002]),
)


@st.composite
def windows(draw) -> np.ndarray:
    """A random mixture: up to five modes, ties, scattered and unusable durations."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parts = [
        10.0 ** rng.uniform(-6.0, -2.0)
        * np.exp(draw(st.sampled_from([0.0, 0.003, 0.02, 0.1, 0.5])) * rng.normal(0.0, 1.0, size))
        for size in draw(st.lists(st.sampled_from([1, 2, 5, 20, 100, 1000]), min_size=1, max_size=5))
    ]
    parts.append(10.0 ** rng.uniform(-7.0, 0.0, draw(st.sampled_from([0, 1, 3, 30]))))
    window = rng.permutation(np.concatenate(parts))
    tick = draw(st.sampled_from([0.0, 1e-9, 3.2e-8, 1e-6]))
    # On a coarse clock short events round to zero: dropped durations come by themselves.
    return window if tick == 0.0 else np.round(window / tick) * tick


def same(a: Modes, b: Modes, scale: float = 1.0) -> bool:
    """Equal counts; quantiles equal up to rounding."""
    ours = [(mode.count, mode.p50 * scale, mode.p99 * scale) for mode in a.modes]
    theirs = [(mode.count, mode.p50, mode.p99) for mode in b.modes]
    return (
        (a.tail_events, a.dropped) == (b.tail_events, b.dropped)
        and len(ours) == len(theirs)
        and np.allclose(ours, theirs, rtol=1e-9, atol=0.0)
    )


def by_numpy(window: np.ndarray, config: ModeConfig) -> Modes:
    with mock.patch.dict(os.environ, {"ARGUS_NO_NATIVE": "1"}):
        return find_modes(window, config)


@settings(deadline=None)
@given(windows(), CONFIGS)
def test_every_event_is_counted_once(window, config):
    """Modes, tail and dropped add up to the window."""
    found = find_modes(window, config)
    assert sum(mode.count for mode in found.modes) + found.tail_events + found.dropped == window.size
    assert min((mode.count for mode in found.modes), default=1) >= 1


@settings(deadline=None)
@given(windows(), CONFIGS)
def test_modes_ascend_and_p99_is_never_under_p50(window, config):
    """Neighbours in the answer are neighbours in time: p50 <= p99 < next p50."""
    flat = [value for mode in find_modes(window, config).modes for value in (mode.p50, mode.p99)]
    assert flat == sorted(flat)


@settings(deadline=None)
@given(windows(), CONFIGS, st.integers(0, 2**32 - 1))
def test_order_of_events_changes_nothing(window, config, seed):
    """The answer belongs to the multiset: bit for bit equal after any permutation."""
    shuffled = np.random.default_rng(seed).permutation(window)
    assert find_modes(shuffled, config) == find_modes(window, config)


@settings(deadline=None)
@given(windows(), CONFIGS, st.integers(-20, 20))
def test_scaling_the_unit_scales_the_modes(window, config, exponent):
    """Seconds or other units: the same modes, scaled. Powers of two, so that the input is exact."""
    scale = 2.0**exponent
    scaled = ModeConfig(**{**vars(config), "tick_seconds": config.tick_seconds * scale})
    assert same(find_modes(window, config), find_modes(window * scale, scaled), scale)


@pytest.mark.skipif(native.library() is None, reason="libargus_numeric is not built here")
@settings(max_examples=400, deadline=None)
@given(windows(), CONFIGS)
@example(np.full(50, 1e-5), ModeConfig())
@example(np.repeat([1e-300, 1e300], 50), ModeConfig())
@example(np.repeat([1e-5, 1.1e-5, 2e-5], 50), ModeConfig(method="scott"))
@example(np.geomspace(1e-6, 1.0, 5000), ModeConfig(min_events=1, min_share=0.0, prominence=0.99))
def test_compiled_and_numpy_twins_agree(window, config):
    """The same modes from both, up to rounding."""
    assert same(find_modes(window, config), by_numpy(window, config))
