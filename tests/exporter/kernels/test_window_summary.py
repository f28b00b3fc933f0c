"""A window becomes what is published: top pairs, coverage, cutoff, latencies and voids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_core.modes import ModeConfig
from argus_exporter.kernels.kernel_windows import Boundary, ClosedWindow
from argus_exporter.kernels.window_summary import (
    WindowStatistics,
    WindowSummariser,
    choose_pairs,
    clock_tick_seconds,
)
from argus_exporter.place.topology import Identity
from exporter.kernel_rows import NAMES, kernels

IDENTITY = Identity("job", 0, coordinates={"dp": 0}, sizes={"dp": 8})


def window(*rows: tuple[int, ...], last_step: int = 8, steps: int = 4, step_ends: tuple[int, ...] = ()):
    boundary = Boundary(last_step, steps, max(row[0] for row in rows))
    return ClosedWindow(boundary, kernels(*rows), dict(NAMES), np.array(step_ends, np.int64))


def summarise(closed: ClosedWindow, top_pairs: int = 20, **options) -> WindowStatistics:
    summariser = options.pop("summariser", None) or WindowSummariser()
    published = options.pop("published", ())
    identity = options.pop("identity", IDENTITY)
    return summariser.summarise(closed, identity, published, top_pairs, ModeConfig(), **options)


def test_only_the_top_pairs_are_published_and_the_rest_is_told():
    """Coverage is the time share of what is published; the cutoff bounds what is not."""
    found = summarise(
        window(*[(5000 + i, 60, 1, 7) for i in range(10)], *[(5500 + i, 40, 2, 20) for i in range(10)]),
        top_pairs=1,
    )
    (pair,) = found.pairs
    assert (pair.label, pair.count, pair.seconds) == (("gemm", "compute0"), 10, pytest.approx(600e-9))
    assert found.coverage == found.cutoff == pytest.approx(0.6)


def test_a_window_without_time_publishes_nothing():
    """Zero durations have no share."""
    found = summarise(window((5000, 0, 1, 7)))
    assert (found.pairs, found.coverage, found.cutoff) == ((), 0.0, 0.0)


def test_kernels_of_two_devices_are_two_pairs():
    """Stream 7 of another device is another stream."""
    own = window((5000, 90, 1, 7), (5100, 90, 1, 7))
    own.records["device"][1] = 1
    assert {pair.label for pair in summarise(own).pairs} == {("gemm", "compute0"), ("gemm", "compute0:gpu1")}


def test_a_published_pair_stays_until_another_is_clearly_larger():
    """10 % more time does not replace it, 30 % does."""
    assert choose_pairs({("a", "s"): 1.0, ("b", "s"): 1.1}, {("a", "s")}, 1)[0] == [("a", "s")]
    assert choose_pairs({("a", "s"): 1.0, ("b", "s"): 1.3}, {("a", "s")}, 1)[0] == [("b", "s")]
    assert choose_pairs({("a", "s"): 1.0, ("b", "s"): 1.1}, (), 1)[0] == [("b", "s")]


@given(
    st.dictionaries(st.tuples(st.sampled_from("abcdefgh"), st.just("s")), st.floats(0, 10), max_size=8),
    st.sets(st.tuples(st.sampled_from("abcdefgh"), st.just("s"))),
    st.integers(1, 5),
)
def test_no_unpublished_pair_took_more_than_the_cutoff(seconds, published, top):
    """Hysteresis or not: the worker reads it as an upper bound for pairs that a rank does not publish."""
    chosen, cutoff = choose_pairs(seconds, published, top)
    assert len(chosen) == min(top, sum(value > 0 for value in seconds.values()))
    assert all(value <= cutoff for label, value in seconds.items() if label not in chosen)
    assert cutoff == 0 or cutoff in seconds.values()
    assert [seconds[label] for label in chosen] == sorted((seconds[label] for label in chosen), reverse=True)


def test_the_clock_of_the_gpu_is_measured():
    """Durations in whole microseconds or 32 ns ticks: their step; otherwise none."""
    rng = np.random.default_rng(1)
    ticks = rng.integers(10, 1000, 5000).astype(np.uint64)
    assert clock_tick_seconds(ticks * np.uint64(1000)) == 1e-6
    assert clock_tick_seconds(ticks * np.uint64(32)) == 32e-9
    assert clock_tick_seconds(ticks) == 0.0


@pytest.mark.parametrize("durations", [[20_000, 30_000], [7], [0, 0]])
def test_a_few_round_durations_are_no_clock(durations):
    """10 us is their common divisor, but no GPU counts so coarsely."""
    assert clock_tick_seconds(np.array(durations, np.uint64)) in (0.0, 7e-9)


def test_ticks_of_a_coarse_clock_are_not_published_as_modes():
    """20 us kernels on a microsecond clock: one mode, with no configuration."""
    rng = np.random.default_rng(2)
    durations = np.round(20 * np.exp(rng.normal(0, 0.02, 2000))).astype(int) * 1000
    found = summarise(window(*((5000 + i, int(d), 1, 7) for i, d in enumerate(durations))))
    assert [mode.count for mode in found.pairs[0].modes.modes] == [2000]


def test_the_stream_of_the_jobs_collectives_is_named_after_their_dimension():
    """All ranks are data parallel: so is the communicator."""
    found = summarise(window((5000, 90, 1, 7), (5100, 90, 2, 20)))
    assert found.streams == {7: "compute0", 20: "nccl:dp"}
    assert found.dimensions == {20: "dp"}


def test_another_identity_names_the_communicators_anew():
    """The kernel channel knew no topology; the training process that connects later does."""
    summariser, closed = WindowSummariser(), window((5000, 90, 2, 20))
    assert summarise(closed, summariser=summariser).dimensions == {20: "dp"}
    model_parallel = Identity("job", 0, coordinates={"dp": 0, "tp": 0}, sizes={"dp": 4, "tp": 2})
    found = summarise(closed, summariser=summariser, identity=model_parallel)
    assert (found.streams, found.dimensions) == ({20: "nccl0"}, {})


def test_the_gap_between_consecutive_windows_is_a_void_of_the_second():
    """Step 8 ended at 5200, between kernels that end at 5190 and start at 5300."""
    summariser = WindowSummariser()
    first = summarise(window((5000, 90, 1, 7), (5100, 90, 1, 7)), summariser=summariser)
    assert first.voids is not None
    assert (first.voids.inter_step, first.voids.minority) == (0.0, pytest.approx(10e-9))
    later = window((5300, 10, 1, 7), (5310, 5, 1, 7), last_step=12, step_ends=(5200,))
    second = summarise(later, summariser=summariser)
    assert second.voids is not None
    assert (second.voids.inter_step, second.voids.minority) == (pytest.approx(110e-9), 0.0)


def test_windows_that_do_not_follow_each_other_share_no_gap():
    """A window was left out between them: what lies there is not known."""
    summariser = WindowSummariser()
    summarise(window((5000, 90, 1, 7)), summariser=summariser)
    found = summarise(window((9000, 10, 1, 7), last_step=16, step_ends=(8000,)), summariser=summariser)
    assert found.voids is not None
    assert (found.voids.inter_step, found.voids.minority) == (0.0, 0.0)


def test_without_iteration_marks_there_are_no_voids():
    """Nobody can say what lies between two steps."""
    assert summarise(window((5000, 90, 1, 7), steps=0)).voids is None


def test_the_literal_method_of_the_paper_finds_fewer_modes():
    """`method="scott"`: 100 and 120 us beside 1 ms are then one mode, as the paper has it."""
    rng = np.random.default_rng(1)
    durations = np.concatenate(
        [
            median * np.exp(rng.normal(0.0, 0.03, size))
            for median, size in ((1e5, 600), (1.2e5, 200), (1e6, 200))
        ]
    )
    closed = window(*((5000 + i, int(duration), 1, 7) for i, duration in enumerate(durations)))
    found = {
        config.method: WindowSummariser().summarise(closed, IDENTITY, (), 20, config)
        for config in (ModeConfig(), ModeConfig(method="scott"))
    }
    counts = {method: len(statistics.pairs[0].modes.modes) for method, statistics in found.items()}
    assert counts == {"recursive": 3, "scott": 2}
