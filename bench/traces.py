"""Traces: what encoding and the ring cost.

    python -m bench.traces [--events 100000] [--json]

Encoding is CPU time of this process for windows at the paper's volume (ARGUS table 4): a step of 4 s with
6,667 kernels (1e5 a minute) on three streams, each with its launch and flow, 100 names, 200 phase spans and
320 stack samples. `bytes_per_rank_step` is to be compared with the paper's 443 kB. The ring is CPU time of
taps and writer together for one second of 8 ranks at 1e5 events a minute, as a share of a core. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from argus_core import wire
from argus_core.kernel_names import is_collective
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_exporter.kernels.pairs import stream_key
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE
from argus_exporter.traces.encode import encode
from argus_exporter.traces.ring import Ring, Tap
from argus_exporter.traces.window import Samples, TraceWindow

BEGIN_NS = 1_795_000_000_000_000_000
STEP_NS = 4_000_000_000
KERNELS_A_STEP = 6667
SPANS_A_STEP = 200
SAMPLES_A_STEP = 320
RANKS, EVENTS_A_MINUTE = 8, 100_000
_STREAMS = {stream_key(0, 7): "compute0", stream_key(0, 13): "compute1", stream_key(0, 20): "nccl:dp"}
_PHASES = ("data", "forward", "backward", "optimizer", *(f"layer{index}" for index in range(46)))


def paper_window(events: int, rng: np.random.Generator) -> TraceWindow:
    """As many steps of the paper's volume as give `events` kernels."""
    steps = max(round(events / KERNELS_A_STEP), 1)
    count = steps * KERNELS_A_STEP
    names = ["", *_PHASES, *(_kernel_name(index) for index in range(100))]
    collective = np.array([is_collective(name) for name in names])
    kernels = np.zeros(count, KERNEL_DTYPE)
    share = 1.0 / np.arange(1, 101)
    kernels["name_id"] = 1 + len(_PHASES) + rng.choice(100, count, p=share / share.sum())
    gaps = rng.exponential(1.0, count)
    starts = BEGIN_NS + (np.cumsum(gaps) / gaps.sum() * steps * STEP_NS * 0.999).astype(np.int64)
    kernels["start_ns"] = starts
    compute = rng.choice([7, 13], count, p=[0.9, 0.1])
    kernels["stream"] = np.where(collective[kernels["name_id"]], 20, compute)
    kernels["issue_ns"] = rng.gamma(2.0, 100_000, count).astype(np.int64)
    for stream in (7, 13, 20):
        mine = np.flatnonzero(kernels["stream"] == stream)
        until_next = np.diff(starts[mine], append=BEGIN_NS + steps * STEP_NS)
        kernels["duration_ns"][mine] = (until_next * rng.uniform(0.3, 0.98, len(mine))).astype(np.uint64)
    return TraceWindow(
        identity=Identity("llama-70b", 17, world_size=1024, coordinates={"dp": 2, "tp": 1, "pp": 0}),
        begin_ns=BEGIN_NS,
        end_ns=BEGIN_NS + steps * STEP_NS,
        first_step=128,
        last_step=127 + steps,
        texts=dict(enumerate(names)),
        kernels=kernels,
        streams=_STREAMS,
        spans=_spans(steps, rng),
        groups=["dp:pp0.tp1"] * (steps * SPANS_A_STEP),
        iterations=np.array(
            [(128 + step, BEGIN_NS + step * STEP_NS, STEP_NS) for step in range(steps)], ITERATION_DTYPE
        ),
        samples=[_samples(step, rng) for step in range(steps)],
    )


def _kernel_name(index: int) -> str:
    if index % 12 == 11:
        return f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<{4096 + index}ul>)"
    return (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
        f"std::array<char*, {index}ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
        "std::array<char*, 3ul>)"
    )


def _spans(steps: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.void]]:
    spans = np.zeros(steps * SPANS_A_STEP, SPAN_DTYPE)
    place = np.arange(len(spans))
    length = STEP_NS // SPANS_A_STEP
    spans["start_ns"] = BEGIN_NS + place * length
    spans["duration_ns"] = (length * rng.uniform(0.5, 1.0, len(spans))).astype(np.uint64)
    spans["step"] = 128 + place // SPANS_A_STEP
    spans["phase_id"] = 1 + place % len(_PHASES)
    spans["source"] = wire.Source.EVENT
    return spans


def _samples(step: int, rng: np.random.Generator) -> Samples:
    """A main thread and seven others at 10 Hz, 25 frames deep, 40 distinct stacks."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for _ in range(SAMPLES_A_STEP):
        leaf = int(rng.integers(5))
        frames = tuple(f"function_{depth} (module_{depth}.py:{depth * 7})" for depth in range(24))
        key = (f"thread-{'abcdefgh'[int(rng.integers(8))]}", (*frames, f"leaf_{leaf} (leaf.py:{leaf})"))
        counts[key] = counts.get(key, 0) + 1
    return Samples(BEGIN_NS + step * STEP_NS, BEGIN_NS + (step + 1) * STEP_NS, counts)


def measure_encoding(events: int) -> dict[str, float]:
    """CPU time and size, the median of five windows."""
    rng = np.random.default_rng(0)
    window = paper_window(events, rng)
    one_step = paper_window(1, rng)
    encode(window)  # imports
    seconds = []
    for _ in range(5):
        began = time.process_time()
        content = encode(window)
        seconds.append(time.process_time() - began)
    median = float(np.median(seconds))
    steps = window.iterations.size
    return {
        "events": window.events,
        "ms_per_10k_events": round(1e3 * median / window.events * 1e4, 2),
        "events_per_second": round(window.events / median),
        "bytes_per_event": round(len(content) / window.events, 1),
        "bytes_per_rank_step": round(len(content) / steps),
        "bytes_of_one_step_alone": len(encode(one_step)),
    }


def measure_ring(folder: Path, seconds: int = 20) -> dict[str, float]:
    """CPU time of one second of traffic: 8 ranks, spans and kernels and an iteration a second each."""
    ring = Ring(folder / "ring", budget_bytes=256 << 20, age_s=3600)
    ring.open()
    taps = [ring.connect(Identity("bench", rank)) for rank in range(RANKS)]
    names = [wire.Name(index, wire.encode_name(_kernel_name(index))) for index in range(1, 101)]
    for tap in taps:
        _take(tap, wire.MessageType.NAMES, b"".join(name.pack() for name in names), len(names))
    limit = wire.records_per_message(wire.Kernel)
    records: KernelArray = np.zeros(EVENTS_A_MINUTE // 60, KERNEL_DTYPE)
    span = wire.Span(BEGIN_NS, 1, 1, 1, 0, 0, 0, 0).pack()
    began = time.process_time()
    for second in range(seconds):
        for tap in taps:
            records["start_ns"] = BEGIN_NS + second
            for at in range(0, len(records), limit):
                part = records[at : at + limit]
                _take(tap, wire.MessageType.KERNELS, part.tobytes(), len(part))
            _take(tap, wire.MessageType.SPANS, span * 12, 12)
            iteration = wire.Iteration(second, BEGIN_NS + second, 1, second, 0.0, 0.0)
            _take(tap, wire.MessageType.ITERATIONS, iteration.pack(), 1)
        ring.flush()
    used = time.process_time() - began
    ring.close()
    return {
        "ring_core_share": round(used / seconds, 5),
        "ring_mb_per_second": round(ring.size / seconds / 1e6, 3),
        "ring_dropped_bytes": sum(ring.dropped_bytes.values()),
    }


def _take(tap: Tap, type_: wire.MessageType, payload: bytes, count: int) -> None:
    tap.take(wire.Header(type_, count, 0, 0), memoryview(payload), 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--events", type=int, default=100_000, help="kernels of the window that is encoded (default 100000)"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="argus-bench-") as name:
        result = {**measure_encoding(args.events), **measure_ring(Path(name))}
    if not args.json:
        print(f"traces, {os.cpu_count()} cores")
        for key, value in result.items():
            print(f"  {key:26} {value}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
