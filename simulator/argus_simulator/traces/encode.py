"""Write simulated timelines as Perfetto files, one a rank, in the form that docs/traces.md describes.

The clock of each host is off by a constant and drifts; nothing else of how the timeline came about gets in.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from argus_core.kernel_names import kernel_id
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.timeline import Done, RankTimeline

EPOCH_NS = 1_795_000_000_000_000_000
"""When simulated time begins, Unix ns."""
_SEQUENCE = 1


@dataclass(frozen=True)
class Clock:
    """A host's clock: true seconds to Unix ns."""

    offset_s: float = 0.0
    drift: float = 0.0

    def ns(self, seconds: float) -> int:
        return EPOCH_NS + round((seconds * (1.0 + self.drift) + self.offset_s) * 1e9)


def clocks_of(layout: Layout, seed: int) -> dict[str, Clock]:
    """A clock for each host: off by up to 10 ms, drifting by up to 20 ppm."""
    random = np.random.Generator(np.random.Philox(key=[seed & 0xFFFFFFFF, 77]))
    hosts = sorted({layout.host(rank) for rank in range(layout.ranks)})
    return {host: Clock(float(random.uniform(-0.01, 0.01)), float(random.uniform(0, 2e-5))) for host in hosts}


@dataclass(frozen=True)
class _Slice:
    category: str
    name: str
    start: int
    end: int
    annotations: tuple[tuple[str, str | int], ...] = ()
    flow: int = 0
    ends_flow: bool = False


class _Writer:
    """Packets of one sequence, with interned names."""

    def __init__(self) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        self.trace: Any = perfetto_trace_pb2.Trace()
        self._track_event: Any = perfetto_trace_pb2.TrackEvent
        self._interned: dict[tuple[str, str], int] = {}
        first = self._packet(0)
        first.sequence_flags = 1
        first.ClearField("timestamp")

    def _packet(self, timestamp: int) -> Any:
        packet = self.trace.packet.add()
        packet.timestamp = timestamp
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _id(self, packet: Any, table: str, text: str) -> int:
        key = (table, text)
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = len(self._interned) + 1
            entry = getattr(packet.interned_data, table).add()
            entry.iid = found
            if table == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return found

    def process(self, uuid: int, pid: int, name: str) -> None:
        packet = self._packet(0)
        packet.ClearField("timestamp")
        packet.track_descriptor.uuid = uuid
        packet.track_descriptor.process.pid = pid
        packet.track_descriptor.process.process_name = name

    def thread(self, uuid: int, parent: int, pid: int, name: str) -> None:
        packet = self._packet(0)
        packet.ClearField("timestamp")
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.parent_uuid = uuid, parent
        descriptor.thread.pid, descriptor.thread.tid, descriptor.thread.thread_name = pid, uuid, name

    def track(self, uuid: int, slices: Sequence[_Slice]) -> None:
        """Slices that nest, in any order."""
        opened: list[_Slice] = []
        for one in sorted(slices, key=lambda one: (one.start, -one.end)):
            while opened and opened[-1].end <= one.start:
                self._close(uuid, opened.pop())
            instant = one.category == "launch"
            self._event(uuid, 3 if instant else 1, one.start, one)
            if not instant:
                opened.append(one)
        while opened:
            self._close(uuid, opened.pop())

    def instant(self, uuid: int, one: _Slice) -> None:
        self._event(uuid, 3, one.start, one)

    def _close(self, uuid: int, one: _Slice) -> None:
        packet = self._packet(one.end)
        packet.sequence_flags = 2
        packet.track_event.type = 2
        packet.track_event.track_uuid = uuid

    def _event(self, uuid: int, kind: int, timestamp: int, one: _Slice) -> None:
        packet = self._packet(timestamp)
        packet.sequence_flags = 2
        event = packet.track_event
        event.type, event.track_uuid = kind, uuid
        event.name_iid = self._id(packet, "event_names", one.name)
        event.category_iids.append(self._id(packet, "event_categories", one.category))
        for name, value in one.annotations:
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._id(packet, "debug_annotation_names", name)
            if isinstance(value, str):
                annotation.string_value_iid = self._id(packet, "debug_annotation_string_values", value)
            else:
                annotation.int_value = value
        if one.flow:
            (event.terminating_flow_ids if one.ends_flow else event.flow_ids).append(one.flow)


def encode(layout: Layout, timeline: RankTimeline, clock: Clock, job: str = "simulated") -> bytes:
    """The Perfetto file of one rank."""
    rank = timeline.rank
    place = layout.place(rank)
    writer = _Writer()
    process = 1
    coordinates = " ".join(f"{name}{place[name]}" for name in ("dp", "tp", "pp", "ep") if name in place)
    writer.process(process, rank, f"rank {rank} ({coordinates})")
    steps = [span.step for span in timeline.host if span.category == "iteration"]
    begin = clock.ns(min(span.start for span in timeline.host))
    end = clock.ns(max(span.end for span in timeline.host))
    window: list[tuple[str, str | int]] = [
        ("training_job", job), ("rank", rank), ("node", layout.host(rank)), ("gpu_uuid", f"GPU-sim-{rank}"),
        *((name, place[name]) for name in ("dp", "tp", "pp", "ep") if name in place),
        ("role", layout.role(rank)), ("world_size", layout.ranks), ("first_step", min(steps)),
        ("last_step", max(steps)), ("start_ns", begin), ("end_ns", end), ("dropped", 0),
    ]  # fmt: skip
    threads = _threads(layout, timeline, clock)
    for number, (name, slices) in enumerate(threads.items(), start=2):
        writer.thread(number, process, rank, name)
        writer.track(number, slices)
    writer.instant(process, _Slice("argus", "window", end, end, tuple(window)))
    data: bytes = writer.trace.SerializeToString()
    return data


_short = functools.cache(kernel_id)
"""A simulated job has few names, each thousands of times."""


def _threads(layout: Layout, timeline: RankTimeline, clock: Clock) -> dict[str, list[_Slice]]:
    threads: dict[str, list[_Slice]] = {
        "phases host": [],
        "phases event": [],
        "launches": [],
        "collector": [],
    }
    compared = layout.group(timeline.rank, "dp")
    for span in timeline.host:
        start, end = clock.ns(span.start), clock.ns(span.end)
        if span.category == "data":
            phase = _phase("data", start, end, "host", compared, "host", span.step, -1)
            threads["phases host"].append(phase)
        elif span.category == "iteration":
            step = (("step", span.step),)
            threads["phases host"].append(_Slice("iteration", f"step {span.step}", start, end, step))
        else:
            threads["collector"].append(_Slice(span.category, span.category, start, end))
    for name, done in _compute_phases(timeline.done):
        first, last = done[0], done[-1]
        threads["phases event"].append(
            _phase(
                name, clock.ns(first.start), clock.ns(last.end), "compute", compared, "event",
                first.step, first.operation.microbatch,
            )
        )  # fmt: skip
    for number, one in enumerate(timeline.done, start=1):
        operation = one.operation
        start, end = clock.ns(one.start), clock.ns(one.end)
        annotations = (
            ("kernel", _short(operation.name)),
            ("bytes", 1 << 20 if operation.kind == "comm" else 0),
        )
        category = "memcpy" if operation.kind == "memory" else "kernel"
        flow = timeline.rank << 32 | number
        launch = clock.ns(one.launch)
        threads["launches"].append(_Slice("launch", "launch", launch, launch, (), flow))
        threads.setdefault(f"stream {operation.stream}", []).append(
            _Slice(category, operation.name, start, end, annotations, flow, ends_flow=True)
        )
        if operation.kind == "comm":
            threads.setdefault(f"phases kernel {operation.stream}", []).append(
                _phase(
                    operation.phase, start, end, "comm", operation.group, "kernel", one.step,
                    operation.microbatch,
                )
            )  # fmt: skip
    return {name: slices for name, slices in threads.items() if slices}


def _phase(
    name: str, start: int, end: int, kind: str, group: str, source: str, step: int, microbatch: int
) -> _Slice:
    annotations: list[tuple[str, str | int]] = [
        ("kind", kind), ("group", group), ("source", source), ("step", step)
    ]  # fmt: skip
    if microbatch >= 0:
        annotations.append(("microbatch", microbatch))
    return _Slice("phase", name, start, end, tuple(annotations))


def _compute_phases(done: Iterable[Done]) -> Iterable[tuple[str, list[Done]]]:
    """Runs of computation with one phase name and microbatch, in order of launch."""
    run: list[Done] = []
    for one in done:
        operation = one.operation
        if operation.kind != "compute":
            continue
        if run and (run[0].operation.phase, run[0].operation.microbatch, run[0].step) != (
            operation.phase, operation.microbatch, one.step,
        ):  # fmt: skip
            yield run[0].operation.phase, run
            run = []
        run.append(one)
    if run:
        yield run[0].operation.phase, run
