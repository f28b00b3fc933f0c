"""Windows end at aligned steps, count each kernel once, and are handed out complete."""

from __future__ import annotations

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_core.modes import ModeConfig
from argus_exporter.kernel_windows import KernelWindows, WindowLength, summarise
from argus_exporter.ranks import KernelIds

NAMES = {0: "", 1: "gemm", 2: "ncclDevKernel_AllReduce", 3: "Memcpy HtoD"}


def kernels(*rows: tuple[int, int, int, int]) -> KernelArray:
    """Rows of start_ns, duration_ns, name id, stream."""
    records = np.zeros(len(rows), KERNEL_DTYPE)
    for field, column in zip(
        ("start_ns", "duration_ns", "name_id", "stream"), zip(*rows, strict=True), strict=True
    ):
        records[field] = column
    records["operation"] = np.where(records["name_id"] == 3, wire.Operation.MEMCPY, wire.Operation.KERNEL)
    return records


def iteration(step: int, end_ns: int, *, seen_before: int = 100) -> wire.Iteration:
    """A second long; the producer had finished `seen_before` iterations before step 1."""
    return wire.Iteration(step, end_ns, 10**9, seen_before + step, 0.0, 0.0)


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
    """Kernel records come later than the iteration mark; without a later kernel the clock decides."""
    collect = windows()
    for step in range(1, 9):
        collect.add(kernels((step * 1000, 10, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500), now=step)
        collect.take_complete(now=step - 1)
    collect.add(kernels((8400, 10, 1, 7)), now=8.5)
    assert collect.take_complete(now=8.9) == []
    (window,) = collect.take_complete(now=9.0)
    assert list(window.records["start_ns"]) == [5000, 6000, 7000, 8000, 8400]


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


def test_after_a_gap_the_open_window_is_not_published():
    """A reconnect lost records: the next complete window is the first to count."""
    collect = windows()
    seen = []
    for step in range(1, 14):
        if step == 10:
            collect.restart()
        collect.add(kernels((step * 1000, 10, 1, 7)), now=step)
        collect.iteration(iteration(step, step * 1000 + 500), now=step)
        seen += [w.boundary.last_step for w in collect.take_complete(now=step)]
    assert seen == [8]


def test_without_marks_windows_are_cut_by_time():
    """Plain seconds since the epoch; the length in steps is 0."""
    collect = windows(seconds=1.0)
    complete = []
    for index in range(5, 50):
        collect.add(kernels((index * 100_000_000, 10, 1, 7)), now=index / 10)
        complete += collect.take_complete(now=index / 10)
    assert [(w.boundary.last_step, w.boundary.steps) for w in complete] == [(2, 0), (3, 0), (4, 0)]
    assert {len(w.records) for w in complete} == {10}


def one_window(*rows: tuple[int, int, int, int], seconds: float = 4.0):
    """The window of steps 5 to 8 that holds exactly these rows."""
    collect = windows(seconds)
    for step in range(1, 5):
        collect.iteration(iteration(step, step * 1000), now=step)
    collect.take_complete(now=100)
    collect.add(kernels(*rows), now=5)
    for step in range(5, 9):
        collect.iteration(iteration(step, step * 1000), now=step)
    (window,) = collect.take_complete(now=100)
    return window


def test_streams_are_named_by_what_they_mostly_do():
    """Raw stream ids are not comparable across ranks."""
    window = one_window(
        (5000, 90, 1, 7), (5100, 90, 2, 20), (5200, 90, 3, 13), (5300, 90, 1, 9), (5400, 10, 3, 7)
    )
    assert window.streams == {7: "compute0", 9: "compute1", 13: "copy0", 20: "nccl0"}


def test_only_the_top_pairs_are_clustered_and_the_rest_is_told():
    """Coverage is the time share of what is published; the cutoff is the smallest published share."""
    window = one_window(
        *[(5000 + i, 60, 1, 7) for i in range(10)], *[(5500 + i, 40, 2, 20) for i in range(10)]
    )
    statistics = summarise(window, top_pairs=1, config=ModeConfig(), kernel_ids=KernelIds())
    first, second = statistics.pairs
    assert (first.kernel, first.stream, first.count) == ("gemm", "compute0", 10)
    assert first.modes is not None
    assert second.modes is None
    assert statistics.coverage == statistics.cutoff == pytest.approx(0.6)
    assert first.seconds == pytest.approx(600e-9)
