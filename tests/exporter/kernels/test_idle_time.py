"""Idle time of the GPU, split at the ends of steps: by hand and against a naive twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernels.idle_time import Voids, find_voids, last_kernel_end
from argus_exporter.replay.reader import read_files
from exporter.kernel_rows import kernels

NO_STEPS = np.empty(0, np.int64)


def ends(*steps_ns: int):
    return np.array(steps_ns, np.int64)


def nanoseconds(voids: Voids) -> tuple[int, int]:
    return round(voids.inter_step * 1e9), round(voids.minority * 1e9)


def test_a_gap_at_the_end_of_a_step_is_inter_step_and_another_is_minority():
    """Kernels at 0-10, 15-20 | 50-60: 5 ns within the step, 30 ns between the two."""
    records = kernels((0, 10, 1, 7), (15, 5, 1, 7), (50, 10, 1, 7))
    assert nanoseconds(find_voids(records, ends(30), None, 0)) == (30, 5)


def test_launches_decide_which_side_of_the_step_a_kernel_belongs_to():
    """A GPU that lags behind the host ends the kernels of a step after its mark."""
    records = kernels((0, 10, 1, 7, 0), (40, 20, 1, 7, 25), (70, 10, 1, 7, 5))
    assert nanoseconds(find_voids(records, ends(30), None, 0)) == (10, 30)


def test_overlapping_streams_are_idle_only_together():
    """A second stream that works bridges the gap of the first."""
    records = kernels((0, 10, 1, 7), (5, 30, 1, 9), (30, 10, 1, 7))
    assert nanoseconds(find_voids(records, ends(20), None, 0)) == (0, 0)


def test_copies_and_other_devices_do_not_count_as_running():
    """Between 10 and 30 only a copy and another GPU work."""
    records = np.concatenate(
        [kernels((0, 10, 1, 7), (10, 20, 3, 13), (30, 10, 1, 7)), kernels((10, 20, 1, 7), device=1)]
    )
    assert nanoseconds(find_voids(records, NO_STEPS, None, 0)) == (0, 20)


def test_the_gap_between_two_windows_belongs_to_the_second():
    """The last kernel before ended at 100, the step at 110, the first kernel starts at 130."""
    records = kernels((130, 10, 1, 7), (150, 10, 1, 7))
    assert nanoseconds(find_voids(records, ends(110), 100, 0)) == (30, 10)
    assert nanoseconds(find_voids(records, ends(110), None, 0)) == (0, 10), "not known when it began"


def test_a_kernel_of_the_window_before_may_reach_into_this_one():
    """It ended at 140, so the gap before 150 has 10 ns."""
    assert nanoseconds(find_voids(kernels((130, 5, 1, 7), (150, 10, 1, 7)), ends(110), 140, 0)) == (0, 10)


def test_steps_without_kernels_share_one_gap():
    """Two ends in one gap count it once."""
    assert nanoseconds(find_voids(kernels((0, 10, 1, 7), (50, 1, 1, 7)), ends(20, 40), None, 0)) == (40, 0)


def test_nothing_ran_nothing_is_known():
    """A window of copies has no voids, and no last kernel."""
    copies = kernels((0, 10, 3, 13))
    assert nanoseconds(find_voids(copies, ends(20), None, 0)) == (0, 0)
    assert last_kernel_end(copies, 0) is None
    assert last_kernel_end(kernels((5, 10, 1, 7), (6, 1, 1, 7)), 0) == 15


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 30), st.integers(-1, 60)), min_size=1, max_size=30
    ),
    st.lists(st.integers(0, 200), max_size=4),
)
def test_both_kinds_add_up_to_all_idle_time(rows, steps):
    """Counting nanoseconds one by one gives the same, for any overlap and any order."""
    records = kernels(*((300 + start, duration, 1, 7, issue) for start, duration, issue in rows))
    running = set()
    for start, duration, _ in rows:
        running |= set(range(300 + start, 300 + start + duration))
    first = int(records["start_ns"].min())
    # Idle is what lies before the last start: what follows it is not over.
    idle = len(set(range(first, int(records["start_ns"].max()))) - running)
    found = find_voids(records, np.array(sorted(300 + step for step in steps), np.int64), None, 0)
    assert round((found.inter_step + found.minority) * 1e9) == idle
    assert found.inter_step >= 0
    assert found.minority >= 0


def test_hostile_times_are_no_exception_and_never_negative():
    """Counters must not fall, whatever a producer sends."""
    records = np.zeros(2, KERNEL_DTYPE)
    records["start_ns"] = 2**64 - 1, 0
    records["duration_ns"] = 2**64 - 1
    found = find_voids(records, ends(5), None, 0)
    assert found.inter_step >= 0
    assert found.minority >= 0


@pytest.mark.traces
def test_a_loader_that_stalls_shows_between_the_steps_of_a_real_trace(traces: Path):
    """ResNet-50 on a V100: without loader workers the GPU waits a fifth of the time between steps."""
    files = sorted((traces / "resnet50_kineto").glob("*.json.gz"))
    shares = []
    for file in files:  # two repeats without workers, then two with four
        (recording,) = read_files([file], assume_ranks=True)
        steps = (recording.iterations["start_ns"] + recording.iterations["duration_ns"]).astype(np.int64)
        found = find_voids(recording.kernels, steps, None, 0)
        shares.append(found.inter_step * 1e9 / (recording.end_ns - recording.begin_ns))
    assert min(shares[:2]) > 0.15
    assert max(shares[2:]) < 0.05
