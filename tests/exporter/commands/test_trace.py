"""`argus-exporter trace`: profiler traces through the same encoder, and the store from the command line."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from argus_core.store.folder import FolderStore
from argus_core.store.keys import DumpKey, TraceKey
from argus_exporter.cli import main
from argus_exporter.kernels.pairs import stream_keys
from argus_exporter.kernels.streams import label_streams
from argus_exporter.replay.reader import read_files
from recorded.files import recorded
from trace_processor import open_trace


def kineto(path: Path, rank: int) -> Path:
    """Two steps of a rank as PyTorch's profiler writes them (microseconds)."""
    base = 1_695_000_000_000_000
    events = []
    for step in range(2):
        at = base + step * 1000
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
             "ts": at, "dur": 1000}
        )  # fmt: skip
        for index in range(10):
            correlation = step * 10 + index + 1
            events.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                 "ts": at + index * 50, "dur": 5, "args": {"correlation": correlation}}
            )  # fmt: skip
            events.append(
                {"ph": "X", "cat": "kernel", "name": f"void gemm{index % 3}<float>(int)", "pid": 0, "tid": 7,
                 "ts": at + index * 50 + 20, "dur": 30,
                 "args": {"stream": 7, "device": 0, "correlation": correlation}}
            )  # fmt: skip
    trace = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


@pytest.mark.servers
def test_ranks_are_joined_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process a rank, with all kernels and a flow for each launch."""
    files = [kineto(tmp_path / f"rank{rank}.json.gz", rank) for rank in (0, 1)]
    out = tmp_path / "all.perfetto-trace"
    assert main(["trace", "import", *map(str, files), "--out", str(out), "--job", "demo"]) == 0
    assert str(out) in capsys.readouterr().out
    with open_trace(out.read_bytes(), folder=tmp_path) as trace:
        assert trace.rows("select pid, name from process where name is not null order by pid") == [
            (0, "rank 0"),
            (1, "rank 1"),
        ]
        assert trace.rows(
            "select category, count(*) as n, sum(dur) as t from slice group by 1 order by 1"
        ) == [
            ("argus", 2, 0),
            ("iteration", 4, 4_000_000),
            ("kernel", 40, 40 * 30_000),
            ("launch", 40, 0),
        ]
        assert trace.value("select count(*) from flow") == 40


def test_a_folder_gets_one_trace_a_rank_under_its_key(tmp_path: Path, capsys, monkeypatch) -> None:
    """And is a store that list and get read."""
    files = [kineto(tmp_path / f"rank{rank}.json.gz", rank) for rank in (0, 1)]
    folder = tmp_path / "store"
    folder.mkdir()
    assert main(["trace", "import", *map(str, files), "--out", str(folder), "--job", "demo"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("ARGUS_TRACE_STORE", str(folder))
    assert main(["trace", "list", "demo/"]) == 0
    keys = [line.split()[2] for line in capsys.readouterr().out.splitlines()]
    assert [(TraceKey.parse(key).rank, TraceKey.parse(key).last_step) for key in keys] == [(0, 1), (1, 1)]
    assert main(["trace", "get", keys[1], "--out", str(tmp_path / "got")]) == 0
    assert (tmp_path / "got").read_bytes() == (folder / keys[1]).read_bytes()


def test_what_is_not_there_is_one_line_and_status_2(tmp_path: Path, capsys, monkeypatch) -> None:
    """Keys that are missing, or are none."""
    monkeypatch.setenv("ARGUS_TRACE_STORE", str(tmp_path))
    for key, message in (("demo/x", "there is no object demo/x"), ("../x", "is not allowed")):
        assert main(["trace", "get", key, "--out", str(tmp_path / "got")]) == 2
        assert message in capsys.readouterr().err
    assert main(["trace", "import", str(tmp_path / "none"), "--out", str(tmp_path / "x")]) == 2


@pytest.mark.traces
@pytest.mark.servers
def test_real_traces_are_what_they_were(traces: Path, tmp_path: Path) -> None:
    """Every kernel of a real profiler trace, by stream and name, with its duration."""
    files = sorted((traces / "dlrm_kineto").glob("worker[01]_*.gz"))
    out = tmp_path / "all.perfetto-trace"
    assert main(["trace", "import", *map(str, files), "--out", str(out)]) == 0
    expected: Counter = Counter()
    durations: Counter = Counter()
    for recording in read_files(files):
        labels = label_streams(recording.kernels, dict(enumerate(recording.texts)))
        for record, stream in zip(recording.kernels, stream_keys(recording.kernels).tolist(), strict=True):
            key = (
                recording.rank,
                f"stream {labels[stream]}",
                recording.texts[record["name_id"]],
            )
            expected[key] += 1
            durations[key] += int(record["duration_ns"])
    with open_trace(out.read_bytes(), folder=tmp_path) as trace:
        found = trace.rows(
            "select p.pid, t.name as thread, s.name, count(*) as n, sum(s.dur) as dur from slice s "
            "join thread_track tt on s.track_id = tt.id join thread t using (utid) "
            "join process p using (upid) where s.category in ('kernel', 'memcpy', 'memset') group by 1, 2, 3"
        )
    counts: Counter = Counter()
    sums: Counter = Counter()
    for pid, thread, name, count, duration in found:
        counts[pid, thread.split(" #")[0], name] += count
        sums[pid, thread.split(" #")[0], name] += duration
    assert counts == expected
    assert sums == durations
    assert counts.total() > 500


def put_dump(folder: Path, rank: int, made_ns: int, content: bytes, recorder: str = "nccl") -> None:
    key = DumpKey("llm", rank, 47, made_ns, recorder)
    FolderStore(folder).put(str(key), io.BytesIO(content))


MADE_NS = 1_795_244_623_456_000_000  # 2026-11-21 07:03:43.456 UTC


@pytest.mark.torch
@pytest.mark.slow
def test_torchs_own_analyser_reads_the_dumps_of_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks on an H100, of which rank 1 has not called the 46th all-reduce. An older hang is left out."""
    pytest.importorskip("torch")
    store, out = tmp_path / "store", tmp_path / "out"
    monkeypatch.setenv("ARGUS_TRACE_STORE", str(store))
    for rank in (0, 1):
        put_dump(store, rank, MADE_NS + rank * 10**9, gzip.compress(recorded(f"flight-recorder.{rank}.json")))
    put_dump(store, 2, MADE_NS - 3600 * 10**9, gzip.compress(b"{}"))
    assert main(["trace", "dumps", "llm/", "--out", str(out)]) == 0
    paths = [out / "nccl" / f"rank_{rank}" for rank in (0, 1)]
    assert capsys.readouterr().out.split() == list(map(str, paths))
    module = "torch.distributed.flight_recorder.fr_trace"
    said = subprocess.run(
        [sys.executable, "-m", module, str(out / "nccl")], capture_output=True, text=True, check=True
    )
    assert "missing ranks: {1}" in said.stderr + said.stdout


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", gzip.compress(b"{"), gzip.compress(b"[" * 100_000)],
    ids=["nothing", "not-gzip", "half-json", "deep-json"],  # gzip's bytes hold the second they were made in
)
def test_a_dump_that_is_none_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    monkeypatch.setenv("ARGUS_TRACE_STORE", str(tmp_path / "store"))
    put_dump(tmp_path / "store", 0, MADE_NS, content)
    assert main(["trace", "dumps", "llm/", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is no dump of a flight recorder" in line


def test_no_dump_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGUS_TRACE_STORE", str(tmp_path / "store"))
    assert main(["trace", "dumps", "llm/", "--out", str(tmp_path / "out")]) == 2
    assert "there is no dump of a flight recorder" in capsys.readouterr().err
