"""PyTorch profiler (Kineto) traces: the Chrome trace JSON of one rank.

Written to what real files hold, not to a specification; there is none. Releases differ:

* GPU work has `cat` `Kernel`, `Memcpy`, `Memset` (2021) or `kernel`, `gpu_memcpy`, `gpu_memset`;
* `ts` is microseconds, whole or fractional, since the epoch or since `baseTimeNanoseconds`;
* `ProfilerStep#N` has `cat` `Operator` (2021) or `user_annotation`; `gpu_user_annotation` repeats it;
* `distributedInfo` may be absent, empty or without `rank` or `world_size`;
* ROCm traces have no `grid`, `block` or `bytes`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_exporter.replay.recording import (
    ITERATION_DTYPE,
    RANK_LIMIT,
    SPAN_DTYPE,
    STEP_LIMIT,
    TIME_LIMIT_NS,
    Array,
    RankRecording,
    RecordingError,
    TextTable,
    clean_text,
    kernel_array,
    kilobytes,
)
from argus_exporter.topology import Identity

_OPERATIONS: Final = {
    "kernel": wire.Operation.KERNEL,
    "memcpy": wire.Operation.MEMCPY,
    "gpu_memcpy": wire.Operation.MEMCPY,
    "memset": wire.Operation.MEMSET,
    "gpu_memset": wire.Operation.MEMSET,
}
_LAUNCHES: Final = frozenset({"runtime", "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"})
_ANNOTATIONS: Final = frozenset({"operator", "user_annotation", "cpu_op"})
_STEP: Final = re.compile(r"ProfilerStep#(\d{1,10})")

# Phase, its kind, and the annotations that mark it; the first one that a trace holds is taken, because the
# others lie inside it. They are host clocks: they tell when the host issued the work.
_PHASES: Final = (
    ("data", wire.Kind.HOST, ("enumerate(DataLoader)#", "## load_batch ##")),
    ("forward", wire.Kind.COMPUTE, ("## forward ##", "DistributedDataParallel.forward")),
    ("backward", wire.Kind.COMPUTE, ("## backward ##",)),
    ("optimizer", wire.Kind.COMPUTE, ("Optimizer.step#", "## optimizer ##")),
)
_MARKERS: Final = tuple(marker for _, _, markers in _PHASES for marker in markers)

# worker3_step_12.1694.pt.trace.json.gz, rank-0.Apr_03.json, rank12.json, trace_7.pt.trace.json. At most six
# digits: more are a timestamp.
_RANK_IN_NAME: Final = (
    re.compile(r"(?:^|[._-])worker[_-]?(\d{1,6})(?=[._-])"),
    re.compile(r"(?:^|[._-])rank[_-]?(\d{1,6})(?=[._-])"),
    re.compile(r"_(\d{1,6})(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$"),
)

RANK_HINT: Final = (
    "allowed: distributedInfo.rank in the trace, or a file name such as rank3.json, rank-3.*.json, "
    "worker3_*.json or *_3.json; or pass --assume-ranks to number the files in the order given"
)


@dataclass(frozen=True)
class Interval:
    name: str
    start_ns: int
    duration_ns: int


@dataclass
class _Collected:
    """What one pass over the events found."""

    kernels: list[tuple[int, ...]] = field(default_factory=list)
    correlations: list[int] = field(default_factory=list)
    launches: dict[int, int] = field(default_factory=dict)
    steps: list[tuple[int, Interval]] = field(default_factory=list)
    marks: list[Interval] = field(default_factory=list)
    texts: TextTable = field(default_factory=TextTable)
    events: int = 0
    unusable: Counter[str] = field(default_factory=Counter)


def parse_kineto(
    header: Mapping[str, object], events: Iterable[object], source: Path, job: str, rank: int | None = None
) -> RankRecording:
    """One rank's recording.

    Args:
        header: the top level of the trace, beside `traceEvents`.
        events: `traceEvents`, in any order; read once, so that a streaming reader can take this place.
        source: named in errors; its name may tell the rank.
        job: training job of the identity.
        rank: overrides what the trace and its name say.

    Raises:
        RecordingError: no GPU events, no rank, or a header of the wrong type.
    """
    found = _collect(events, _base_time(header, source))
    if not found.kernels:
        raise RecordingError(_why_no_gpu_events(found, source))
    identity = _identity(header, source, job, rank)
    notes = [f"{count} GPU events without {what} left out" for what, count in sorted(found.unusable.items())]
    kernels = kernel_array(found.kernels)
    correlations = np.array(found.correlations, np.int64)
    launched = np.array([found.launches.get(int(c), -1) for c in correlations], np.int64)
    order = np.argsort(kernels["start_ns"], kind="stable")
    kernels, launched = kernels[order], launched[order]
    starts = kernels["start_ns"].astype(np.int64)
    kernels["issue_ns"] = np.where(launched >= 0, np.maximum(starts - launched, 0), -1)
    iterations = _iterations(found.steps, notes)
    steps = step_at(iterations, np.where(launched >= 0, launched, starts))
    idle = ~np.isin(iterations["step"], steps)
    if idle.any() and not idle.all():
        # The profiler opens a step at its last call, which ends with the recording.
        left_out = ", ".join(str(step) for step in iterations["step"][idle])
        notes.append(f"steps without GPU events left out: {left_out}")
        iterations = iterations[~idle]
    spans = _spans(found.marks, iterations, found.texts)
    return RankRecording(
        source=source,
        identity=identity,
        texts=found.texts.texts,
        kernels=kernels,
        kernel_steps=steps,
        spans=spans,
        iterations=iterations,
        notes=tuple(notes),
    )


def step_at(iterations: Array, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The step in which each time lies, -1 outside; the short gap after a step belongs to it."""
    if not len(iterations):
        return np.full(len(times), -1, np.int64)
    ordered = iterations[np.argsort(iterations["start_ns"], kind="stable")]
    place = np.searchsorted(ordered["start_ns"], times, side="right") - 1
    end = int((ordered["start_ns"] + ordered["duration_ns"]).max())
    return np.where((place >= 0) & (times <= end), ordered["step"][np.maximum(place, 0)], -1)


def rank_from_name(name: str) -> int | None:
    """The rank that a file name tells, by the habits of PyTorch's trace handlers."""
    for pattern in _RANK_IN_NAME:
        match = pattern.search(name)
        if match:
            return int(match[1])
    return None


def _collect(events: Iterable[object], base_ns: int) -> _Collected:
    found = _Collected()
    for event in events:
        found.events += 1
        if not isinstance(event, dict):
            continue
        category, name = event.get("cat"), event.get("name")
        if not isinstance(category, str) or not isinstance(name, str) or event.get("ph", "X") != "X":
            continue
        category = category.lower()
        operation = _OPERATIONS.get(category)
        if operation is not None:
            _collect_gpu(found, event, name, operation, base_ns)
        elif category in _LAUNCHES:
            correlation = _argument(event, "correlation")
            start = _nanoseconds(event.get("ts"), base_ns)
            if correlation is not None and start is not None:
                found.launches.setdefault(correlation, start)
        elif category in _ANNOTATIONS:
            _collect_annotation(found, event, name, base_ns)
    return found


def _collect_gpu(
    found: _Collected, event: dict[str, object], name: str, operation: wire.Operation, base_ns: int
) -> None:
    start = _nanoseconds(event.get("ts"), base_ns)
    duration = _nanoseconds(event.get("dur"), 0)
    if start is None:
        found.unusable["a usable ts"] += 1
        return
    if duration is None:
        found.unusable["a usable dur"] += 1
        return
    stream = _argument(event, "stream")
    if stream is None:
        stream = _trailing_number(event.get("tid"))
    device = _argument(event, "device")
    size = _argument(event, "bytes")
    name_id = found.texts.intern(name or "unnamed") or found.texts.intern("unnamed")
    found.kernels.append(
        (
            start,
            duration,
            -1,
            name_id,
            min(max(stream or 0, 0), 0xFFFFFFFF),
            kilobytes(size or 0) if operation is not wire.Operation.KERNEL else 0,
            int(operation),
            min(max(device or 0, 0), 255),
        )
    )
    correlation = _argument(event, "correlation")
    found.correlations.append(-1 if correlation is None else correlation)


def _collect_annotation(found: _Collected, event: dict[str, object], name: str, base_ns: int) -> None:
    step = _STEP.fullmatch(name)
    if step is None and not name.startswith(_MARKERS):
        return
    start, duration = _nanoseconds(event.get("ts"), base_ns), _nanoseconds(event.get("dur"), 0)
    if start is None or duration is None:
        return
    if step is None:
        found.marks.append(Interval(name, start, duration))
    elif int(step[1]) < STEP_LIMIT:
        found.steps.append((int(step[1]), Interval(name, start, duration)))


def _iterations(steps: list[tuple[int, Interval]], notes: list[str]) -> Array:
    longest: dict[int, Interval] = {}
    for step, interval in steps:
        known = longest.get(step)
        if known is None or interval.duration_ns > known.duration_ns:
            longest[step] = interval
    if len(steps) > len(longest):
        notes.append(f"{len(steps) - len(longest)} repeated ProfilerStep marks left out, the longest kept")
    rows = [(step, interval.start_ns, interval.duration_ns) for step, interval in sorted(longest.items())]
    return np.array(rows, ITERATION_DTYPE)


def _spans(marks: list[Interval], iterations: Array, texts: TextTable) -> Array:
    chosen: list[tuple[Interval, str, wire.Kind]] = []
    for phase, kind, markers in _PHASES:
        for marker in markers:
            matching = [mark for mark in marks if mark.name.startswith(marker)]
            if matching:
                chosen += [(mark, phase, kind) for mark in matching]
                break
    chosen.sort(key=lambda item: item[0].start_ns)
    starts = np.array([mark.start_ns for mark, _, _ in chosen], np.int64)
    steps = step_at(iterations, starts) if len(iterations) else np.zeros(len(chosen), np.int64)
    rows = [
        (mark.start_ns, mark.duration_ns, int(step), texts.intern(phase), 0, kind, wire.Source.HOST, 0, 0)
        for (mark, phase, kind), step in zip(chosen, steps, strict=True)
        if step >= 0
    ]
    return np.array(rows, SPAN_DTYPE)


def _identity(header: Mapping[str, object], source: Path, job: str, rank: int | None) -> Identity:
    info = header.get("distributedInfo")
    info = {} if info is None else info
    if not isinstance(info, dict):
        raise RecordingError(
            f"{source}: distributedInfo is a {_kind(info)}; allowed: an object with rank and world_size"
        )
    told = _whole(info.get("rank"), RANK_LIMIT)
    if rank is None:
        rank = told if told is not None else rank_from_name(source.name)
    if rank is None:
        raise RecordingError(f"{source}: the rank is unknown; {RANK_HINT}")
    world_size = _whole(info.get("world_size"), RANK_LIMIT)
    host = header.get("host_name")
    return Identity(
        training_job=job,
        rank=rank,
        world_size=world_size if world_size is not None and world_size > rank else -1,
        node=clean_text(host, 64) if isinstance(host, str) else "",
    )


def _base_time(header: Mapping[str, object], source: Path) -> int:
    base = header.get("baseTimeNanoseconds", 0)
    if isinstance(base, float) and base.is_integer():
        base = int(base)
    whole = _whole(base, TIME_LIMIT_NS)
    if whole is None:
        raise RecordingError(
            f"{source}: baseTimeNanoseconds is {str(base)[:40]!r}; allowed: whole nanoseconds, 0 or more"
        )
    return whole


def _why_no_gpu_events(found: _Collected, source: Path) -> str:
    if found.unusable:
        what = " or ".join(sorted(found.unusable))
        count = found.unusable.total()
        return f"{source}: all {count} GPU events are without {what}; allowed: microseconds, 0 or more"
    if not found.events:
        return f"{source}: traceEvents is empty; allowed: a trace with GPU events (kernel, memcpy, memset)"
    return (
        f"{source}: no GPU events among {found.events}, so this is a CPU-only trace; "
        "record with torch.profiler.ProfilerActivity.CUDA"
    )


def _nanoseconds(microseconds: object, base_ns: int) -> int | None:
    """Exact where the trace is: whole microseconds never pass through a float."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
        return None
    if isinstance(microseconds, float):
        if not math.isfinite(microseconds):
            return None
        # Apart, because below 2^43 us (base times) a double tells whole nanoseconds, a thousandfold does not.
        fraction, whole = math.modf(microseconds)
        value = base_ns + int(whole) * 1000 + round(fraction * 1000)
    else:
        value = base_ns + microseconds * 1000
    return value if 0 <= value < TIME_LIMIT_NS else None


def _argument(event: dict[str, object], key: str) -> int | None:
    arguments = event.get("args")
    value = arguments.get(key) if isinstance(arguments, dict) else None
    return _whole(value, 1 << 62)


def _whole(value: object, limit: int) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit:
        return value
    return None


def _trailing_number(tid: object) -> int | None:
    """`7` or `stream 7`."""
    if isinstance(tid, str):
        match = re.search(r"(\d{1,9})$", tid)
        return int(match[1]) if match else None
    return _whole(tid, 1 << 32)


def _kind(value: object) -> str:
    names = {list: "list", str: "text", int: "number", float: "number", bool: "true or false"}
    return names.get(type(value), type(value).__name__)
