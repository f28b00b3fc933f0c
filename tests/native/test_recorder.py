"""Raw buffers recorded on one machine are replayed on another, without a GPU; one recording is of a GPU."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest

from argus_core.wire import Operation
from argus_traces.reader import read as read_trace
from native import recording
from native.app import heard, run
from native.builds import Build
from native.listener import Connection, Listener, listening
from recorded.files import recorded

FIELDS = ("duration_ns", "issue_ns", "stream", "kilobytes", "operation", "device")


def contents(connection: Connection) -> collections.Counter[tuple[object, ...]]:
    """Every record but for its start time."""
    return collections.Counter(
        (connection.names[int(row["name_id"])], *(int(row[field]) for field in FIELDS))
        for row in connection.kernels
    )


@pytest.mark.parametrize("version", [18, 130500])
def test_a_recording_replays_to_the_same_records(injector: Build, tmp_path: Path, version: int) -> None:
    """Names, durations, streams, launches: also by a CUPTI whose own records have other sizes."""
    path = tmp_path / "run"
    recorded, replayed = [tmp_path / name for name in ("a.sock", "b.sock")]
    with listening(recorded) as listener:
        actions = ("kernels:3200", "graph:5:10", "settle")
        variables = {"FAKE_CUPTI_VERSION": version, "ARGUS_ISSUE_LATENCY": 1, "ARGUS_RECORD": path}
        run(injector, recorded, *actions, **variables)
        (original,) = listener.wait_ended()
    with listening(replayed) as listener:
        run(injector, replayed, f"replay:{path}.rank0", ARGUS_ISSUE_LATENCY=1)
        (again,) = listener.wait_ended()
    assert len(original.kernels) == 3200 + 250 + 50
    assert contents(again) == contents(original)


def test_what_a_real_cupti_wrote_is_read_whole(
    injector: Build, socket: Path, tmp_path: Path, listener: Listener
) -> None:
    """8,298 records of CUPTI 13.0 on an H100 are sent; what was a trace then is in them to the nanosecond."""
    path = tmp_path / "kernels.rank0"
    path.write_bytes(recorded(path.name))
    done = run(injector, socket, f"replay:{path}", ARGUS_ISSUE_LATENCY=1)
    (replayed,) = listener.wait_ended()
    raw = recording.read(path)
    assert (raw.cupti_version, len(raw.records)) == (130001, 8298)
    assert (done["records"], done["kept"], done.dropped) == (8298, 8298, 0)
    rows = replayed.kernels
    kinds = {Operation.KERNEL: 8162, Operation.MEMCPY: 56, Operation.MEMSET: 80}
    assert collections.Counter(rows["operation"].tolist()) == kinds
    assert rows["duration_ns"][rows["operation"] == Operation.KERNEL].tolist() == [
        ns for _, ns in raw.kernels()
    ]
    assert set(rows["stream"].tolist()) == {7}
    assert not any(name.startswith("_Z") for name in replayed.names.values()), "names are to be readable"

    trace = read_trace([recorded("kernels.perfetto-trace")], "the same run")
    shown = trace.of("kernel", "memcpy", "memset")
    assert len(shown) == 4140
    last = np.sort(rows, order="start_ns", kind="stable")[-4140:]
    named = [replayed.names[number] for number in last["name_id"].tolist()]
    assert [*map(trace.text, shown["name"].tolist())] == named
    assert sum("gemm" in name for name in named) == 600
    assert (shown["end_ns"] - shown["start_ns"]).tolist() == last["duration_ns"].tolist()
    assert np.array_equal(np.diff(last["start_ns"]), np.diff(shown["start_ns"]))


def test_a_recording_holds_what_cupti_wrote(plain: Build, socket: Path, tmp_path: Path) -> None:
    """Version, clocks, records of the right size, names by pointer."""
    run(plain, socket, "kernels:160", "settle", FAKE_CUPTI_VERSION=130001, ARGUS_RECORD=tmp_path / "run")
    read = recording.read(tmp_path / "run.rank0")
    assert read.cupti_version == 130001
    assert abs(read.unix_ns - read.ticks) < 1e9
    sizes = collections.Counter((int.from_bytes(r[:4], "little"), len(r)) for r in read.records)
    assert sizes == {(10, 216): 160, (1, 96): 10, (2, 88): 3}
    assert read.kernels()[:2] == [
        ("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi", 10_000),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20_000),
    ]


def test_a_recording_ends_at_its_limit(
    plain: Build, socket: Path, tmp_path: Path, listener: Listener
) -> None:
    """Whole blocks only, said once; the observation goes on."""
    done = run(
        plain, socket, "kernels:20000@50000", "settle", "kernels:160", "settle",
        ARGUS_RECORD=tmp_path / "run", ARGUS_RECORD_MEBIBYTES=1, ARGUS_CUPTI_BUFFER_KIBIBYTES=64,
    )  # fmt: skip
    (connection,) = listener.wait_ended()
    assert len(connection.kernels) == done["kept"]
    assert done.said.count("ends at its limit of 1 MiB") == 1
    assert 0.8 * 2**20 < (tmp_path / "run.rank0").stat().st_size <= 2**20
    assert 3_000 < len(recording.read(tmp_path / "run.rank0").records) < 5_000


def test_a_recording_that_cannot_be_opened_is_said(plain: Build, listener: Listener) -> None:
    """The observation goes on."""
    done, connection = heard(plain, listener, "kernels:160", "settle", ARGUS_RECORD="/nowhere/run")
    assert "cannot record to /nowhere/run.rank0: No such file or directory" in done.said
    assert len(connection.kernels) == 173


def test_a_full_disk_ends_a_recording(plain: Build, listener: Listener, tmp_path: Path) -> None:
    """/dev/full takes nothing."""
    (tmp_path / "run.rank0").symlink_to("/dev/full")
    done, connection = heard(plain, listener, "kernels:160", "settle", ARGUS_RECORD=tmp_path / "run")
    assert len(connection.kernels) == done["kept"]
