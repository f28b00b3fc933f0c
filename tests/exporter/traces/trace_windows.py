"""Windows of a rank to encode: random ones whose content is known, and the paper's volume."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_core.nccl_page import FUNCTIONS
from argus_exporter.kernels.pairs import stream_key
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE
from argus_exporter.traces.nccl_lists import OPERATION_DTYPE
from argus_exporter.traces.window import LayerSample, Pause, Samples, TraceWindow

BEGIN = 1_795_244_623_456_000_000
STEP_NS = 400_000_000
TEXTS = {
    0: "",
    1: "forward",
    2: "backward",
    3: "dp-allreduce",
    4: "Memcpy HtoD (Pageable -> Device)",
    **{index: f"void at::native::kernel_{index}<float, {'x' * 40}>(int)" for index in range(5, 105)},
}
STREAMS = {
    stream_key(0, 7): "compute0",
    stream_key(0, 8): "nccl:dp",
    stream_key(0, 9): "copy0",
    stream_key(1, 7): "compute0:gpu1",
}


def identity(rank: int = 3) -> Identity:
    return Identity(
        "llama-70b",
        rank,
        world_size=16,
        coordinates={"dp": 1, "tp": 0, "pp": 2},
        sizes={"dp": 4, "tp": 1, "pp": 4},
        node="node-7",
        gpu_uuid="GPU-1234",
        role="pp2.tp0",
    )


def kernels(count: int, seed: int = 0, *, begin: int = BEGIN, span_ns: int = STEP_NS) -> np.ndarray:
    """Kernels, copies and memory sets on four streams; every third without a launch; some overlap."""
    rng = np.random.default_rng(seed)
    records = np.zeros(count, KERNEL_DTYPE)
    records["start_ns"] = np.sort(begin + rng.integers(0, span_ns, count))
    records["duration_ns"] = rng.exponential(span_ns / max(count, 1) * 2, count).astype(np.uint64)
    records["issue_ns"] = np.where(np.arange(count) % 3, rng.integers(0, 500_000, count), -1)
    records["name_id"] = rng.integers(5, 105, count)
    records["stream"] = rng.choice([7, 8, 9], count)
    records["device"] = np.where(records["stream"] == 7, rng.integers(0, 2, count), 0)
    copies = records["stream"] == 9
    records["operation"][copies] = rng.choice([wire.Operation.MEMCPY, wire.Operation.MEMSET], copies.sum())
    records["name_id"][copies] = 4
    records["kilobytes"][copies] = rng.integers(1, 1 << 22, copies.sum())
    return records


def operations(records: np.ndarray, told: Iterable[Sequence[tuple[str, int, int]]]) -> np.ndarray:
    """What kernels of NCCL do: function, sequence and peer of each operation, kernel by kernel."""
    rows = [
        wire.NcclOperation(
            int(record["start_ns"]),
            int(record["kilobytes"]),
            sequence,
            peer,
            FUNCTIONS.index(function),
            place,
        ).pack()
        for record, of_kernel in zip(records, told, strict=True)
        for place, (function, sequence, peer) in enumerate(of_kernel)
    ]
    return np.frombuffer(b"".join(rows), OPERATION_DTYPE)


def window(count: int = 2000, seed: int = 0, *, rank: int = 3) -> TraceWindow:
    """Two steps of a rank with one of everything."""
    rng = np.random.default_rng(seed)
    spans = np.zeros(40, SPAN_DTYPE)
    spans["start_ns"] = BEGIN + rng.integers(0, 2 * STEP_NS, len(spans))
    spans["duration_ns"] = rng.integers(0, STEP_NS // 4, len(spans))
    spans["step"] = 128 + (spans["start_ns"] - BEGIN) // STEP_NS
    spans["phase_id"] = rng.integers(1, 4, len(spans))
    spans["kind"] = rng.integers(0, 3, len(spans))
    spans["source"] = rng.integers(0, 2, len(spans))
    spans["microbatch"] = rng.integers(0, 4, len(spans))
    return TraceWindow(
        identity=identity(rank),
        begin_ns=BEGIN,
        end_ns=BEGIN + 2 * STEP_NS,
        first_step=128,
        last_step=129,
        texts=TEXTS,
        kernels=kernels(count, seed, span_ns=2 * STEP_NS),
        streams=STREAMS,
        spans=spans,
        groups=["dp:pp2.tp0"] * len(spans),
        iterations=np.array([(128, BEGIN, STEP_NS), (129, BEGIN + STEP_NS, STEP_NS)], ITERATION_DTYPE),
        pauses=(
            Pause("gc", "gc generation 2", BEGIN + 5_000, 3_000_000),
            Pause("compile", "dynamo", BEGIN + STEP_NS, 70_000_000),
        ),
        layers=(
            LayerSample("mlp", 12, 3, 128, wire.Source.EVENT, BEGIN + 9_000, 4_000_000),
            LayerSample("mlp", 13, 3, 128, wire.Source.EVENT, BEGIN + 8_009_000, 4_000_000),
            LayerSample("stage_forward", 1, 3, 128, wire.Source.HOST, BEGIN, 20_000_000),
        ),
        samples=(
            Samples(
                BEGIN,
                BEGIN + STEP_NS,
                {
                    ("MainThread", ("main (train.py:1)", "forward (model.py:7)")): 10,
                    ("MainThread", ("main (train.py:1)",)): 3,
                    ("loader", ("read (data.py:3)",)): 2,
                },
            ),
        ),
        drops=((BEGIN + 1000, 5), (BEGIN + STEP_NS, 12)),
    )
