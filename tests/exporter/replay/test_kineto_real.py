"""Every edge case that the traces' README lists, on the real file that has it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from argus_core import wire
from argus_exporter.replay.reader import parse_bytes, read_files
from argus_exporter.replay.recording import RankRecording, RecordingError

pytestmark = pytest.mark.traces

MILLISECOND_NS = 1e6


def one(traces: Path, pattern: str, *, assume_ranks: bool = False) -> RankRecording:
    (path,) = traces.glob(pattern)
    (recording,) = read_files([path], assume_ranks=assume_ranks)
    return recording


def nccl_milliseconds(recording: RankRecording) -> float:
    return float(recording.kernels["duration_ns"][recording.collective].sum()) / MILLISECOND_NS


def test_dlrm_ranks_are_one_job_with_their_nccl_times(traces: Path):
    """2023: fractional absolute `ts`, whole `dur`, `distributedInfo` with rank and world size."""
    recordings = read_files(sorted((traces / "dlrm_kineto").glob("*.gz")))
    assert [r.rank for r in recordings] == list(range(8))
    assert {r.identity.world_size for r in recordings} == {8}
    assert {r.identity.training_job for r in recordings} == {"dlrm_kineto"}
    times = [round(nccl_milliseconds(r), 1) for r in recordings]
    assert times == [5.8, 11.3, 3.5, 9.8, 6.6, 6.3, 3.6, 1.7]
    rest = [float(r.kernels["duration_ns"][r.compute].sum()) / MILLISECOND_NS for r in recordings]
    assert all(1.0 < time < 1.3 for time in rest)
    assert all(261 <= len(r.kernels) <= 337 for r in recordings)


def test_resnet_of_2021_has_capital_categories_zero_durations_and_no_world(traces: Path):
    """`Kernel`, `Operator` and `Runtime`; whole microseconds, some 0; the rank only in the file name."""
    for path in sorted((traces / "resnet50_kineto").glob("*.gz")):
        (recording,) = read_files([path])
        assert (recording.rank, recording.identity.world_size) == (0, -1)
        assert np.count_nonzero(recording.kernels["operation"] == wire.Operation.KERNEL) in (8772, 8868)
        assert recording.tick_seconds == 1e-6
        assert len(recording.iterations) == 6
        assert np.all(recording.kernels["issue_ns"] >= -1)
        assert np.count_nonzero(recording.kernels["issue_ns"] >= 0) > 0.9 * len(recording.kernels)


def test_repeats_of_one_rank_need_assumed_ranks(traces: Path):
    """Two files of rank 0 are refused together, and become ranks 0 and 1 when asked."""
    files = sorted((traces / "resnet50_kineto").glob("*.gz"))[:2]
    with pytest.raises(RecordingError, match=r"is rank 0, and so is .* --assume-ranks"):
        read_files(files)
    assert [r.rank for r in read_files(files, assume_ranks=True)] == [0, 1]


def test_rocm_trace_without_rank_block_and_grid(traces: Path):
    """Times relative to a `baseTimeNanoseconds` that stands behind the events."""
    with pytest.raises(RecordingError, match="the rank is unknown; allowed: "):
        one(traces, "misc/mi250*")
    recording = one(traces, "misc/mi250*", assume_ranks=True)
    assert len(recording.kernels) == 16
    assert recording.iterations["step"].tolist() == [1]
    assert np.all(recording.kernels["start_ns"] > 1_735_632_360_000_000_000)
    assert np.all(recording.kernels["stream"] < 100)


def test_cpu_only_trace_is_answered_with_how_to_record(traces: Path):
    """Rank 34 of 300 on gloo: no GPU event."""
    with pytest.raises(RecordingError, match=r"no GPU events among .* CPU-only.*ProfilerActivity\.CUDA"):
        one(traces, "misc/cpu_only*")


@pytest.mark.parametrize("name", ["distributed_info_unavailable", "rank_unavailable"])
def test_traces_without_rank_hold_no_gpu_events_either(traces: Path, name: str):
    """Absent or rankless `distributedInfo`: with a rank given, what remains is said."""
    with pytest.raises(RecordingError, match="CPU-only trace"):
        one(traces, f"misc/{name}*", assume_ranks=True)


@pytest.mark.parametrize("name", ["distributed_info_unavailable", "rank_unavailable"])
def test_missing_rank_information_is_answered_with_the_hint(traces: Path, name: str):
    """The same headers around a GPU event: the rank is what is missing."""
    (path,) = traces.glob(f"misc/{name}*")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"stream": 7}}
    trace["traceEvents"].append(event)
    with pytest.raises(RecordingError, match=r"the rank is unknown; allowed: .* --assume-ranks"):
        parse_bytes(json.dumps(trace).encode(), path)
    (recording,) = parse_bytes(json.dumps(trace).encode(), path, rank=2)
    assert (recording.rank, len(recording.kernels)) == (2, 1)


def test_nccl_trace_with_base_time_and_fractions(traces: Path):
    """2024: `baseTimeNanoseconds`, fractional `dur`, NCCL metadata in arguments and `distributedInfo`."""
    recording = one(traces, "misc/nccl_data*")
    assert (recording.rank, recording.identity.world_size) == (0, 2)
    assert recording.tick_seconds == 0
    assert recording.kernels["start_ns"].min() > 1_711_964_646_000_000_000
    assert np.count_nonzero(recording.collective) == 15 + 6
    assert nccl_milliseconds(recording) > 0


def test_negative_queue_trace_has_kernels_whose_launch_was_not_recorded(traces: Path):
    """They were launched before the profiler began: their issue latency is unknown, not negative."""
    recording = one(traces, "misc/negative_queue*")
    issue = recording.kernels["issue_ns"]
    assert (recording.rank, recording.identity.world_size) == (0, 16)
    assert len(recording.kernels) == 6080 + 1390 + 277
    assert issue.min() == -1
    assert 0 < np.count_nonzero(issue == -1) < len(issue)
    assert any(name.startswith("ncclKernel_") for name in recording.texts)


def test_torchx_trace_names_its_host(traces: Path):
    """2024: `host_name` becomes the node; repeated `gpu_user_annotation` are no steps of their own."""
    recording = one(traces, "misc/rank-0.*")
    assert recording.identity.node == "twshared39868.02.pnb3.facebook.com"
    assert recording.identity.world_size == 1
    assert len(recording.kernels) == 4350 + 1600 + 145
    assert len(set(recording.iterations["step"].tolist())) == len(recording.iterations) > 0


@pytest.mark.slow
def test_every_real_trace_counts_the_gpu_events_that_json_counts(traces: Path):
    """Nothing is lost by streaming: beside `json.loads` of the whole file."""
    categories = {"kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"}
    checked = 0
    for path in sorted(traces.glob("*/*.json.gz")):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        expected = [e for e in events if e.get("ph") == "X" and e.get("cat", "").lower() in categories]
        if expected:
            (recording,) = read_files([path], assume_ranks=True)
            assert len(recording.kernels) == len(expected)
            total_us = sum(e["dur"] for e in expected)
            assert recording.kernels["duration_ns"].sum() / 1e3 == pytest.approx(total_us, rel=1e-9)
            checked += 1
    assert checked == 16
