"""Windows end at aligned steps, count each kernel once, and are handed out complete."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernels.kernel_windows import ClosedWindow, KernelWindows, WindowLength
from exporter.kernel_rows import NAMES, iteration, kernels


def windows(seconds: float = 4.0) -> KernelWindows:
    return KernelWindows(seconds, settle_seconds=1.0, names=dict(NAMES))


def test_numpy_reads_the_record_that_the_wire_packs():
    """KERNEL_DTYPE and wire.Kernel are one layout."""
    record = wire.Kernel(11, 22, -1, 33, 44, 55, 1, 2)
    row = np.frombuffer(record.pack(), KERNEL_DTYPE)[0]
    assert [row[name].item() for name in KERNEL_DTYPE.names or ()] == [11, 22, -1, 33, 44, 55, 1, 2, 0]


@pytest.mark.parametrize(("step_s", "steps"), [(0.25, 256), (1.0, 64), (4.0, 16), (50.0, 1), (500.0, 1)])
def test_a_window_is_a_power_of_two_of_steps_near_its_length(step_s: float, steps: int):
    """60 s at 4 s a step is 16 steps; a step longer than the window is a window of its own."""
    length = WindowLength()
    for _ in range(8):
        length.add(step_s, 60.0)
    assert length.steps == steps


def test_noise_at_the_edge_does_not_change_the_length():
    """A median that wanders around a power-of-two boundary keeps the first choice."""
    length, rng = WindowLength(), np.random.default_rng(2)
    chosen = {length.add(60 / 2**3.5 * np.exp(rng.normal(0, 0.1)), 60.0) for _ in range(500)}
    assert len(chosen - {0}) == 1


def test_a_step_that_became_twice_as_long_changes_the_length():
    """The window follows a real change."""
    length = WindowLength()
    for _ in range(20):
        length.add(1.0, 60.0)
    for _ in range(20):
        length.add(2.0, 60.0)
    assert length.steps == 32


def test_windows_end_at_divisible_steps_and_the_first_is_not_complete():
    """At 1 s a step and 4 s a window: steps 5 to 8 are the first complete window."""
    collect = windows()
    complete = []
    for step in range(1, 10):
        collect.add(kernels((step * 1000, 10, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500), now=step)
        complete += collect.take_complete(now=step)
    assert [(w.boundary.last_step, w.boundary.steps) for w in complete] == [(8, 4)]
    assert list(complete[0].records["start_ns"]) == [5000, 6000, 7000, 8000]


def test_the_first_window_of_a_job_that_we_saw_begin_is_complete():
    """The producer's own count says that nothing came before: a short recording is judged whole."""
    collect = windows()
    collect.steps = 2
    for step in (1, 2):
        collect.add(kernels((step * 1000, 10, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500, seen_before=0), now=step)
    (window,) = collect.take_complete(now=100)
    assert (window.boundary.last_step, window.boundary.steps, len(window.records)) == (2, 2, 2)


def test_a_window_waits_for_late_records_until_it_settles():
    """Records come in batches, later than the mark; without any later kernel five settling times decide."""
    collect = windows()
    for step in range(1, 9):
        collect.add(kernels((step * 1000, 10, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500), now=step)
        collect.take_complete(now=step - 1)
    collect.add(kernels((8400, 10, 1, 7)), now=8.5)
    assert collect.take_complete(now=12.9) == []
    (window,) = collect.take_complete(now=13.0)
    assert list(window.records["start_ns"]) == [5000, 6000, 7000, 8000, 8400]


def test_a_later_kernel_shortens_the_wait_to_the_settling_time():
    """A long kernel ends, and is reported, after short ones that started later."""
    collect = windows()
    for step in range(1, 9):
        collect.iteration(iteration(step, step * 1000 + 500), now=step)
        collect.add(kernels((step * 1000 + 600, 10, 1, 7)), now=step)
        collect.take_complete(now=step - 1)
    assert collect.take_complete(now=8.9) == []
    collect.add(kernels((8400, 500, 2, 20)), now=8.9)
    (window,) = collect.take_complete(now=9.0)
    assert 8400 in window.records["start_ns"]


def test_windows_of_a_fast_replay_settle_by_the_kernels_own_clock():
    """Whoever plays an hour in a second does not wait two seconds a window."""
    collect = windows()
    second = 10**9
    for step in range(1, 11):
        collect.add(kernels((step * second, 10, 1, 7)), now=0.0)
        collect.iteration(iteration(step, step * second + 500), now=0.0)
    (window,) = collect.take_complete(now=0.0)
    assert window.boundary.last_step == 8


def test_a_kernel_that_straddles_the_boundary_is_counted_in_its_first_window_only():
    """It belongs to where it started."""
    collect = windows()
    counted = []
    for step in range(1, 18):
        collect.add(kernels((step * 1000 + 400, 5000, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500), now=step)
        counted += [len(w.records) for w in collect.take_complete(now=step)]
    assert counted == [4, 4, 4][: len(counted)]
    assert counted


def closed_steps(collect: KernelWindows, steps: Iterable[int], *, restart_at: int = 0) -> list[int]:
    """Last steps of the windows that a job of these marks completes; a kernel a step."""
    closed: list[ClosedWindow] = []
    for step in steps:
        if step == restart_at:
            collect.restart()
        collect.add(kernels((step * 1000, 10, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500, duration_ns=1000), now=step)
        closed += collect.take_complete(now=step)
    closed += collect.take_complete(now=10_000)
    return [window.boundary.last_step for window in closed]


def test_after_a_gap_the_open_window_is_not_published():
    """A reconnect lost records: the next complete window is the first to count."""
    collect = windows()
    collect.steps = 4
    assert closed_steps(collect, range(1, 22), restart_at=10) == [8, 16, 20]


def test_without_marks_windows_are_cut_by_time():
    """Plain seconds since the epoch; the length in steps is 0."""
    collect = windows(seconds=1.0)
    complete = []
    for index in range(5, 51):
        collect.add(kernels((index * 100_000_000, 10, 1, 7)), now=index / 10)
        complete += collect.take_complete(now=index / 10)
    assert [(w.boundary.last_step, w.boundary.steps) for w in complete] == [(2, 0), (3, 0), (4, 0)]
    assert {len(w.records) for w in complete} == {10}


@pytest.mark.parametrize("ahead_s", [0, 3600, -3600])
def test_a_clock_that_jumps_holds_up_no_windows_by_time(ahead_s: int):
    """One record of another time, or a host's clock that is set back, costs a few windows."""
    host = 1_700_000_000
    collect = KernelWindows(60.0, 1.0, dict(NAMES), unix_ns=lambda: host * 10**9)
    closed = []
    for tick in range(0, 1800, 5):
        host += 5
        if tick == 300:
            host += min(ahead_s, 0)
            collect.add(kernels(((host + max(ahead_s, 0)) * 10**9, 10, 1, 7)), now=tick)
        collect.add(kernels((host * 10**9, 10, 1, 7)), now=tick)
        closed += collect.take_complete(now=tick)
    assert len(closed) >= 24


def test_a_single_lost_mark_is_inferred_from_the_next_one():
    """Step 9 says when step 8 ended; the window that 8 closes is complete."""
    collect = windows()
    collect.steps = 4
    assert closed_steps(collect, [step for step in range(1, 14) if step != 8]) == [8, 12]


def test_a_boundary_that_nobody_saw_costs_its_windows_and_no_more():
    """Marks 7 to 10 are lost: what ends at 12 is not known to be four steps long."""
    collect = windows()
    collect.steps = 4
    assert closed_steps(collect, [*range(1, 7), *range(11, 18)]) == [16]


def test_a_job_that_goes_back_to_a_checkpoint_goes_on_with_whole_windows():
    """Steps jump from 18 to 9: the window that the jump cut is left out."""
    collect = windows()
    collect.steps = 4
    assert closed_steps(collect, [*range(1, 19), *range(9, 18)]) == [8, 12, 16, 16]


def test_a_changed_window_length_begins_with_a_whole_window():
    """From 4 steps to 8: the first long window starts at a step divisible by 8."""
    collect = windows()
    collect.steps = 4
    first = closed_steps(collect, range(1, 15))
    collect.steps = 8
    assert (first, closed_steps(collect, range(15, 34))) == ([8, 12], [24, 32])


def test_marks_that_stop_lead_to_windows_by_time_and_back():
    """A long evaluation has kernels and no iterations: four windows later they are cut by time."""
    collect = windows(seconds=1.0)
    collect.steps = 2
    tenth, closed = 10**8, []
    for tick in range(200):
        now = tick / 10
        collect.add(kernels((tick * tenth + 1, 10, 1, 7)), now)
        if (tick < 50 or tick >= 150) and tick % 10 == 0:
            collect.iteration(iteration(tick // 10, tick * tenth), now)
        closed += [(w.boundary.last_step, w.boundary.steps) for w in collect.take_complete(now)]
    assert closed == [(2, 2), (4, 2), *((second, 0) for second in range(10, 14)), (18, 2)]


def test_after_a_reconnect_a_job_with_marks_is_not_cut_by_time():
    """Kernels arrive before the first mark; the job's windows are known to end at steps."""
    collect = windows(seconds=1.0)
    collect.iteration(iteration(1, 10**9), now=0.0)
    collect.restart()
    for tick in range(30):
        collect.add(kernels((tick * 10**8, 10, 1, 7)), now=tick / 10)
    assert collect.take_complete(now=3.0) == []


def test_a_window_knows_the_ends_of_its_steps_and_of_the_step_before():
    """What lies between two steps is found from them; the mark that closes opens the next window."""
    collect = windows()
    collect.steps = 2
    found = []
    for step in range(1, 8):
        collect.add(kernels((step * 1000, 10, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500), now=step)
        found += [w.step_ends_ns.tolist() for w in collect.take_complete(now=step)]
    assert found == [[2500, 3500], [4500, 5500]]


def test_ranks_that_choose_at_different_times_choose_alike():
    """A rank whose exporter restarted, at any step time: the same length as its peers chose at the start."""
    for exponent in np.linspace(-1.0, 3.0, 81):
        step_s = 60 / 2**exponent
        peers, restarted = WindowLength(), WindowLength()
        rng = np.random.default_rng(3)
        for number in range(60):
            duration = step_s * (1 + rng.uniform(-0.002, 0.002))
            peers.add(duration, 60.0)
            if number >= 30:
                restarted.add(duration, 60.0)
        # On the very edge of a choice noise decides.
        if abs((exponent - 0.7) % 1.0) > 0.01 and abs((exponent - 0.7) % 1.0) < 0.99:
            assert peers.steps == restarted.steps, exponent
