"""Raw buffers recorded on one machine are replayed on another, without a GPU."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from native import recording
from native.app import run
from native.builds import Build
from native.listener import Connection, Listener, listening

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


def test_a_recording_that_cannot_be_opened_is_said(plain: Build, socket: Path, listener: Listener) -> None:
    """The observation goes on."""
    done = run(plain, socket, "kernels:160", "settle", ARGUS_RECORD="/nowhere/run")
    (connection,) = listener.wait_ended()
    assert "cannot record to /nowhere/run.rank0: No such file or directory" in done.said
    assert len(connection.kernels) == 173


def test_a_full_disk_ends_a_recording(plain: Build, socket: Path, listener: Listener, tmp_path: Path) -> None:
    """/dev/full takes nothing."""
    (tmp_path / "run.rank0").symlink_to("/dev/full")
    done = run(plain, socket, "kernels:160", "settle", ARGUS_RECORD=tmp_path / "run")
    (connection,) = listener.wait_ended()
    assert len(connection.kernels) == done["kept"]
