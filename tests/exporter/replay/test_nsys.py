"""Nsight Systems exports of two generations, as their schema reference documents them, and what is refused.

No report of a real GPU is at hand: `nsys_export` writes the tables.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
from pathlib import Path

import pytest

from argus_core import wire
from argus_exporter.cli import main
from argus_exporter.replay.reader import read_files
from argus_exporter.replay.recording import RankRecording, RecordingError
from exporter.replay.nsys_export import (
    MARK,
    OLD,
    RECENT,
    SESSION_NS,
    Export,
    fill,
    global_pid,
    training_export,
)
from exporter.replay.synthetic import training_trace, write


def read(tmp_path: Path, export: Export, name: str = "rank3.sqlite") -> RankRecording:
    (recording,) = read_files([export.write(tmp_path / name)])
    return recording


def names(recording: RankRecording) -> list[str]:
    return [recording.texts[id_] for id_ in recording.kernels["name_id"].tolist()]


def test_recent_export_gives_steps_phases_and_kernels(tmp_path: Path):
    """Unix times from the session's start, steps and phases from NVTX, issue latency from correlation ids."""
    recording = read(tmp_path, training_export())
    identity = recording.identity
    assert (identity.rank, identity.pid, identity.node, identity.gpu_uuid) == (3, 100, "gpu-01", "uuid-100")
    assert recording.iterations.tolist() == [
        (5 + step, SESSION_NS + (1 + step) * 1_000_000, 990_000) for step in range(4)
    ]
    assert names(recording)[:2] == ["gemm<float>(int)"] * 2
    assert recording.kernels["duration_ns"][:6].tolist() == [10_000, 11_000, 12_000, 13_000, 100_000, 20_000]
    assert recording.kernels["issue_ns"][:6].tolist() == [20_000, 20_000, 20_000, 20_000, -1, -1]
    assert recording.kernel_steps.tolist() == [5] * 6 + [6] * 6 + [7] * 6 + [8] * 6
    assert [recording.texts[i] for i in recording.spans["phase_id"]] == ["forward"] * 4
    assert recording.spans["duration_ns"].tolist() == [400_000] * 4
    assert recording.spans["kind"].tolist() == [wire.Kind.COMPUTE] * 4
    assert recording.collective.sum() == 4
    assert recording.notes == ()


def test_old_export_gives_the_same_work(tmp_path: Path):
    """2019: no processes, no copies recorded, texts inline, no session start: said in a note."""
    old, recent = read(tmp_path, training_export(OLD)), read(tmp_path, training_export(), "rank1.sqlite")
    kernels = recent.kernels[recent.kernels["operation"] == wire.Operation.KERNEL]
    assert old.kernels["duration_ns"].tolist() == kernels["duration_ns"].tolist()
    assert old.kernels["issue_ns"].tolist() == kernels["issue_ns"].tolist()
    assert (kernels["start_ns"] - old.kernels["start_ns"]).tolist() == [SESSION_NS] * len(kernels)
    assert old.iterations["step"].tolist() == [5, 6, 7, 8]
    assert old.spans["duration_ns"].tolist() == [400_000] * 4
    assert old.notes == ("times count from the start of the session: the export does not tell when it was",)


def test_copies_and_sets_carry_their_kind_and_size(tmp_path: Path):
    """The words of Kineto, so that both name them alike; an unknown kind stays unnamed."""
    export = Export()
    export.session()
    export.copy(start=10, duration=5, kind=1, size=2048)
    export.copy(start=20, duration=5, kind=8, size=1)
    export.copy(start=30, duration=5, kind=99)
    export.memset(start=40, duration=5, size=4096)
    recording = read(tmp_path, export)
    assert names(recording) == ["Memcpy HtoD", "Memcpy DtoD", "Memcpy", "Memset"]
    assert recording.kernels["kilobytes"].tolist() == [2, 1, 4, 4]
    assert recording.kernels["operation"].tolist() == [1, 1, 1, 2]


def test_kernel_names_fall_back_to_what_the_export_has(tmp_path: Path):
    """Demangled, short or mangled; as an id, as a text, or as an id that nobody explains."""
    export = Export(RECENT.replace("demangledName INTEGER NOT NULL, ", ""))
    export.kernel("a<b>", start=10, duration=1)
    export.row("CUPTI_ACTIVITY_KIND_KERNEL", start=20, end=21, globalPid=global_pid(100), shortName="inline")
    export.row("CUPTI_ACTIVITY_KIND_KERNEL", start=30, end=31, globalPid=global_pid(100), shortName=999)
    assert names(read(tmp_path, export)) == ["a", "inline", "unnamed"]


def test_missing_optional_tables_leave_only_what_they_would_tell(tmp_path: Path):
    """Kernels alone are data: no NVTX, no runtime, no names, no target information."""
    export = Export("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")
    export.row("CUPTI_ACTIVITY_KIND_KERNEL", start=10, end=15)
    recording = read(tmp_path, export)
    assert recording.kernels["duration_ns"].tolist() == [5]
    assert recording.kernels["issue_ns"].tolist() == [-1]
    assert len(recording.iterations) == len(recording.spans) == 0
    assert names(recording) == ["unnamed"]


def test_step_ranges_without_numbers_are_counted(tmp_path: Path):
    """`train_step` again and again; a micro-batch range inside a step is none."""
    export = Export()
    export.session()
    for begin in (1000, 3000, 5000):
        export.range("train_step", begin, 1500)
        export.range("batch", begin + 100, 200)
        export.range("batch", begin + 400, 200)
        export.kernel(start=begin + 500, duration=10)
    recording = read(tmp_path, export)
    assert recording.iterations["step"].tolist() == [0, 1, 2]
    assert recording.iterations["duration_ns"].tolist() == [1500] * 3


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("forward", "forward"),
        ("DeepSpeedEngine.forward", "forward"),
        ("DistributedDataParallel.forward", "forward"),
        ("Backward", "backward"),
        ("backward-compute", "backward"),
        ("optimizer", "optimizer"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("batch-generator", "data"),
        ("dataloader", "data"),
        ("forwarding table", None),
        ("aten::linear, seq = 3", None),
        ("x" * 200 + "engine.forward", None),
    ],
)
def test_range_names_of_known_frameworks_are_phases(tmp_path: Path, text: str, phase: str | None):
    """What is not known stays out; it is no error."""
    export = Export()
    export.kernel(start=10, duration=5)
    export.range(text, 5, 100)
    recording = read(tmp_path, export)
    assert [recording.texts[id_] for id_ in recording.spans["phase_id"]] == ([phase] if phase else [])


def test_nested_ranges_of_a_phase_count_once(tmp_path: Path):
    """Each wrapped layer has a forward inside that of the model."""
    export = Export()
    export.kernel(start=10, duration=5)
    export.range("forward", 0, 100)
    export.range("FullyShardedDataParallel.forward", 10, 20)
    export.range("FullyShardedDataParallel.forward", 40, 20)
    assert read(tmp_path, export).spans["duration_ns"].tolist() == [100]


def test_marks_and_open_ranges_are_no_spans(tmp_path: Path):
    """A mark has no end: NULL, or 0 where the export knows no NULL."""
    export = Export()
    export.kernel(start=10, duration=5)
    for end in (None, 0, -1, 7):
        export.row("NVTX_EVENTS", start=7, end=end, eventType=MARK, text="forward", globalTid=global_pid(100))
    assert len(read(tmp_path, export).spans) == 0


def test_processes_of_one_export_become_ranks_by_device(tmp_path: Path):
    """`nsys profile torchrun ...`: each its own steps and launches, though correlation ids are the same."""
    export = training_export(pid=300, device=1)
    fill(export, steps=2, pid=200, device=0)
    export.range("step 77", 0, 10_000_000, pid=999)  # the launcher, which used no GPU
    path = export.write(tmp_path / "report1.sqlite")
    first, second = read_files([path], assume_ranks=True)
    assert [(r.rank, r.identity.pid, r.identity.gpu_uuid) for r in (first, second)] == [
        (0, 200, "uuid-200"),
        (1, 300, "uuid-300"),
    ]
    assert first.identity.world_size == second.identity.world_size == 2
    assert (first.iterations["step"].tolist(), second.iterations["step"].tolist()) == ([5, 6], [5, 6, 7, 8])
    assert first.kernels["issue_ns"].max() == second.kernels["issue_ns"].max() == 20_000


def test_several_processes_without_ranks_are_refused(tmp_path: Path):
    """A guess would accuse the wrong rank."""
    export = training_export(pid=300)
    fill(export, steps=1, pid=200, device=1)
    path = export.write(tmp_path / "rank0.sqlite")
    with pytest.raises(RecordingError, match=r"2 processes that used a GPU \(pid 300, 200\).*--assume-ranks"):
        read_files([path])


def test_streams_of_several_devices_in_one_process_stay_apart(tmp_path: Path):
    """One process, two devices, the same stream number on both."""
    export = Export()
    for device in (0, 1):
        export.kernel(start=10 + device, duration=5, device=device, stream=7)
    recording = read(tmp_path, export)
    assert len(set(recording.kernels["stream"].tolist())) == 2
    assert recording.kernels["device"].tolist() == [0, 1]
    assert recording.notes[-1] == "2 devices in one process: their streams are kept apart"


def test_unusable_rows_are_counted_in_a_note(tmp_path: Path):
    """SQLite columns may hold anything."""
    export = Export()
    export.session()
    export.kernel(start=10, duration=5)
    export.kernel(start=10, duration=-5)
    for start, end in (("x", 5), (5, b"y"), (-(2**62), 7), (2**62, 2**63 - 1)):
        export.row("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, globalPid=global_pid(100))
    recording = read(tmp_path, export)
    assert len(recording.kernels) == 1
    assert recording.notes == (
        "2 GPU events without a usable end left out",
        "3 GPU events without a usable start left out",
    )


def test_nsys_and_kineto_of_the_same_work_agree(tmp_path: Path):
    """Durations, issue latency and steps: what replay computes does not depend on the profiler."""
    nsys = read(tmp_path, training_export())
    (kineto,) = read_files([write(tmp_path / "rank4.json", training_trace(rank=4, kernels=4))])
    gemms = [r.kernels[r.compute] for r in (nsys, kineto)]
    assert gemms[0]["duration_ns"].tolist() == gemms[1]["duration_ns"].tolist()
    assert nsys.iterations["duration_ns"].tolist() == kineto.iterations["duration_ns"].tolist()
    assert nsys.spans["duration_ns"].tolist() == kineto.spans["duration_ns"].tolist()


@pytest.mark.parametrize("name", ["report1.nsys-rep", "report1.qdrep", "REPORT.NSYS-REP"])
def test_report_given_by_mistake_is_answered_with_the_export_command(tmp_path: Path, name: str):
    """Only nsys can read its own format."""
    path = tmp_path / name
    path.write_bytes(b"\x00QDREP\x01\x02" * 100)
    export = re.escape(f"nsys export --type sqlite --output {Path(name).stem}.sqlite {name}")
    with pytest.raises(RecordingError, match=export):
        read_files([path])


def damaged(path: Path, **patches: bytes) -> None:
    content = bytearray(path.read_bytes())
    for place, patch in patches.items():
        at = int(place[1:])
        content[at : at + len(patch)] = patch
    path.write_bytes(content)


def test_truncated_file_is_refused_with_its_sizes(tmp_path: Path):
    """SQLite would notice only where it looks."""
    path = training_export().write(tmp_path / "rank0.sqlite")
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[: whole - 4096])
    with pytest.raises(
        RecordingError, match=f"truncated: {whole - 4096} bytes of {whole}; export the report"
    ):
        read_files([path])
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RecordingError, match="truncated: 50 bytes"):
        read_files([path])


def test_damaged_file_is_refused(tmp_path: Path):
    """A page of nonsense where the schema lies."""
    path = training_export().write(tmp_path / "rank0.sqlite")
    damaged(path, _100=b"\xff" * 2000)
    with pytest.raises(RecordingError, match=r"damaged SQLite file \(.*\); export the report again"):
        read_files([path])


def test_database_of_something_else_is_refused(tmp_path: Path):
    """With what it lacks."""
    path = tmp_path / "rank0.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE moz_places (id INTEGER)")
    file.close()
    with pytest.raises(RecordingError, match="has none of the tables of an Nsight Systems export"):
        read_files([path])


def test_view_in_place_of_a_table_is_not_run(tmp_path: Path):
    """A hostile file could compute for ever: this one counts without end."""
    path = tmp_path / "rank0.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        file.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER)")
        file.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS "
            "(SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start + 1 AS end FROM n"
        )
    file.close()
    with pytest.raises(RecordingError, match="no GPU work"):
        read_files([path])


def test_compressed_export_is_answered_with_what_to_do(tmp_path: Path):
    """SQLite needs the file itself."""
    plain = training_export().write(tmp_path / "rank0.sqlite")
    packed = tmp_path / "rank0.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(RecordingError, match="compressed SQLite file; decompress it first: gunzip -k"):
        read_files([packed])


def test_export_without_gpu_work_says_how_to_record_it(tmp_path: Path):
    """Nothing recorded, or CUDA graphs recorded as wholes."""
    empty = Export().write(tmp_path / "rank0.sqlite")
    with pytest.raises(RecordingError, match="no GPU work; record with nsys profile --trace=cuda,nvtx"):
        read_files([empty])
    graphs = Export("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER)")
    with pytest.raises(RecordingError, match="record with nsys profile --cuda-graph-trace=node"):
        read_files([graphs.write(tmp_path / "rank1.sqlite")])
    broken = Export()
    broken.kernel(start=10, duration=-1)
    with pytest.raises(RecordingError, match="all 1 GPU events are without a usable end"):
        read_files([broken.write(tmp_path / "rank2.sqlite")])


def test_rank_unknown_is_refused_with_the_hint(tmp_path: Path):
    """`report1` is the name that nsys gives itself, not a rank."""
    path = training_export().write(tmp_path / "report1.sqlite")
    with pytest.raises(RecordingError, match=r"the rank is unknown; allowed: .*\*_3\.sqlite"):
        read_files([path])


def test_summary_of_an_export_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The same table as for a trace, whatever the file is called."""
    path = training_export().write(tmp_path / "rank_0.db")
    assert main(["replay", "--assume-ranks", str(path)]) == 0
    out = capsys.readouterr().out
    assert "phases (mean): forward 400 us" in out
    assert re.search(r"4 x 100 us \(100 us\)$", out, re.MULTILINE)


def test_file_is_left_as_it_was(tmp_path: Path):
    """Read-only: no byte changes, and no journal is left beside it."""
    path = training_export().write(tmp_path / "rank0.sqlite")
    before = path.read_bytes()
    path.chmod(0o400)
    read_files([path])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["rank0.sqlite"]
