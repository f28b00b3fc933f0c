"""The ARGUS event log: one JSON object a line, for timings that are no Kineto trace (docs/event-log.md).

Strict: an unknown key, a wrong type or a value out of range is refused with the file and the line, because a
typing error that is skipped looks like a rank without data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from argus_core import wire
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import (
    ITERATION_DTYPE,
    RANK_LIMIT,
    SPAN_DTYPE,
    STEP_LIMIT,
    Array,
    RankRecording,
    RecordingError,
    TextTable,
    clean_text,
    kilobytes,
)
from argus_exporter.replay.rows import Rows, kernel_rows, sort_by_start

_KEYS: Final = {
    "phase": ("rank", "step", "phase", "kind", "start", "duration", "group", "source", "microbatch"),
    "kernel": (
        "rank",
        "kernel",
        "stream",
        "start",
        "duration",
        "step",
        "operation",
        "bytes",
        "issue",
        "device",
    ),
    "iteration": ("rank", "step", "iteration", "start", "duration"),
    "topology": ("topology",),
}
_REQUIRED: Final = {
    "phase": ("rank", "step", "phase", "kind", "start", "duration"),
    "kernel": ("rank", "kernel", "stream", "start", "duration"),
    "iteration": ("rank", "step", "iteration", "start", "duration"),
    "topology": ("topology",),
}
FIRST_KEYS: Final = frozenset(key for keys in _KEYS.values() for key in keys)
"""Keys that an event log's first line may begin with."""

_DIMENSIONS: Final[tuple[str, ...]] = ("tp", "dp", "pp", "ep")
_START_LIMIT_S: Final = 4e9  # the year 2096, where start is Unix time
_DURATION_LIMIT_S: Final = 1e6
_NAME_LIMIT: Final = 1 << 16
"""Longest name read; what the wire cuts of it (`wire.encode_name`) still tells two long names apart."""
LINE_LIMIT: Final = 1 << 26
"""Longest line in bytes: a topology of 100,000 ranks fits."""
_SHOWN: Final = 60
"""Longest piece of a bad value that an error repeats."""


class _LineError(Exception):
    """What is wrong with a line; the caller knows the file and the number."""


@dataclass(frozen=True)
class Topology:
    """The optional first line."""

    training_job: str | None = None
    world_size: int = -1
    sizes: dict[str, int] = field(default_factory=dict)
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)

    def identity(self, rank: int, job: str | None, fallback_job: str) -> Identity:
        """Who a rank is; `job` (from the command line) goes before the topology's."""
        own = self.ranks.get(rank, {})
        coordinates = {name: own[name] for name in _DIMENSIONS if name in own}
        if not coordinates and self.sizes:
            coordinates = derive_coordinates(rank, self.sizes)
        return Identity(
            training_job=job or self.training_job or fallback_job,
            rank=rank,
            world_size=self.world_size,
            coordinates=coordinates,
            sizes=dict(self.sizes),
            node=own.get("node", ""),
            gpu_uuid=own.get("gpu_uuid", ""),
            role=own.get("role", ""),
        )


def derive_coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Coordinates in Megatron's default order: tp varies fastest, then dp, then pp; ep inside dp."""
    tp, dp = sizes.get("tp", 1), sizes.get("dp", 1)
    at = {"tp": rank % tp, "dp": rank // tp % dp, "pp": rank // (tp * dp)}
    coordinates = {name: at[name] for name in ("tp", "dp", "pp") if name in sizes}
    if "ep" in sizes:
        coordinates["ep"] = at["dp"] % sizes["ep"]
    return coordinates


@dataclass
class _Rank:
    """Rows of one rank so far."""

    texts: TextTable = field(default_factory=TextTable)
    kernels: Rows = field(default_factory=kernel_rows)
    kernel_steps: Rows = field(default_factory=lambda: Rows(np.dtype("<i8")))
    spans: Rows = field(default_factory=lambda: Rows(SPAN_DTYPE))
    iterations: dict[int, tuple[int, int]] = field(default_factory=dict)


def parse_event_log(
    lines: Iterable[bytes], source: Path, job: str | None, fallback_job: str
) -> list[RankRecording]:
    """Recordings of all ranks in a log, ascending by rank.

    Args:
        lines: the file, line by line, none longer than LINE_LIMIT; read once.
        source: named in errors.
        job: overrides the training job of the topology line.
        fallback_job: the training job where neither says one.

    Raises:
        RecordingError: the file and number of the first line that is not as documented.
    """
    topology = Topology()
    ranks: dict[int, _Rank] = {}
    content = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        content += 1
        try:
            if len(line) >= LINE_LIMIT:
                raise _LineError(f"longer than {LINE_LIMIT >> 20} MiB; allowed: one JSON object a line")
            record = _decode(line)
            if _record_type(record) == "topology":
                if content > 1:
                    raise _LineError("the topology is not on the first line; allowed: first, or not at all")
                topology = _topology(record["topology"])
            else:
                _add(ranks, record, topology)
        except _LineError as error:
            raise RecordingError(f"{source}:{number}: {error}") from error
    if not ranks:
        raise RecordingError(
            f"{source}: no events; allowed: phase, kernel and iteration lines (docs/event-log.md)"
        )
    return [
        _recording(source, topology.identity(rank, job, fallback_job), rows)
        for rank, rows in sorted(ranks.items())
    ]


def _decode(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8").rstrip())
    except UnicodeDecodeError as error:
        raise _LineError(f"not UTF-8 at byte {error.start + 1}") from error
    except RecursionError as error:
        raise _LineError("nested too deeply; allowed: one flat JSON object") from error
    except json.JSONDecodeError as error:
        raise _LineError(
            f"not JSON: {error.msg} at column {error.pos + 1}; allowed: one JSON object a line"
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise _LineError("a number has too many digits") from error
    if not isinstance(record, dict):
        raise _LineError(f"is {_show(record)}; allowed: one JSON object a line")
    return record


def _record_type(record: dict[str, Any]) -> str:
    types = [type_ for type_ in _KEYS if type_ in record]
    if len(types) != 1:
        has = f"has {' and '.join(types)}" if types else f"has only {_show(list(record))}"
        raise _LineError(f"{has}; allowed: exactly one of {', '.join(_KEYS)}")
    for key in record:
        if key not in _KEYS[types[0]]:
            raise _LineError(
                f"unknown key {_show(key)} (allowed in a {types[0]} line: {', '.join(_KEYS[types[0]])})"
            )
    for key in _REQUIRED[types[0]]:
        if key not in record:
            raise _LineError(f"{key} is missing (a {types[0]} line needs {', '.join(_REQUIRED[types[0]])})")
    return types[0]


def _add(ranks: dict[int, _Rank], record: dict[str, Any], topology: Topology) -> None:
    rank = _whole(record, "rank", RANK_LIMIT)
    if 0 <= topology.world_size <= rank:
        raise _LineError(f"rank is {rank}; allowed: below the topology's world_size of {topology.world_size}")
    start = _seconds(record, "start", _START_LIMIT_S)
    duration = _seconds(record, "duration", _DURATION_LIMIT_S)
    step = _whole(record, "step", STEP_LIMIT) if "step" in record else -1
    rows = ranks.get(rank) or _Rank()
    if "phase" in record:
        kind = _word(record, "kind", wire.Kind, None)
        source = _word(record, "source", wire.Source, wire.Source.HOST)
        phase = rows.texts.intern(_text(record, "phase"))
        group = rows.texts.intern(_text(record, "group")) if "group" in record else 0
        microbatch = _whole(record, "microbatch", 1 << 16) if "microbatch" in record else 0
        rows.spans.add(start, duration, step, phase, group, kind, source, microbatch, 0)
    elif "kernel" in record:
        operation = _word(record, "operation", wire.Operation, wire.Operation.KERNEL)
        issue = _seconds(record, "issue", _DURATION_LIMIT_S) if "issue" in record else -1
        size = _whole(record, "bytes", 1 << 42) if "bytes" in record else 0
        device = _whole(record, "device", 256) if "device" in record else 0
        name = rows.texts.intern(_text(record, "kernel"))
        stream = _whole(record, "stream", 1 << 32)
        rows.kernels.add(start, duration, issue, name, stream, kilobytes(size), operation, device, 0)
        rows.kernel_steps.add(step)
    else:
        if record["iteration"] is not True:
            raise _LineError(f"iteration is {_show(record['iteration'])}; allowed: true")
        if step in rows.iterations:
            raise _LineError(f"iteration of rank {rank}, step {step} comes twice; allowed: once")
        rows.iterations[step] = (start, duration)
    ranks[rank] = rows


def _recording(source: Path, identity: Identity, rows: _Rank) -> RankRecording:
    kernels, kernel_steps, spans = rows.kernels.array(), rows.kernel_steps.array(), rows.spans.array()
    sort_by_start(kernels, kernel_steps)
    sort_by_start(spans)
    iterations = np.array(
        [(step, *times) for step, times in sorted(rows.iterations.items())], ITERATION_DTYPE
    )
    if not len(iterations):
        iterations = _derived(spans, spans["step"].astype(np.int64))
    if not len(iterations):
        iterations = _derived(kernels[kernel_steps >= 0], kernel_steps[kernel_steps >= 0])
    return RankRecording(
        source=source,
        identity=identity,
        texts=rows.texts.texts,
        kernels=kernels,
        kernel_steps=kernel_steps,
        spans=spans,
        iterations=iterations,
        own_work=True,
    )


def _derived(events: Array, steps: np.ndarray[Any, np.dtype[np.int64]]) -> Array:
    """Iterations of a rank that states none: each step from its first start to its last end."""
    order = np.argsort(steps, kind="stable")
    distinct, first = np.unique(steps[order], return_index=True)
    starts = events["start_ns"][order].astype(np.int64)
    ends = starts + events["duration_ns"][order].astype(np.int64)
    iterations = np.zeros(len(distinct), ITERATION_DTYPE)
    for place, (begin, end) in enumerate(pairwise([*first.tolist(), len(order)])):
        opened = starts[begin:end].min()
        iterations[place] = (distinct[place], opened, ends[begin:end].max() - opened)
    return iterations


def _topology(value: object) -> Topology:
    allowed = ("training_job", "world_size", "sizes", "ranks")
    record = _object(value, "topology", allowed)
    given = _object(record.get("sizes", {}), "topology.sizes", _DIMENSIONS)
    sizes = {name: _whole(given, name, RANK_LIMIT, "topology.sizes.", least=1) for name in given}
    world_size = -1
    if "world_size" in record:
        world_size = _whole(record, "world_size", RANK_LIMIT, "topology.", least=1)
    if sizes:
        dp, ep = sizes.get("dp", 1), sizes.get("ep", 1)
        product = sizes.get("tp", 1) * dp * sizes.get("pp", 1)
        world_size = product if world_size < 0 else world_size
        if product != world_size or product >= RANK_LIMIT:
            raise _LineError(
                f"topology.sizes tp x dp x pp is {product}; allowed: the world_size of {world_size}, "
                f"at most {RANK_LIMIT - 1}"
            )
        if dp % ep:
            raise _LineError(f"topology.sizes.ep is {ep}; allowed: a divisor of dp, which is {dp}")
    ranks = record.get("ranks", {})
    if not isinstance(ranks, dict):
        raise _LineError(f"topology.ranks is {_show(ranks)}; allowed: an object keyed by rank")
    job = _text(record, "training_job", "topology.", 64) if "training_job" in record else None
    return Topology(
        job,
        world_size,
        sizes,
        {_rank_key(key): _rank_entry(key, entry, sizes) for key, entry in ranks.items()},
    )


def _rank_key(key: str) -> int:
    if not (key.isascii() and key.isdecimal()) or len(key) > 10 or int(key) >= RANK_LIMIT:
        raise _LineError(f'topology.ranks has key {_show(key)}; allowed: ranks as texts, such as "3"')
    return int(key)


def _rank_entry(key: str, value: object, sizes: Mapping[str, int]) -> dict[str, Any]:
    where = f"topology.ranks.{key[:_SHOWN]}"
    entry = _object(value, where, (*_DIMENSIONS, "node", "gpu_uuid", "role"))
    limits = {name: sizes.get(name, RANK_LIMIT) for name in _DIMENSIONS}
    widths = {"node": 64, "gpu_uuid": 48, "role": 32}
    return {
        name: _whole(entry, name, limits[name], f"{where}.")
        if name in limits
        else _text(entry, name, f"{where}.", widths[name])
        for name in entry
    }


def _object(value: object, where: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _LineError(f"{where} is {_show(value)}; allowed: an object with {', '.join(allowed)}")
    for key in value:
        if key not in allowed:
            raise _LineError(f"unknown key {_show(key)} in {where} (allowed: {', '.join(allowed)})")
    return value


def _whole(record: Mapping[str, Any], key: str, limit: int, prefix: str = "", *, least: int = 0) -> int:
    value: object = record[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < limit:
        raise _LineError(
            f"{prefix}{key} is {_show(value)}; allowed: a whole number from {least} to {limit - 1}"
        )
    return value


def _seconds(record: Mapping[str, Any], key: str, limit: float) -> int:
    """Seconds of a line as nanoseconds."""
    value: object = record[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= limit:
        raise _LineError(f"{key} is {_show(value)}; allowed: seconds from 0 to {limit:g}")
    return round(value * 1_000_000_000)


def _text(record: Mapping[str, Any], key: str, prefix: str = "", limit: int = _NAME_LIMIT) -> str:
    value = record[key]
    text = clean_text(value, limit) if isinstance(value, str) else ""
    if not text:
        raise _LineError(f"{prefix}{key} is {_show(value)}; allowed: a text that is not empty")
    return text


def _word(record: Mapping[str, Any], key: str, words: type[IntEnum], default: IntEnum | None) -> int:
    if key not in record and default is not None:
        return int(default)
    allowed = {word.name.lower(): int(word) for word in words}
    value = record[key]
    if not isinstance(value, str) or value not in allowed:
        raise _LineError(f"{key} is {_show(value)}; allowed: {', '.join(allowed)}")
    return allowed[value]


def _show(value: object) -> str:
    try:
        text = json.dumps(value)
    except ValueError:
        text = "a number of too many digits"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
