"""Resampling: the same kernels every step, durations drawn from the trace, compute kernels stretched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from argus_core.modes import find_modes
from argus_exporter.replay.reader import parse_bytes, read_files
from argus_exporter.replay.recording import RankRecording, RecordingError
from argus_exporter.replay.resample import endless, make_pool, resample
from argus_exporter.replay.summary import summarise_rank
from exporter.replay.synthetic import annotation, dumps, kernel, log, trace, training_trace


@pytest.fixture
def recordings() -> list[RankRecording]:
    return parse_bytes(dumps(training_trace(rank=0)), Path("rank0.json"))


def seconds(recording: RankRecording, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    of_name = recording.kernels["name_id"] == recording.texts.index(name)
    return recording.kernels["duration_ns"][of_name] / 1e9


def test_every_step_has_the_kernels_of_a_recorded_step(recordings: list[RankRecording]):
    """Counts per (kernel, stream) and step equal the trace's, on every rank."""
    fleet = resample(recordings, ranks=3, steps=5, seed=1)
    assert [r.rank for r in fleet] == [0, 1, 2]
    assert all(r.identity.world_size == 3 for r in fleet)
    for recording in fleet:
        assert recording.iterations["step"].tolist() == [1, 2, 3, 4, 5]
        per_step = Counter(
            (int(step), recording.texts[k["name_id"]], int(k["stream"]))
            for step, k in zip(recording.kernel_steps, recording.kernels, strict=True)
        )
        for step in range(1, 6):
            assert per_step[step, "gemm", 7] == 8
            assert per_step[step, "ncclDevKernel_AllReduce_Sum_f32", 20] == 1
            assert per_step[step, "Memcpy HtoD", 7] == 1


def test_stretch_reaches_compute_kernels_of_the_named_rank_only(recordings: list[RankRecording]):
    """Collectives and copies keep their durations; so do the other ranks."""
    healthy = resample(recordings, ranks=2, steps=50, seed=1)
    stretched = resample(recordings, ranks=2, steps=50, seed=1, stretch={1: 1.2})
    ratio = seconds(stretched[1], "gemm").sum() / seconds(healthy[1], "gemm").sum()
    assert ratio == pytest.approx(1.2, rel=1e-4)
    for name in ("ncclDevKernel_AllReduce_Sum_f32", "Memcpy HtoD"):
        assert np.array_equal(seconds(stretched[1], name), seconds(healthy[1], name))
    assert np.array_equal(stretched[0].kernels["duration_ns"], healthy[0].kernels["duration_ns"])


def test_seed_decides(recordings: list[RankRecording]):
    """The same seed gives the same fleet; another seed, draw or rank gives other durations."""
    one, same = (resample(recordings, ranks=2, steps=3, seed=1) for _ in range(2))
    assert np.array_equal(one[1].kernels, same[1].kernels)
    others = (
        one[0],
        resample(recordings, ranks=2, steps=3, seed=2)[1],
        resample(recordings, ranks=2, steps=3, seed=1, draw=1)[1],
    )
    for other in others:
        assert not np.array_equal(
            np.sort(one[1].kernels["duration_ns"]), np.sort(other.kernels["duration_ns"])
        )


def test_kernels_of_a_stream_do_not_overlap_and_lie_inside_their_step(recordings: list[RankRecording]):
    """Each stream keeps its gaps, and a step lasts until its last kernel on the slowest rank."""
    for recording in resample(recordings, ranks=2, steps=4, seed=1, stretch={1: 40.0}):
        for stream in np.unique(recording.kernels["stream"]):
            own = recording.kernels[recording.kernels["stream"] == stream]
            starts = own["start_ns"].astype(np.int64)
            ends = starts + own["duration_ns"].astype(np.int64)
            assert np.all(starts[1:] >= ends[:-1])
        for step, begin, duration in recording.iterations.tolist():
            own = recording.kernels[recording.kernel_steps == step]
            assert own["start_ns"].min() > begin
            assert (own["start_ns"] + own["duration_ns"]).max() < begin + duration


def test_ranks_step_together(recordings: list[RankRecording]):
    """Synchronous training: the slowest rank sets the pace of all."""
    fleet = resample(recordings, ranks=2, steps=4, seed=1, stretch={1: 40.0})
    assert np.array_equal(fleet[0].iterations, fleet[1].iterations)
    assert fleet[0].iterations["duration_ns"].min() > 3_000_000


def test_smoothing_keeps_spread_and_invents_no_modes():
    """A pool of 40 durations drawn 5,000 times: one mode like the pool's, where the raw draw gives many."""
    random = np.random.default_rng(3)
    recorded = np.round(400_000 * np.exp(0.02 * random.standard_normal(40)), -3)
    pool = make_pool(recorded, tick_ns=1000)
    smooth = pool.draw((5000,), np.random.default_rng(0), smooth=True)
    raw = pool.draw((5000,), np.random.default_rng(0), smooth=False)
    assert len(find_modes(smooth / 1e9).modes) == 1
    assert len(find_modes(raw / 1e9).modes) > 5
    assert np.median(smooth) == pytest.approx(np.median(recorded), rel=0.005)
    assert np.std(np.log(smooth)) == pytest.approx(np.std(np.log(recorded)), rel=0.15)


def test_single_zero_and_equal_durations_can_be_drawn():
    """Pools without spread: draws stay at the value; what the clock counted as 0 becomes a part of a tick."""
    assert make_pool(np.array([5000.0]), 1000).draw(
        (3,), np.random.default_rng(0), smooth=True
    ) == pytest.approx(5000)
    equal = make_pool(np.full(9, 5000.0), 1000).draw((3,), np.random.default_rng(0), smooth=True)
    assert equal == pytest.approx(5000)
    assert make_pool(np.zeros(9), 1000).draw((3,), np.random.default_rng(0), smooth=True) == pytest.approx(
        250
    )


def test_endless_fleets_differ_and_have_the_same_shape(recordings: list[RankRecording]):
    """A looped resample never repeats a window."""
    fleets = endless(recordings, ranks=1, steps=2, seed=1)
    (first,), (second,) = next(fleets), next(fleets)
    assert len(first.kernels) == len(second.kernels)
    assert not np.array_equal(first.kernels["duration_ns"], second.kernels["duration_ns"])


def test_trace_without_steps_is_one_step():
    """Everything recorded is taken as a step."""
    (recording,) = parse_bytes(dumps(trace(kernel(ts=10), kernel(ts=50))), Path("rank0.json"))
    (made,) = resample([recording], ranks=1, steps=3, seed=1)
    assert len(made.kernels) == 6
    assert len(made.iterations) == 3


def test_pools_come_from_all_recordings():
    """Repeats of one job widen the pool; the sequence is that of the first."""

    def one(duration: int, rank: int) -> RankRecording:
        content = trace(annotation("ProfilerStep#1", 0, 900), kernel(dur=duration))
        return parse_bytes(dumps(content), Path(f"rank{rank}.json"))[0]

    (made,) = resample([one(10, 0), one(1000, 1)], ranks=1, steps=100, seed=1)
    long = int((made.kernels["duration_ns"] > 100_000).sum())
    assert 30 < long < 70


def test_recording_without_kernels_is_refused():
    """An event log may hold phases only."""
    span = {"rank": 0, "step": 1, "phase": "forward", "kind": "compute", "start": 1, "duration": 1}
    with pytest.raises(RecordingError, match=r"e\.jsonl: has no kernels to resample"):
        resample(parse_bytes(log(span), Path("e.jsonl")), ranks=2, steps=2, seed=1)


@pytest.mark.traces
def test_resampled_resnet_looks_like_resnet(traces: Path):
    """Kernel time a step within 3 %, step time within 5 %, about as many modes as the trace."""
    path = sorted((traces / "resnet50_kineto").glob("*.gz"))[0]
    real = read_files([path])
    (made,) = resample(real, ranks=1, steps=64, seed=1)
    trace_summary, made_summary = summarise_rank(real[0], 20), summarise_rank(made, 20)
    assert len(made.kernels) == 64 * 1516
    per_step = made_summary.kernel_seconds / 64
    assert per_step == pytest.approx(trace_summary.kernel_seconds / trace_summary.steps, rel=0.03)
    assert made_summary.iteration_mean_seconds == pytest.approx(
        trace_summary.iteration_mean_seconds, rel=0.05
    )
    modes = [sum(len(p.modes.modes) for p in s.pairs if p.modes) for s in (trace_summary, made_summary)]
    assert modes[1] < 1.5 * modes[0]
