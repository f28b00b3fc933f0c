"""Small Kineto traces and event logs, made up, with numbers that a test can state."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def kernel(name: str = "gemm", ts: float = 1000, dur: float = 10, cat: str = "kernel", **args: Any) -> Event:
    arguments = {"device": 0, "stream": 7} | args
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": arguments}


def annotation(name: str, ts: float, dur: float, cat: str = "user_annotation") -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def launch(ts: float, correlation: int = 1) -> Event:
    arguments = {"correlation": correlation}
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": ts,
        "dur": 3,
        "args": arguments,
    }


def trace(*events: Event, **header: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **header, "traceEvents": list(events)}


def training_trace(rank: int, steps: int = 4, kernels: int = 8) -> dict[str, Any]:
    """Steps of 1 ms from step 5 on, each with gemms of 10, 11, ... us, one all-reduce and one copy."""
    events: list[Event] = []
    for step in range(steps):
        begin = 1_000_000 + step * 1000
        events.append(annotation(f"ProfilerStep#{5 + step}", begin, 990))
        events.append(annotation("## forward ##", begin + 10, 400))
        for index in range(kernels):
            correlation = step * 100 + index
            events.append(launch(begin + 20 + 40 * index, correlation))
            events.append(kernel("gemm", begin + 30 + 40 * index, 10 + index, correlation=correlation))
        events.append(kernel("ncclDevKernel_AllReduce_Sum_f32", begin + 500, 100, stream=20))
        events.append(kernel("Memcpy HtoD", begin + 700, 20, cat="gpu_memcpy", bytes=2048))
    return trace(*events, distributedInfo={"backend": "nccl", "rank": rank, "world_size": 4})


def write(path: Path, content: object) -> Path:
    """JSON to a file, gzip where its name says so; bytes as they are."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" and not isinstance(content, bytes) else raw)
    return path


def log(*lines: object) -> bytes:
    return b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )


def dumps(content: object) -> bytes:
    return json.dumps(content).encode()
