"""From the ring to a window of one rank."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_exporter.kernels.communicator_streams import Members
from argus_exporter.kernels.pairs import stream_keys
from argus_exporter.kernels.streams import label_streams
from argus_exporter.place.topology import Identity, RoutingTable
from argus_exporter.replay.recording import ITERATION_DTYPE, SPAN_DTYPE
from argus_exporter.traces.collectives import collective_phases, dimensions_of
from argus_exporter.traces.nccl_lists import OPERATION_DTYPE
from argus_exporter.traces.segment_index import RankKey, created_ns, rank_folder, segment_paths
from argus_exporter.traces.segments import Frame, FrameType, read_frames, unpack_names
from argus_exporter.traces.window import LayerSample, Pause, Samples, TraceWindow

_LATE_NS: Final = 120_000_000_000
"""How late a record may arrive: long steps send at their end, CUPTI when a buffer is full."""
_CLOCKS_NS: Final = 60_000_000_000
"""How far a process's idea of Unix time, taken when it connected, may be ahead of the file system's."""

_RECORDS: Final = 500_000
"""Most records of a window, five minutes of a busy rank: reading and writing one out takes 290 bytes a record
(measured), and the exporter of a whole host has 512 MB."""

ITERATION_WIRE_DTYPE: Final = np.dtype(
    [
        ("step", "<u8"),
        ("end_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("total_count", "<u8"),
        ("total_seconds", "<f8"),
        ("total_squared", "<f8"),
    ]
)
"""`wire.Iteration` as numpy sees it."""

Array = NDArray[np.void]


@dataclass(frozen=True)
class LiveStreams:
    """What the running exporter knows of a rank's streams, by stream key: as in the published series.

    `labels` are names such as `compute0`, `dimensions` those of the communicators (`dp`), `members` who is in
    these.
    """

    labels: Mapping[int, str]
    dimensions: Mapping[int, str]
    members: Mapping[int, Members] = field(default_factory=dict)


NOTHING_LIVE: Final = LiveStreams({}, {})


class NotInRing(Exception):
    """The ring does not hold what was asked for; the message says what it has."""


class TooManyRecords(NotInRing):
    """What was asked for is more than the exporter's memory is for."""


def steps_between(folder: Path, key: RankKey, begin_ns: int, end_ns: int) -> tuple[int, int] | None:
    """First and last step that ran within a stretch of time; None where no step did."""
    marks = _marks(rank_folder(folder, key), begin_ns, end_ns)
    inside = marks[(marks["start_ns"] < end_ns) & (marks["start_ns"] + marks["duration_ns"] > begin_ns)]
    return (int(inside["step"].min()), int(inside["step"].max())) if len(inside) else None


def window_of_steps(
    folder: Path,
    key: RankKey,
    first: int,
    last: int,
    *,
    routing: Mapping[str, str] | None = None,
    live: LiveStreams = NOTHING_LIVE,
) -> TraceWindow:
    """The window of whole steps, `first` to `last`; those that ran twice as they ran last.

    Args:
        routing: as in the exporter's configuration.
        live: what is known of the streams already; the rest is told from the records.

    Raises:
        NotInRing: none of the steps is there, or too much of them.
    """
    marks = _latest(_marks(rank_folder(folder, key)))
    chosen = marks[(marks["step"] >= first) & (marks["step"] <= last)]
    if not len(chosen):
        has = (
            f"it has {int(marks['step'].min())} to {int(marks['step'].max())}"
            if len(marks)
            else "it has none"
        )
        raise NotInRing(f"rank {key[1]} of {key[0]}: no step of {first} to {last} in the ring; {has}")
    begin, end = int(chosen["start_ns"].min()), int((chosen["start_ns"] + chosen["duration_ns"]).max())
    return _window(folder, key, begin, end, chosen, routing, live)


def window_of_time(
    folder: Path,
    key: RankKey,
    begin_ns: int,
    end_ns: int,
    *,
    routing: Mapping[str, str] | None = None,
    live: LiveStreams = NOTHING_LIVE,
) -> TraceWindow:
    """The window of a stretch of time, widened to whole steps where there are steps that are not too long.

    Raises:
        NotInRing: nothing is there of that time, or too much.
    """
    steps = steps_between(folder, key, begin_ns, end_ns)
    if steps is not None:
        with contextlib.suppress(TooManyRecords):
            return window_of_steps(folder, key, *steps, routing=routing, live=live)
    nothing = np.empty(0, ITERATION_DTYPE)
    window = _window(folder, key, begin_ns, end_ns, nothing, routing, live)
    if not window.events:
        raise NotInRing(f"rank {key[1]} of {key[0]}: nothing in the ring of that time")
    return window


def _marks(folder: Path, begin_ns: int = 0, end_ns: int = 1 << 62) -> Array:
    """ITERATION_DTYPE of all iterations in the segments that may hold them."""
    parts = [np.empty(0, ITERATION_DTYPE)]
    for path in _segments(folder, begin_ns, end_ns):
        for frame in read_frames(path, {FrameType.ITERATIONS}):
            records = np.frombuffer(frame.payload, ITERATION_WIRE_DTYPE)
            part = np.empty(len(records), ITERATION_DTYPE)
            part["step"] = records["step"]
            part["start_ns"] = records["end_ns"] - records["duration_ns"]
            part["duration_ns"] = records["duration_ns"]
            parts.append(part)
    return np.concatenate(parts)


def _latest(marks: Array) -> Array:
    """One mark a step: the last that ended."""
    ordered = marks[np.lexsort((marks["start_ns"], marks["step"]))]
    last: Array = ordered[np.append(np.diff(ordered["step"]) != 0, True)] if len(ordered) else ordered
    return last


def _segments(folder: Path, begin_ns: int, end_ns: int) -> Iterator[Path]:
    for path in segment_paths(folder):
        if created_ns(path) > end_ns + _LATE_NS:
            return
        try:
            if path.stat().st_mtime_ns + _CLOCKS_NS >= begin_ns:
                yield path
        except FileNotFoundError:  # dropped since
            continue


def _window(
    folder: Path,
    key: RankKey,
    begin_ns: int,
    end_ns: int,
    iterations: Array,
    routing: Mapping[str, str] | None,
    live: LiveStreams,
) -> TraceWindow:
    collected = _Collected(begin_ns, end_ns)
    for path in _segments(rank_folder(folder, key), begin_ns, end_ns):
        try:
            collected.segment(read_frames(path))
        except FileNotFoundError:  # dropped while we read
            continue
    identity = collected.identity or Identity(*key)
    texts = dict(enumerate(collected.texts))
    kernels = np.concatenate([np.empty(0, KERNEL_DTYPE), *collected.kernels])
    spans = np.concatenate([np.empty(0, SPAN_DTYPE), *collected.spans])
    table = RoutingTable(identity, dict(routing or {}))
    groups = [
        table.process_group(texts[phase], texts[group]).name
        for phase, group in zip(spans["phase_id"].tolist(), spans["group_id"].tolist(), strict=True)
    ]
    labels = dict(live.labels)
    missing = ~np.isin(stream_keys(kernels), list(labels))
    if np.any(missing):
        labels |= _unlike(label_streams(kernels[missing], texts), labels)
    dimensions = dimensions_of(kernels, texts, identity, spans, groups, routing or {}) | dict(live.dimensions)
    derived, derived_groups = collective_phases(kernels, texts, dimensions, iterations, table)
    return TraceWindow(
        identity=identity,
        begin_ns=begin_ns,
        end_ns=end_ns,
        first_step=int(iterations["step"].min()) if len(iterations) else None,
        last_step=int(iterations["step"].max()) if len(iterations) else None,
        texts=texts,
        kernels=kernels,
        streams=labels,
        operations=np.concatenate([np.empty(0, OPERATION_DTYPE), *collected.operations]),
        members=live.members,
        spans=np.concatenate([spans, derived]),
        groups=[*groups, *derived_groups],
        iterations=iterations,
        pauses=collected.pauses,
        layers=collected.layers,
        samples=collected.samples,
        drops=collected.drops,
    )


def _unlike(labels: Mapping[int, str], known: Mapping[int, str]) -> dict[int, str]:
    """Labels of streams that no published window has seen; one that is taken already is marked."""
    taken = set(known.values())
    return {key: f"{label} (new)" if label in taken else label for key, label in labels.items()}


@dataclass
class _Collected:
    """Records of one stretch of time, with names of all connections brought together."""

    begin_ns: int
    end_ns: int
    identity: Identity | None = None
    texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    kernels: list[KernelArray] = field(default_factory=list)
    operations: list[Array] = field(default_factory=list)
    spans: list[Array] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    layers: list[LayerSample] = field(default_factory=list)
    samples: list[Samples] = field(default_factory=list)
    drops: list[tuple[int, int]] = field(default_factory=list)
    records: int = 0

    def segment(self, frames: Iterable[Frame]) -> None:
        """Take the frames of one segment, whose names stand for themselves."""
        names: dict[int, dict[int, int]] = {}
        for frame in frames:
            of_connection = names.setdefault(frame.connection, {0: 0})
            match frame.type:
                case FrameType.IDENTITY:
                    if self.identity is None or frame.arrival_ns <= self.end_ns:
                        self.identity = _identity(json.loads(bytes(frame.payload)))
                case FrameType.NAMES:
                    for name_id, raw in unpack_names(frame.payload):
                        of_connection[name_id] = self._text(wire.decode_text(raw))
                case FrameType.KERNELS:
                    self._kernels(frame, of_connection)
                case FrameType.NCCL_OPERATIONS:
                    operations = np.frombuffer(frame.payload, OPERATION_DTYPE)
                    self.operations.append(self._chosen(operations))
                case FrameType.SPANS:
                    self._spans(frame, of_connection)
                case FrameType.GARBAGE_COLLECTIONS:
                    for pause in wire.GarbageCollection.unpack_all(frame.payload):
                        self._pause("gc", f"gc generation {pause.generation}", pause)
                case FrameType.COMPILATIONS:
                    by_id = {place: text for text, place in self.texts.items()}
                    for compilation in wire.Compilation.unpack_all(frame.payload):
                        compiler = by_id[of_connection.get(compilation.compiler_id, 0)]
                        self._pause("compile", compiler or "compile", compilation)
                case FrameType.LAYERS:
                    self._layers(wire.Layer.unpack_all(frame.payload), of_connection)
                case FrameType.DROPPED:
                    if self.begin_ns <= frame.arrival_ns < self.end_ns:
                        before = self.drops[-1][1] if self.drops else 0
                        lost = int.from_bytes(frame.payload, "little")
                        self.drops.append((frame.arrival_ns, before + lost))
                case FrameType.STACKS:
                    self._stacks(json.loads(bytes(frame.payload)))

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _kernels(self, frame: Frame, names: Mapping[int, int]) -> None:
        chosen = self._chosen(np.frombuffer(frame.payload, KERNEL_DTYPE))
        if len(chosen):
            chosen["name_id"] = _mapped(chosen["name_id"], names)
            self.kernels.append(chosen)

    def _spans(self, frame: Frame, names: Mapping[int, int]) -> None:
        chosen = self._chosen(np.frombuffer(frame.payload, SPAN_DTYPE))
        if len(chosen):
            chosen["phase_id"] = _mapped(chosen["phase_id"], names)
            chosen["group_id"] = _mapped(chosen["group_id"], names)
            self.spans.append(chosen)

    def _chosen(self, records: Array) -> Array:
        """A copy of those that begin within the window, and so belong to it."""
        chosen = records[(records["start_ns"] >= self.begin_ns) & (records["start_ns"] < self.end_ns)]
        self._count(len(chosen))
        return chosen

    def _count(self, more: int) -> None:
        self.records += more
        if self.records > _RECORDS:
            seconds = (self.end_ns - self.begin_ns) / 1e9
            raise TooManyRecords(
                f"more than {_RECORDS} records in these {seconds:.0f} s: ask for fewer steps, or less time"
            )

    def _pause(self, category: str, name: str, record: wire.GarbageCollection | wire.Compilation) -> None:
        if self.begin_ns <= record.start_ns < self.end_ns:
            self._count(1)
            self.pauses.append(Pause(category, name, record.start_ns, record.duration_ns))

    def _layers(self, records: Iterable[wire.Layer], names: Mapping[int, int]) -> None:
        by_id = {place: text for text, place in self.texts.items()}
        for one in records:
            if self.begin_ns <= one.start_ns < self.end_ns:
                self._count(1)
                kind, source = by_id[names.get(one.layer_id, 0)], wire.Source(one.source)
                layer = kind, one.index, one.microbatch, one.step, source
                self.layers.append(LayerSample(*layer, one.start_ns, one.duration_ns))

    def _stacks(self, content: dict[str, Any]) -> None:
        begin, end = int(content["begin_ns"]), int(content["end_ns"])
        if begin < self.end_ns and end > self.begin_ns:
            counts = {(thread, tuple(frames)): int(count) for thread, frames, count in content["stacks"]}
            self._count(sum(counts.values()))  # each becomes one of its own in the file
            self.samples.append(Samples(begin, end, counts))


def _identity(content: dict[str, Any]) -> Identity:
    """Fields that this version knows: another version of the exporter may have written the segment."""
    known = {field.name for field in dataclasses.fields(Identity)}
    return Identity(**{name: value for name, value in content.items() if name in known})


def _mapped(ids: NDArray[np.uint32], names: Mapping[int, int]) -> NDArray[np.uint32]:
    distinct, inverse = np.unique(ids, return_inverse=True)
    return np.array([names.get(int(name_id), 0) for name_id in distinct], np.uint32)[inverse]
