"""What arrives at the exporter is what the GPU did: counts, names, streams, times, launches."""

from __future__ import annotations

import collections
import os
import subprocess
import time

import numpy as np
import pytest

from argus_core import wire
from native.app import heard
from native.builds import Build
from native.listener import Listener

LONG = "kernel_" + "x" * 600 + "_end"
NAMES = (
    "void at::native::vectorized_elementwise_kernel<4>(int)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "flash_fwd_kernel",
    wire.encode_name(LONG).decode(),
)


@pytest.mark.parametrize(
    ("version", "what"),
    [(18, "CUPTI 12.1, 208 bytes"), (130001, "13.0, 216 bytes"), (130500, "13.5, 248 bytes")],
    ids=lambda value: str(value).split(",")[0],
)
def test_records_of_every_size_arrive_whole(
    injector: Build, listener: Listener, version: int, what: str
) -> None:
    """Kernels, copies and sets with their names, streams and durations, none twice, none missing."""
    began_ns = time.time_ns()
    done, connection = heard(injector, listener, "kernels:6400", "settle", FAKE_CUPTI_VERSION=version)
    kernels = connection.kernels
    assert done["cupti_version"] == version, what
    assert (len(kernels), done["sent"], done.dropped) == (6400 + 400 + 100, 6900, 0)
    seen: dict[str, set[tuple[int, ...]]] = collections.defaultdict(set)
    for row in kernels:
        name = connection.names[int(row["name_id"])]
        fields = ("duration_ns", "stream", "operation", "kilobytes", "device")
        seen[name].add(tuple(int(row[field]) for field in fields))
    assert seen == {
        NAMES[0]: {(10_000, 7, 0, 0, 0)},
        NAMES[1]: {(20_000, 31, 0, 0, 0)},
        NAMES[2]: {(30_000, 7, 0, 0, 0)},
        NAMES[3]: {(40_000, 7, 0, 0, 0)},
        "Memcpy HtoD (Pinned -> Device)": {(2_000, 9, 1, 5, 0)},
        "Memset (Device)": {(2_000, 9, 2, 5, 0)},
    }
    counts = collections.Counter(kernels["name_id"].tolist())
    assert sorted(counts.values()) == [100, 400, 1600, 1600, 1600, 1600]
    assert np.all(np.abs(kernels["start_ns"].astype(np.int64) - began_ns) < 60e9)
    assert set(kernels["issue_ns"].tolist()) == {-1}, "launches are off"
    assert done["launches"] == 0


def test_the_greeting_names_rank_and_channel(plain: Build, listener: Listener) -> None:
    """HELLO speaks for the kernels channel alone, with an identity from the environment."""
    _, connection = heard(
        plain, listener, "kernels:10", "settle", RANK=5, LOCAL_RANK=1, WORLD_SIZE=8, ARGUS_JOB="llama"
    )
    hello = connection.hello
    assert (hello.rank, hello.local_rank, hello.world_size) == (5, 1, 8)
    assert wire.decode_text(hello.training_job) == "llama"
    assert wire.decode_text(hello.node) == os.uname().nodename[:64]
    assert (hello.channels, hello.shares_page) == (1 << wire.Channel.KERNELS, 0)
    assert (hello.dp, hello.tp_size) == (-1, -1)
    assert abs(hello.realtime_ns - time.time_ns()) < 60e9
    assert connection.types["BYE"] == 0, "the exit status is the phases' to say"
    assert connection.sequence == list(range(1, len(connection.sequence) + 1))


def test_the_channel_tells_its_own_cost(plain: Build, listener: Listener) -> None:
    """CPU time of the worker's thread, up, nothing dropped."""
    _, connection = heard(plain, listener, "kernels:20000", "settle")
    last = connection.states[-1]
    assert (last.channel, last.up, last.dropped) == (wire.Channel.KERNELS, 1, 0)
    assert 0 < last.cpu_ns < 5e9


def test_issue_latency_is_start_minus_launch(injector: Build, listener: Listener) -> None:
    """Launches through the runtime and through the driver; no other call is recorded."""
    done, connection = heard(injector, listener, "kernels:3200", "settle", ARGUS_ISSUE_LATENCY=1)
    kernels = connection.kernels
    of_kernels = kernels["operation"] == wire.Operation.KERNEL
    assert kernels["issue_ns"][of_kernels].tolist() == [8_000] * 3200
    assert set(kernels["issue_ns"][~of_kernels].tolist()) == {-1}
    assert done["launches"] == 3200
    assert done.dropped == 0


def launch_windows(build: Build, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
    """Begin and end of those that end in this time, as the library finds them."""
    command = [str(build.unit), "windows", str(from_ns), str(to_ns)]
    edges = [int(word) for word in subprocess.run(command, capture_output=True, check=True).stdout.split()]
    return list(zip(edges[::2], edges[1::2], strict=False))


def test_every_ten_seconds_have_a_second_with_launches(plain: Build) -> None:
    """The same on every host, by its clock alone, and not at the same place of each ten seconds."""
    day_ns = 1_795_454_000 * 10**9 // 10**13 * 10**13
    windows = launch_windows(plain, day_ns, day_ns + 10_000 * 10**9)
    assert len(windows) == 1000
    assert {end - begin for begin, end in windows} == {10**9}
    assert [begin // 10**10 for begin, _ in windows] == [day_ns // 10**10 + n for n in range(1000)]
    places = sorted(begin % 10**10 for begin, _ in windows)
    assert places[0] < 0.2e9 and places[-1] > 8.8e9
    assert abs(places[500] - 4.5e9) < 0.5e9


@pytest.mark.slow
def test_launches_are_sampled_by_the_clock(injector: Build, plain: Build, listener: Listener) -> None:
    """Within the window each kernel has its latency, beyond it none waits for one; no kernel is lost.

    A busy machine may wake the worker late, so the window opens and closes at its time or somewhat after it.
    """
    now_ns, batch = time.time_ns(), 64  # kernels of one moment, in the stand-in
    windows = launch_windows(plain, now_ns - 20 * 10**9, now_ns + 120 * 10**9)
    begin, end, following = next(  # windows may follow each other closely: one that stands alone
        (begin, end, following)
        for (_, before), (begin, end), (following, _) in zip(windows, windows[1:], windows[2:], strict=False)
        if begin > max(now_ns + 3e9, before + 2e9) and following > end + 2e9
    )
    count = int((end + 1.5e9 - now_ns) * 2000 / 1e9)
    done, connection = heard(
        injector, listener, f"kernels:{count}@2000", "settle", ARGUS_ISSUE_LATENCY="sampled"
    )
    kernels = np.sort(
        connection.kernels[connection.kernels["operation"] == 0], order="start_ns", kind="stable"
    )
    assert (len(kernels), done.dropped) == (count, 0)
    launched = kernels["start_ns"].astype(np.int64) - 8_000
    known = kernels["issue_ns"] >= 0
    assert set(kernels["issue_ns"][known].tolist()) == {8_000}
    of_window = known & (launched > begin - 0.5e9) & (launched < following)
    # The runtime's calls are switched before the driver's (every other kernel here), which may be while a
    # batch is launched: so the edges are those of each, and its kernels strictly between have latencies.
    of_driver = kernels["duration_ns"] // 10_000 % 2 == 0
    for kind in (of_driver, ~of_driver):
        inside = launched[kind & of_window]
        between = kind & (launched > inside.min()) & (launched < inside.max())
        assert known[between].all(), "no launch is missed while the window is open"
    first, last = np.flatnonzero(of_window)[[0, -1]].tolist()
    from_begin, from_end = (int(np.searchsorted(launched, edge)) for edge in (begin, end))
    assert from_begin - batch <= first < from_begin + 1500, "it opens at its time, at most 0.75 s late"
    assert from_end - batch <= last + 1 < from_end + 1500, "and so it closes"
    # A kernel whose launch comes in a later buffer than it is not waited for once the window has closed.
    assert 0 <= done["launches"] - np.count_nonzero(known) <= batch


def test_a_launch_may_come_after_its_kernel(plain: Build, listener: Listener) -> None:
    """The kernel waits for one flush."""
    _, connection = heard(plain, listener, "late:3200", "settle", ARGUS_ISSUE_LATENCY=1)
    kernels = connection.kernels
    assert kernels["issue_ns"][kernels["operation"] == 0].tolist() == [8_000] * 3200


def test_a_graphs_kernels_share_one_launch(injector: Build, listener: Listener) -> None:
    """Every kernel of every replay arrives; the first of a replay has a latency, those behind it none."""
    _, connection = heard(injector, listener, "graph:40:50", "settle", ARGUS_ISSUE_LATENCY=1)
    latencies = collections.Counter(connection.kernels["issue_ns"].tolist())
    assert latencies == {8_000: 50, -1: 50 * 39}


def test_many_threads_lose_nothing(injector: Build, listener: Listener) -> None:
    """One buffer a thread, as CUPTI 13 does it."""
    done, connection = heard(injector, listener, "threads:8:2000", "settle")
    assert len(connection.kernels) == done["emitted"] == done["kept"]
    assert done.dropped == 0


@pytest.mark.parametrize("clock", ["0 1.0", "-7000000000 1.0", "5000000000000 2.1"])
def test_times_are_unix_times_whatever_clock_cupti_counts(
    plain: Build, listener: Listener, clock: str
) -> None:
    """An offset, and a rate that is no nanosecond (Kineto makes CUPTI count TSC ticks)."""
    rate = float(clock.split()[1])
    began_ns = time.time_ns()
    # The first flush finds the rate; what is stamped later is exact.
    _, connection = heard(plain, listener, "sleep:200", "kernels:1600", "settle", FAKE_CUPTI_CLOCK=clock)
    kernels = connection.kernels
    assert len(kernels) == 1725
    elapsed_ns = time.time_ns() - began_ns
    since_ns = kernels["start_ns"].astype(np.int64) - began_ns
    assert np.all((since_ns > 0) & (since_ns < elapsed_ns))
    (name_id,) = (i for i, text in connection.names.items() if text == NAMES[0])
    durations = kernels["duration_ns"][kernels["name_id"] == name_id]
    assert durations == pytest.approx(10_000 / rate, rel=1e-3)


def test_a_clock_that_changes_in_mid_run_is_followed(plain: Build, listener: Listener) -> None:
    """As when a profiler registers a timestamp callback."""
    actions = ("kernels:1600", "settle", "sleep:500", "kernels:1600", "settle")
    done, connection = heard(plain, listener, *actions, FAKE_CUPTI_CLOCK="900000000000 3.0 300")
    assert done["clock_changes"] == 1
    assert len(connection.kernels) == 2 * 1725
    assert np.ptp(connection.kernels["start_ns"].astype(np.int64)) < 60e9


def test_step_marks_are_told_from_other_sets(injector: Build, listener: Listener) -> None:
    """A set of 4 bytes to the value that the producer gives carries its step; any other is the job's."""
    mark = wire.step_mark(70_001)
    values = (
        (wire.STEP_MARK_VALUE | mark, 4, mark),
        (wire.STEP_MARK_VALUE | mark, 8, 0),
        (wire.STEP_MARK_VALUE | 5, 4, 0),
        (0, 4, 0),
    )
    _, connection = heard(
        injector, listener, "kernels:1", *(f"set:{value}:{size}" for value, size, _ in values), "settle"
    )
    sets = connection.kernels[connection.kernels["operation"] == wire.Operation.MEMSET]
    assert sets["mark"].tolist()[-len(values) :] == [known for _, _, known in values]
    assert [wire.mark_of_set(value, size) for value, size, _ in values] == [known for _, _, known in values]
