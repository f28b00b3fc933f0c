"""PyTorch profiler (Kineto) traces: the Chrome trace JSON of one rank, read event by event.

Written to what real files hold, not to a specification; there is none. Releases differ:

* GPU work has `cat` `Kernel`, `Memcpy`, `Memset` (2021) or `kernel`, `gpu_memcpy`, `gpu_memset`;
* `ts` is microseconds, whole or fractional, since the epoch or since `baseTimeNanoseconds`, which may stand
  behind the events;
* `ProfilerStep#N` has `cat` `Operator` (2021) or `user_annotation`; `gpu_user_annotation` repeats it;
* `distributedInfo` may be absent, empty or without `rank` or `world_size`;
* ROCm traces have no `grid`, `block` or `bytes`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from argus_core import wire
from argus_exporter.place.topology import Identity
from argus_exporter.replay.assemble import Collected, Interval, Phase, assemble
from argus_exporter.replay.json_stream import JsonStream
from argus_exporter.replay.rank_names import RANK_HINT, rank_from_name
from argus_exporter.replay.recording import (
    RANK_LIMIT,
    STEP_LIMIT,
    TIME_LIMIT_NS,
    RankRecording,
    RecordingError,
    clean_text,
    kilobytes,
)

_OPERATIONS: Final = {
    "kernel": wire.Operation.KERNEL,
    "memcpy": wire.Operation.MEMCPY,
    "gpu_memcpy": wire.Operation.MEMCPY,
    "memset": wire.Operation.MEMSET,
    "gpu_memset": wire.Operation.MEMSET,
}
_LAUNCHES: Final = frozenset({"runtime", "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"})
_ANNOTATIONS: Final = frozenset({"operator", "user_annotation", "cpu_op"})
_STEP: Final = re.compile(r"ProfilerStep#([0-9]{1,10})")

# They are host clocks: they tell when the host issued the work.
PHASES: Final = (
    Phase("data", wire.Kind.HOST, ("enumerate(DataLoader)#", "## load_batch ##")),
    Phase("forward", wire.Kind.COMPUTE, ("## forward ##", "DistributedDataParallel.forward")),
    Phase("backward", wire.Kind.COMPUTE, ("## backward ##",)),
    Phase("optimizer", wire.Kind.COMPUTE, ("Optimizer.step#", "## optimizer ##")),
)
_MARKS: Final = tuple(mark for phase in PHASES for mark in phase.marks)

_HEADER: Final = frozenset({"baseTimeNanoseconds", "distributedInfo", "host_name"})
"""What is kept of the top level; the rest (device properties, logs) is as large as a profiler likes."""
_NAME_LIMIT: Final = 1 << 16


def read_kineto(json: JsonStream, source: Path, job: str, rank: int | None = None) -> RankRecording | None:
    """One rank's recording from a trace whose cursor stands at its start; None where it has no `traceEvents`.

    Args:
        json: an object with `traceEvents`, or the events alone (the array form of the Chrome format).
        source: named in errors; its name may tell the rank.
        job: training job of the identity.
        rank: overrides what the trace and its name say.

    Raises:
        RecordingError: no GPU events, no rank, or a header of the wrong type.
        JsonError: the text is no JSON.
    """
    found = Collected()
    header: dict[str, object] = {}
    has_events = False
    if json.peek() == "[":
        has_events = True
        collect(found, json.elements())
    else:
        for key in json.members():
            if key == "traceEvents" and json.peek() == "[":
                has_events = True
                collect(found, json.elements())
            else:
                value = json.value()
                if key in _HEADER:
                    header[key] = value
    json.end()
    return build(found, header, source, job, rank) if has_events else None


def collect(found: Collected, events: Iterable[object]) -> None:
    """Take what replay needs of some events, in any order."""
    for event in events:
        found.events += 1
        if not isinstance(event, dict):
            continue
        category, name = event.get("cat"), event.get("name")
        if not isinstance(category, str) or not isinstance(name, str) or event.get("ph", "X") != "X":
            continue
        category = category.lower()
        if category in _ANNOTATIONS:
            if name.startswith(("ProfilerStep#", *_MARKS)):
                _collect_annotation(found, event, name)
        elif category in _OPERATIONS:
            _collect_gpu(found, event, name, _OPERATIONS[category])
        elif category in _LAUNCHES:
            correlation = _argument(event, "correlation")
            start = _nanoseconds(event.get("ts"))
            if correlation is not None and start is not None:
                found.launches.add(correlation, start)


def build(
    found: Collected, header: Mapping[str, object], source: Path, job: str, rank: int | None
) -> RankRecording:
    """The recording of all collected events and the top level of the trace beside them.

    Raises:
        RecordingError: no GPU events, no rank, or a header of the wrong type.
    """
    base_ns = _base_time(header, source)
    if not len(found.kernels):
        raise RecordingError(_why_no_gpu_events(found, source))
    identity = _identity(header, source, job, rank)
    recording = assemble(found, base_ns=base_ns, source=source, identity=identity, phases=PHASES)
    if recording is None:
        raise RecordingError(_why_no_gpu_events(found, source))
    return recording


def _collect_gpu(found: Collected, event: dict[str, object], name: str, operation: wire.Operation) -> None:
    start = _nanoseconds(event.get("ts"))
    duration = _nanoseconds(event.get("dur"))
    if start is None:
        found.unusable["a usable start"] += 1
        return
    if duration is None or duration < 0:
        found.unusable["a usable duration"] += 1
        return
    stream = _argument(event, "stream")
    if stream is None:
        stream = _trailing_number(event.get("tid"))
    size = _argument(event, "bytes") if operation is not wire.Operation.KERNEL else None
    correlation = _argument(event, "correlation")
    found.kernel(
        start,
        duration,
        name[:_NAME_LIMIT],
        stream or 0,
        kilobytes(size or 0),
        operation,
        _argument(event, "device") or 0,
        -1 if correlation is None else correlation,
    )


def _collect_annotation(found: Collected, event: dict[str, object], name: str) -> None:
    start, duration = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
    if start is None or duration is None or duration < 0:
        return
    step = _STEP.fullmatch(name)
    if step is None:
        mark = next((mark for mark in _MARKS if name.startswith(mark)), None)
        if mark is not None:
            found.marks.append(Interval(mark, start, duration))
    elif int(step[1]) < STEP_LIMIT:
        found.steps.append((int(step[1]), Interval(name, start, duration)))


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


def _why_no_gpu_events(found: Collected, source: Path) -> str:
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


def _nanoseconds(microseconds: object) -> int | None:
    """Exact where the trace is: whole microseconds never pass through a float. Smaller than TIME_LIMIT_NS."""
    if isinstance(microseconds, float):
        if not math.isfinite(microseconds):
            return None
        # Apart, because below 2^43 us (base times) a double tells whole nanoseconds, a thousandfold does not.
        fraction, whole = math.modf(microseconds)
        value = int(whole) * 1000 + round(fraction * 1000)
    elif isinstance(microseconds, int) and not isinstance(microseconds, bool):
        value = microseconds * 1000
    else:
        return None
    return value if -TIME_LIMIT_NS < value < TIME_LIMIT_NS else None


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
        match = re.search(r"([0-9]{1,9})$", tid)
        return int(match[1]) if match else None
    return _whole(tid, 1 << 32)


def _kind(value: object) -> str:
    names = {list: "list", str: "text", int: "number", float: "number", bool: "true or false"}
    return names.get(type(value), type(value).__name__)
