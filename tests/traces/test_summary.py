"""Where one rank's time went, on a timeline small enough to count by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.kernels.pairs import stream_key
from argus_exporter.replay.recording import ITERATION_DTYPE
from argus_exporter.traces.encode import encode
from argus_exporter.traces.window import Pause, Samples
from argus_traces.reader import read
from argus_traces.summary import Summary, summarise
from exporter.traces.trace_windows import BEGIN, window

MS = 1_000_000
GEMM, REDUCE, COPY = "gemm_kernel", "ncclDevKernel_AllReduce_Sum(args)", "Memcpy HtoD (Pinned -> Device)"

# (name, stream, start ms, duration ms, issue latency ms). Two steps of 100 ms:
#   gemm   10-50, all-reduce 40-60, copy 55-70 | gemm 110-150, all-reduce 160-180
KERNELS = [
    (GEMM, 7, 10, 40, 5), (REDUCE, 8, 40, 20, 5), (COPY, 9, 55, 15, 1),
    (GEMM, 7, 110, 40, 5), (REDUCE, 8, 160, 20, 8),
]  # fmt: skip


@pytest.fixture(scope="module")
def summary() -> Summary:
    """The timeline above, through a file."""
    records = np.zeros(len(KERNELS), KERNEL_DTYPE)
    texts = {1: GEMM, 2: REDUCE, 3: COPY}
    ids = {name: number for number, name in texts.items()}
    for record, (name, stream, start, duration, issue) in zip(records, KERNELS, strict=True):
        record["start_ns"], record["duration_ns"] = BEGIN + start * MS, duration * MS
        record["issue_ns"], record["name_id"], record["stream"] = issue * MS, ids[name], stream
        record["operation"] = wire.Operation.MEMCPY if name == COPY else wire.Operation.KERNEL
    given = dataclasses.replace(
        window(0),
        kernels=records,
        texts=texts,
        streams={stream_key(0, 7): "compute0", stream_key(0, 8): "nccl:dp", stream_key(0, 9): "copy0"},
        spans=window(0).spans[:0],
        groups=(),
        begin_ns=BEGIN,
        end_ns=BEGIN + 200 * MS,
        iterations=np.array([(1, BEGIN, 100 * MS), (2, BEGIN + 100 * MS, 100 * MS)], ITERATION_DTYPE),
        pauses=(Pause("gc", "gc generation 2", BEGIN + 65 * MS, 15 * MS),),
        samples=(Samples(BEGIN + 70 * MS, BEGIN + 110 * MS, {("MainThread", ("main", "collate")): 4}),),
    )
    return summarise(read([encode(given)], "file"))


def test_busy_time_counts_overlapping_streams_once(summary: Summary) -> None:
    """10-70, 110-150 and 160-180 of 200 ms."""
    assert summary.busy_ratio == pytest.approx(0.6)
    assert {one.stream: one.busy for one in summary.streams} == pytest.approx(
        {"compute0": 0.08, "nccl:dp": 0.04, "copy0": 0.015}
    )


def test_overlap_is_the_hidden_share_of_communication(summary: Summary) -> None:
    """10 of 40 ms ran beside computation."""
    assert summary.communication == pytest.approx(0.04)
    assert summary.overlap_ratio == pytest.approx(0.25)


def test_beta_counts_time_in_which_nothing_more_critical_runs(summary: Summary) -> None:
    """compute > memory > communication > host (EROICA): each loses what runs above it."""
    betas = {one.category: one.beta for one in summary.betas if one.category != "python"}
    assert betas["compute"] == pytest.approx(80 / 200)
    assert betas["memory"] == pytest.approx(15 / 200)  # 55-70: above communication
    assert betas["communication"] == pytest.approx((5 + 20) / 200)  # 50-55 and 160-180
    assert betas["host"] == pytest.approx(10 / 200)  # gc 65-80, but for the copy


def test_python_functions_count_while_the_gpu_is_idle(summary: Summary) -> None:
    """All four samples of the main thread lie in the idle gap."""
    (python,) = [one for one in summary.betas if one.category == "python"]
    assert (python.function, python.beta) == ("collate", pytest.approx(1.0))


def test_voids_tell_idle_between_steps_from_idle_within(summary: Summary) -> None:
    """Between the steps 70-110 of 100 ms; within the first step no gap."""
    assert summary.voids is not None
    assert summary.voids.inter_step == pytest.approx(0.4)
    assert summary.voids.minority == pytest.approx(0.0)
    assert summary.voids.steps == 1


def test_idle_with_a_launch_waiting_is_told_from_idle_with_none() -> None:
    """FLARE's minority void needs a launched kernel; without one the host is late."""
    records = np.zeros(4, KERNEL_DTYPE)
    # Step 1: 0-10, then 30-40 launched at 15: 10-15 nothing is launched, 15-30 a kernel waits.
    for record, (start, duration, issue) in zip(
        records, [(0, 10, 0), (30, 10, 15), (100, 10, 0), (120, 10, 0)], strict=True
    ):
        record["start_ns"], record["duration_ns"] = BEGIN + start * MS, duration * MS
        record["issue_ns"], record["name_id"], record["stream"] = issue * MS, 5, 7
    given = dataclasses.replace(
        window(0),
        kernels=records,
        end_ns=BEGIN + 200 * MS,
        iterations=np.array([(1, BEGIN, 100 * MS), (2, BEGIN + 100 * MS, 100 * MS)], ITERATION_DTYPE),
    )
    voids = summarise(read([encode(given)], "file")).voids
    assert voids is not None
    assert voids.inter_step == pytest.approx(60 / 100)
    assert voids.minority == pytest.approx(15 / 40)
    assert voids.host == pytest.approx(5 / 40)
