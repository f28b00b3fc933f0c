"""Kineto traces: what each release's files hold, and why a file is refused."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from argus_core import wire
from argus_exporter.errors import ArgusExporterError
from argus_exporter.replay.rank_names import rank_from_name
from argus_exporter.replay.reader import parse_bytes, read_files
from argus_exporter.replay.recording import RankRecording, RecordingError
from exporter.replay.synthetic import annotation, dumps, kernel, launch, trace, training_trace, write


def read(tmp_path: Path, content: object, name: str = "rank3.json") -> RankRecording:
    (recording,) = read_files([write(tmp_path / name, content)])
    return recording


def test_training_trace_gives_steps_phases_and_kernels(tmp_path: Path):
    """Steps from ProfilerStep, phases from annotations, kernels with stream, bytes and issue latency."""
    recording = read(tmp_path, training_trace(rank=2), "any.json.gz")
    assert (recording.rank, recording.identity.world_size) == (2, 4)
    assert recording.iterations["step"].tolist() == [5, 6, 7, 8]
    assert recording.iterations["duration_ns"].tolist() == [990_000] * 4
    assert len(recording.kernels) == 4 * 10
    assert np.bincount(recording.kernel_steps)[5:].tolist() == [10] * 4
    first = recording.kernels[0]
    assert (first["start_ns"], first["duration_ns"], first["issue_ns"]) == (1_000_030_000, 10_000, 10_000)
    copies = recording.kernels[recording.kernels["operation"] == wire.Operation.MEMCPY]
    assert copies["kilobytes"].tolist() == [2] * 4
    assert recording.texts[recording.spans["phase_id"][0]] == "forward"
    assert recording.spans["step"].tolist() == [5, 6, 7, 8]
    assert recording.collective.sum() == 4
    assert recording.compute.sum() == 4 * 8


@pytest.mark.parametrize("category", ["Kernel", "kernel"])
def test_both_spellings_of_the_category_count(tmp_path: Path, category: str):
    """2021 wrote Kernel, later releases kernel."""
    assert len(read(tmp_path, trace(kernel(cat=category))).kernels) == 1


def test_times_are_exact(tmp_path: Path):
    """Whole microseconds never pass through a float; fractions keep their nanoseconds beside the base."""
    whole = read(tmp_path, trace(kernel(ts=1_694_128_201_428_007, dur=0)))
    assert whole.kernels["start_ns"][0] == 1_694_128_201_428_007_000
    assert whole.kernels["duration_ns"][0] == 0
    content = trace(kernel(ts=4458676983543.183, dur=41.407), baseTimeNanoseconds=1_711_964_646_000_000_000)
    relative = read(tmp_path, content)
    assert relative.kernels["start_ns"][0] == 1_711_964_646_000_000_000 + 4_458_676_983_543_183
    assert relative.kernels["duration_ns"][0] == 41_407
    assert (whole.tick_seconds, relative.tick_seconds) == (1e-6, 0.0)


def test_stream_is_taken_from_the_thread_where_arguments_lack_it(tmp_path: Path):
    """ROCm and 2021 traces: arguments may be absent, the thread is `stream 7` or a number."""
    bare = {"ph": "X", "cat": "Kernel", "name": "k", "ts": 1, "dur": 2}
    recording = read(tmp_path, trace(bare | {"tid": "stream 7"}, bare | {"tid": 9, "ts": 2}))
    assert recording.kernels["stream"].tolist() == [7, 9]
    assert recording.kernels["issue_ns"].tolist() == [-1, -1]


def test_kernel_belongs_to_the_step_that_launched_it(tmp_path: Path):
    """The GPU runs behind the host: a kernel that starts in the next step was launched in this one."""
    content = trace(
        annotation("ProfilerStep#1", 0, 100),
        annotation("ProfilerStep#2", 100, 100),
        launch(90, 1),
        kernel(ts=150, correlation=1),
        launch(120, 2),
        kernel(ts=190, correlation=2),
    )
    recording = read(tmp_path, content)
    assert recording.kernel_steps.tolist() == [1, 2]
    assert recording.kernels["issue_ns"].tolist() == [60_000, 70_000]


def test_step_without_gpu_work_is_left_out_with_a_note(tmp_path: Path):
    """The profiler opens a last step that only holds its own end (49 us in the ROCm trace)."""
    content = trace(
        annotation("ProfilerStep#1", 0, 9000), kernel(ts=10), annotation("ProfilerStep#2", 9000, 49)
    )
    recording = read(tmp_path, content)
    assert recording.iterations["step"].tolist() == [1]
    assert recording.notes == ("steps without GPU events left out: 2",)


def test_step_marks_on_the_gpu_are_no_steps(tmp_path: Path):
    """gpu_user_annotation repeats ProfilerStep with the GPU's span."""
    content = trace(
        annotation("ProfilerStep#1", 0, 900),
        annotation("ProfilerStep#1", 5, 9000, "gpu_user_annotation"),
        kernel(),
    )
    assert read(tmp_path, content).iterations["duration_ns"].tolist() == [900_000]


def test_trace_without_steps_has_kernels_only(tmp_path: Path):
    """No ProfilerStep: no iterations, and kernels of unknown step."""
    recording = read(tmp_path, trace(kernel()))
    assert len(recording.iterations) == 0
    assert recording.kernel_steps.tolist() == [-1]


def test_unusable_gpu_events_are_counted_in_a_note(tmp_path: Path):
    """A negative or absent duration is left out, not guessed."""
    content = trace(
        kernel(), kernel(dur=-1), kernel(ts=-5), kernel() | {"dur": "3"}, kernel() | {"dur": None}
    )
    recording = read(tmp_path, content)
    assert len(recording.kernels) == 1
    assert recording.notes == (
        "3 GPU events without a usable duration left out",
        "1 GPU events without a usable start left out",
    )


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("worker3_step_12.1694128201557.pt.trace.json.gz", 3),
        ("worker0.1623143089861.pt.trace.json", 0),
        ("rank-7.Apr_03_18_51_38.1102.pt.trace.json.gz", 7),
        ("rank12.json", 12),
        ("job_rank_12.json", 12),
        ("negative_queue_rank0.json.gz", 0),
        ("trace_15.json", 15),
        ("trace_15.pt.trace.json.gz", 15),
        ("trace_1623143089861.json", None),
        ("mi250_minitoy_train_ROCm6_2_kineto.json.gz", None),
        ("nccl_data.json.gz", None),
        ("coworker3_things.json", None),
    ],
)
def test_rank_from_file_name(name: str, rank: int | None):
    """The habits of PyTorch's trace handlers; a timestamp is no rank."""
    assert rank_from_name(name) == rank


@pytest.mark.parametrize("info", [None, {}, {"backend": "nccl"}, {"rank": "3"}, {"rank": True}, {"rank": -1}])
def test_rank_comes_from_the_name_where_the_trace_has_none(tmp_path: Path, info: Any):
    """distributedInfo absent, empty, or without a usable rank."""
    header = {} if info is None else {"distributedInfo": info}
    assert read(tmp_path, trace(kernel(), **header), "worker9_x.json").rank == 9


def test_rank_of_the_trace_goes_before_its_name(tmp_path: Path):
    """A renamed file keeps its rank."""
    assert read(tmp_path, training_trace(rank=1), "rank3.json").rank == 1


def test_assume_ranks_numbers_files_in_order(tmp_path: Path):
    """Repeats of a single-GPU job become a fleet: other times and steps are moved to those of the first."""
    late = trace(annotation("ProfilerStep#20", 9_000_000, 500), kernel(ts=9_000_010))
    early = trace(annotation("ProfilerStep#5", 1000, 500), kernel(ts=1010))
    files = [write(tmp_path / "late.json", late), write(tmp_path / "early.json", early)]
    first, second = read_files(files, assume_ranks=True)
    assert (first.rank, first.identity.world_size, second.rank) == (0, 2, 1)
    assert second.begin_ns == first.begin_ns == 9_000_000_000
    assert second.iterations["step"].tolist() == first.iterations["step"].tolist() == [20]
    assert second.notes == ("recorded at another time than the first file: moved to start with it",)


def test_names_are_as_the_wire_carries_them(tmp_path: Path):
    """Cut to 256 bytes with a mark of the whole, and printable: ids agree with those of the exporter."""
    recording = read(tmp_path, trace(kernel("k" * 300), kernel("a\nb\ud800"), kernel("")))
    assert recording.texts == ("", wire.encode_name("k" * 300).decode(), "ab?", "unnamed")


REFUSED = {
    "empty file": (b"", "is empty"),
    "blank file": (b" \n\n", "is empty"),
    "no JSON": (b"hello", "not JSON"),
    "no Unicode": (b"\xff\xfe\xfa{", "not JSON"),
    "a number": (b"3", "has no list traceEvents"),
    "traceEvents of another type": ({"traceEvents": {}}, "has no list traceEvents"),
    "no events": (trace(), "traceEvents is empty"),
    "CPU only": (trace(annotation("x", 1, 2)), "no GPU events among 1.*CPU-only"),
    "only broken GPU events": (trace(kernel(dur=-1)), "all 1 GPU events are without a usable duration"),
    "truncated JSON": (b'{"traceEvents": [{"ph": "X"', "truncated"),
    "truncated text": (b'{"traceEvents": [{"ph": "X', "truncated"),
    "too deep": (b"[" * 100_000, "nested too deeply"),
    "digits": (b'{"traceEvents": [], "x": ' + b"9" * 5000 + b"}", "not JSON"),
    "base time": (trace(kernel(), baseTimeNanoseconds="x"), "baseTimeNanoseconds is 'x'; allowed"),
    "distributedInfo": (trace(kernel(), distributedInfo=[1]), "distributedInfo is a list; allowed"),
    "truncated gzip": (gzip.compress(b"{}" * 100)[:-9], "truncated or damaged gzip"),
    "damaged gzip": (b"\x1f\x8bnonsense", "truncated or damaged gzip"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unusable_file_is_refused_in_one_line(tmp_path: Path, case: str):
    """The message names the file, what is so and what is allowed."""
    content, message = REFUSED[case]
    with pytest.raises(RecordingError, match=message) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'rank3.json'}: ")
    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_opened_is_refused(tmp_path: Path):
    """Absent, and a folder."""
    with pytest.raises(RecordingError, match="cannot be read: No such file"):
        read_files([tmp_path / "absent.json"])
    with pytest.raises(RecordingError, match=r"is a folder; name its files, for example .*/\*\.json\.gz"):
        read_files([tmp_path])


def test_unknown_rank_is_refused_with_the_hint(tmp_path: Path):
    """A wrong rank would be worse than none."""
    with pytest.raises(RecordingError, match=r"the rank is unknown; allowed: .* --assume-ranks"):
        read(tmp_path, trace(kernel()), "trace.json")


def test_one_rank_twice_is_refused(tmp_path: Path):
    """Both files are named."""
    files = [write(tmp_path / f"{name}.json", training_trace(rank=1)) for name in "ab"]
    with pytest.raises(RecordingError, match=r"b\.json: is rank 1, and so is .*a\.json; .* --assume-ranks"):
        read_files(files)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["ph", "cat", "name", "tid", "ts", "dur", "args", "stream", "correlation", "bytes", "device"]
)


@given(changes=st.lists(st.tuples(st.integers(0, 60), FIELDS, JSON), max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_field_may_hold_anything(changes: list[tuple[int, str, Any]]):
    """A mutated trace gives data of the right shape or the package's error, nothing else."""
    content = training_trace(rank=0)
    events = content["traceEvents"]
    for index, field, value in changes:
        event = events[index % len(events)]
        inner = event.get("args")
        (inner if isinstance(inner, dict) and field in inner else event)[field] = value
    try:
        (recording,) = parse_bytes(dumps(content), Path("rank0.json"))
    except ArgusExporterError as error:
        assert re.match(r"rank0\.json: ", str(error))
    else:
        assert len(recording.kernels) == len(recording.kernel_steps) > 0
        assert recording.end_ns >= recording.begin_ns


@pytest.mark.traces
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncated_or_overwritten_real_trace_never_raises_anything_else(traces: Path, data: st.DataObject):
    """Real bytes, cut anywhere or with a few bytes overwritten, compressed or not."""
    path = next((traces / "dlrm_kineto").glob("worker0*"))
    raw = gzip.decompress(path.read_bytes())[:400_000]
    cut = data.draw(st.integers(0, len(raw)))
    content = bytearray(raw[:cut] if data.draw(st.booleans()) else raw[:cut] + b"]}")
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 255)), max_size=4)
    ):
        if place < len(content):
            content[place] = byte
    try:
        parse_bytes(bytes(content), path)
    except ArgusExporterError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
@pytest.mark.traces
def test_every_real_trace_gives_data_or_a_clear_message(traces: Path):
    """Facts of the traces' README: events, ranks, NCCL time, and the four that cannot be replayed."""
    outcomes: dict[str, RankRecording | str] = {}
    for path in sorted(traces.glob("*/*.json.gz")):
        try:
            (outcomes[path.name],) = read_files([path])
        except ArgusExporterError as error:
            outcomes[path.name] = str(error)
    refused = {name: str(text) for name, text in outcomes.items() if isinstance(text, str)}
    assert "the rank is unknown" in refused.pop("mi250_minitoy_train_ROCm6_2_kineto.json.gz")
    assert all("CPU-only trace" in text for text in refused.values())
    assert len(refused) == 3
    recordings = {name: kept for name, kept in outcomes.items() if isinstance(kept, RankRecording)}
    dlrm = [
        recording for name, recording in recordings.items() if name.startswith("worker") and "_step_" in name
    ]
    nccl = {r.rank: float(r.kernels["duration_ns"][r.collective].sum()) / 1e6 for r in dlrm}
    assert [round(nccl[rank], 1) for rank in range(8)] == [5.8, 11.3, 3.5, 9.8, 6.6, 6.3, 3.6, 1.7]
    resnet = [r for r in recordings.values() if r.source.parent.name == "resnet50_kineto"]
    events = sorted(int((r.kernels["operation"] == wire.Operation.KERNEL).sum()) for r in resnet)
    assert events == [8772, 8772, 8868, 8868]
    assert all(len(r.iterations) == 6 for r in resnet)


@pytest.mark.traces
def test_rocm_trace_gives_data_with_a_rank(traces: Path):
    """No block, grid, bytes or context; base time; a step of the profiler's own."""
    (path,) = (traces / "misc").glob("mi250*")
    (recording,) = read_files([path], assume_ranks=True)
    assert len(recording.kernels) == 16
    assert recording.iterations["step"].tolist() == [1]
    assert np.all(recording.kernels["start_ns"] > 1_700_000_000_000_000_000)
