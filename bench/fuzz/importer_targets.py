"""Hostile files against the three importers; only our own error, in one line, may come out."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from argus_exporter.errors import ArgusExporterError
from argus_exporter.replay.reader import parse_bytes, read_files
from argus_exporter.replay.recording import RankRecording
from argus_exporter.replay.summary import as_json, as_text, summarise_rank

_KINETO: Final = Path("rank0.json")
_LOG: Final = Path("events.jsonl")
_SCRATCH: Final = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())


class Broken(AssertionError):
    """A recording that contradicts itself, or an error that is no single line."""


def kineto(data: bytes) -> bool:
    return _judge(lambda: parse_bytes(data, _KINETO))


def event_log(data: bytes) -> bool:
    return _judge(lambda: parse_bytes(data, _LOG))


def nsys(data: bytes) -> bool:
    """SQLite reads files only: the bytes go to one in memory."""
    path = _SCRATCH / f"argus-fuzz-{os.getpid()}-rank0.sqlite"
    path.write_bytes(data)
    try:
        return _judge(lambda: read_files([path], assume_ranks=len(data) % 2 == 0))
    finally:
        path.unlink()


def _judge(read: Callable[[], list[RankRecording]]) -> bool:
    try:
        recordings = read()
    except ArgusExporterError as error:
        if "\n" in str(error) or not str(error):
            raise Broken(f"an error of several lines: {error}") from error
        return False
    for recording in recordings:
        _check(recording)
    summaries = [summarise_rank(recording, top=3) for recording in recordings]
    as_text(summaries, top=3)
    json.dumps(as_json(summaries), allow_nan=False)
    return True


def _check(recording: RankRecording) -> None:
    kernels = recording.kernels
    if len(kernels) != len(recording.kernel_steps):
        raise Broken("as many steps as kernels")
    if (kernels["start_ns"][1:] < kernels["start_ns"][:-1]).any():
        raise Broken("kernels ascend by start")
    if len(kernels) and int(kernels["name_id"].max()) >= len(recording.texts):
        raise Broken("every name id has a text")
    if recording.end_ns < recording.begin_ns:
        raise Broken("the end is not before the begin")
    if (kernels["issue_ns"] < -1).any():
        raise Broken("issue latencies are -1 or more")


def kineto_seeds() -> list[bytes]:
    """Traces of both spellings of the categories, with and without steps, launches, base times and gzip."""
    return [
        _trace(base=0, category="kernel", runtime="cuda_runtime", marks="user_annotation"),
        _trace(base=10**18, category="Kernel", runtime="Runtime", marks="Operator"),
        json.dumps(
            json.loads(_trace(base=0, category="kernel", runtime="hip_runtime", marks="cpu_op"))[
                "traceEvents"
            ]
        ).encode(),
        gzip.compress(
            _trace(base=0, category="kernel", runtime="cuda_driver", marks="user_annotation"), mtime=0
        ),
    ]


def _trace(base: int, category: str, runtime: str, marks: str) -> bytes:
    def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}

    events = []
    for step in range(3):
        begin = 1000 * step
        events.append(event(marks, f"ProfilerStep#{step}", begin, 900))
        events.append(event(marks, "## forward ##", begin + 5, 300.5))
        for index in range(3):
            correlation = step * 10 + index
            launch = event(runtime, "cudaLaunchKernel", begin + 10 * index, 3, correlation=correlation)
            work = {"stream": 7, "device": 0, "correlation": correlation, "bytes": 4096}
            cat = category if index else "gpu_memcpy"
            events += [launch, event(cat, f"k{index}", begin + 20 + 30 * index, 12.25, **work)]
    return json.dumps(
        {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 4},
            "host_name": "gpu-01",
            "baseTimeNanoseconds": base,
            "traceEvents": events,
            "traceName": "t",
        },
        indent=1,
    ).encode()


def event_log_seeds() -> list[bytes]:
    """Logs with every kind of line and key, plain and gzip."""
    topology = {
        "training_job": "job",
        "world_size": 4,
        "sizes": {"dp": 2, "tp": 2},
        "ranks": {"0": {"dp": 0, "tp": 0, "node": "n"}},
    }
    lines: list[dict[str, object]] = [{"topology": topology}]
    for step in range(3):
        times = {"start": 1.5 + step, "duration": 0.25}
        lines += [
            {"rank": 0, "step": step, "phase": "forward", "kind": "compute", "group": "dp", **times},
            {
                "rank": 1,
                "step": step,
                "phase": "data",
                "kind": "host",
                "source": "event",
                "microbatch": 1,
                **times,
            },
            {"rank": 0, "kernel": "gemm", "stream": 7, "step": step, "issue": 0.001, "device": 1, **times},
            {"rank": 0, "kernel": "Memcpy", "stream": 9, "operation": "memcpy", "bytes": 4096, **times},
            {"rank": 1, "step": step, "iteration": True, **times},
        ]
    log = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return [log, log.split(b"\n", 1)[1], gzip.compress(log, mtime=0)]


def nsys_seeds() -> list[bytes]:
    """The exports that the tests make, of both generations, as files."""
    # From the tests, which `python -m bench.fuzz` puts on the path.
    from exporter.replay.nsys_export import (  # type: ignore[import-not-found]
        OLD,
        fill,
        training_export,
    )

    several = training_export(steps=2)
    fill(several, steps=2, pid=200, device=1)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, export in enumerate((training_export(steps=2), training_export(OLD, steps=2), several)):
            export.connection.commit()
            export.connection.execute("PRAGMA page_size = 512")
            export.connection.execute("VACUUM")
            found.append(export.write(Path(folder) / f"{number}.sqlite").read_bytes())
    return found
