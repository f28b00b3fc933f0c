"""A Perfetto file to the tables of one rank.

Understands what the protocol allows for track events: compressed packets, interned and literal names,
defaults of a sequence, incremental clocks, slices that begin and end or that carry their duration (legacy
phase X), flows, instants, and callstacks of samples and events. Counters and other sources are passed over.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from argus_traces.errors import TraceDamaged
from argus_traces.packets import packet_batches
from argus_traces.tables import SAMPLE, SLICE, RankTrace, Window

_BEGIN, _END, _INSTANT = 1, 2, 3
_STATE_CLEARED = 1
_TEXTS: Final = ("kind", "group", "source", "kernel", "list")
_NUMBERS: Final = ("step", "microbatch", "bytes", "communicator", "sequence")
_COORDINATES: Final = ("dp", "tp", "pp", "ep")
_LANE: Final = re.compile(r" #\d+$")
"""Slices that cross are spread over threads `NAME`, `NAME #2`, ..."""
_NOTHING: Final = dict.fromkeys((*_TEXTS, *_NUMBERS), -1)
_FIELDS: Final = tuple(SLICE.names or ())


def read(chunks: Iterable[bytes], source: str) -> RankTrace:
    """The trace in a stream of bytes; `source` names it in messages.

    Raises:
        TraceDamaged: it is not a whole trace of ARGUS.
    """
    reader = _Reader(source)
    for batch in packet_batches(chunks, source):
        for packet in batch.packet:
            reader.take(packet)
    return reader.finish()


class _Sequence:
    """Interned strings and defaults of one packet sequence."""

    def __init__(self) -> None:
        self.names: dict[int, int] = {}
        self.categories: dict[int, int] = {}
        self.annotation_names: dict[int, str] = {}
        self.annotation_strings: dict[int, int] = {}
        self.functions: dict[int, str] = {}
        self.frames: dict[int, int] = {}
        self.stacks: dict[int, tuple[int, ...]] = {}
        self.track = 0
        self.clock = 0
        self.incremental: dict[int, list[int]] = {}
        """Clock id to [unit in ns, last time in ns]."""


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._strings: dict[str, int] = {}
        self._texts: list[str] = []
        self._sequences: dict[int, _Sequence] = {}
        self._threads: dict[int, str] = {}
        self._thread_tracks: dict[int, int] = {}
        self._tracks: dict[int, int] = {}
        self._track_uuids: list[int] = []
        self._open: dict[int, list[int]] = {}
        self._columns = {name: array("Q" if name == "flow" else "q") for name in _FIELDS}
        self._samples: list[tuple[int, int, int, float]] = []
        self._window: dict[str, Any] | None = None

    def take(self, packet: Any) -> None:
        """Use one packet."""
        number = packet.trusted_packet_sequence_id
        sequence = self._sequences.get(number)
        if sequence is None or packet.sequence_flags & _STATE_CLEARED:
            sequence = self._sequences[number] = _Sequence()
        if packet.HasField("interned_data"):
            self._intern(sequence, packet.interned_data)
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            sequence.track = defaults.track_event_defaults.track_uuid
            sequence.clock = defaults.timestamp_clock_id
        if packet.HasField("track_event"):
            self._event(sequence, packet)
        elif packet.HasField("perf_sample"):
            stack = self._stack(sequence, packet.perf_sample.callstack_iid)
            track = self._track(self._thread_tracks.get(packet.perf_sample.tid, 0))
            self._samples.append((self._time(sequence, packet), track, stack, 1.0))
        elif packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            name = descriptor.name or descriptor.static_name
            if descriptor.HasField("thread"):
                name = descriptor.thread.thread_name or name
                self._thread_tracks[descriptor.thread.tid] = descriptor.uuid
            self._threads[descriptor.uuid] = name
        elif packet.HasField("clock_snapshot"):
            for clock in packet.clock_snapshot.clocks:
                if clock.is_incremental:
                    unit = clock.unit_multiplier_ns or 1
                    sequence.incremental[clock.clock_id] = [unit, clock.timestamp * unit]

    def finish(self) -> RankTrace:
        """The tables, once all packets were taken."""
        if self._window is None:
            raise TraceDamaged(
                f"{self._source} has no event `window`, so nobody knows whose it is: it was cut off, or is "
                "no trace of ARGUS"
            )
        window = _window(self._window)
        unfinished = [row for rows in self._open.values() for row in rows]
        for row in unfinished:
            self._columns["end_ns"][row] = max(window.end_ns, self._columns["start_ns"][row])
        slices = np.empty(len(self._columns["start_ns"]), SLICE)
        for name in _FIELDS:
            slices[name] = np.frombuffer(
                self._columns[name], np.uint64 if name == "flow" else np.int64
            ) if len(slices) else 0  # fmt: skip
        samples = np.array(self._samples, SAMPLE)
        return RankTrace(
            self._source,
            window,
            tuple(self._texts),
            tuple(_LANE.sub("", self._threads.get(uuid, "")) for uuid in self._track_uuids),
            slices[np.argsort(slices["start_ns"], kind="stable")],
            samples[np.argsort(samples["time_ns"], kind="stable")],
            len(unfinished),
        )

    # -- parts of packets -----------------------------------------------------------------------------------

    def _string(self, text: str) -> int:
        found = self._strings.get(text)
        if found is None:
            found = self._strings[text] = len(self._texts)
            self._texts.append(text)
        return found

    def _intern(self, sequence: _Sequence, data: Any) -> None:
        for one in data.event_names:
            sequence.names[one.iid] = self._string(one.name)
        for one in data.event_categories:
            sequence.categories[one.iid] = self._string(one.name)
        for one in data.debug_annotation_names:
            sequence.annotation_names[one.iid] = one.name
        for one in data.debug_annotation_string_values:
            sequence.annotation_strings[one.iid] = self._string(one.str.decode("utf-8", "replace"))
        for one in data.function_names:
            sequence.functions[one.iid] = one.str.decode("utf-8", "replace")
        for one in data.frames:
            sequence.frames[one.iid] = one.function_name_id
        for one in data.callstacks:
            sequence.stacks[one.iid] = tuple(one.frame_ids)

    def _time(self, sequence: _Sequence, packet: Any) -> int:
        clock = packet.timestamp_clock_id or sequence.clock
        state = sequence.incremental.get(clock)
        if state is None:
            time: int = packet.timestamp
            return time
        state[1] += packet.timestamp * state[0]
        return state[1]

    def _track(self, uuid: int) -> int:
        found = self._tracks.get(uuid)
        if found is None:
            found = self._tracks[uuid] = len(self._track_uuids)
            self._track_uuids.append(uuid)
        return found

    def _event(self, sequence: _Sequence, packet: Any) -> None:
        event = packet.track_event
        time = self._time(sequence, packet)
        uuid = event.track_uuid or sequence.track
        kind = event.type
        if kind == _BEGIN:
            self._open.setdefault(uuid, []).append(self._row(sequence, event, uuid, time, time))
        elif kind == _END:
            opened = self._open.get(uuid)
            if not opened:
                raise TraceDamaged(
                    f"{self._source} is damaged: a slice of thread {self._threads.get(uuid, uuid)!r} ends at "
                    f"{time} ns without a begin"
                )
            self._columns["end_ns"][opened.pop()] = time
        elif event.HasField("legacy_event") and event.legacy_event.phase == ord("X"):
            self._row(sequence, event, uuid, time, time + event.legacy_event.duration_us * 1000)
        elif kind == _INSTANT:
            self._instant(sequence, event, uuid, time)

    def _row(self, sequence: _Sequence, event: Any, uuid: int, start: int, end: int) -> int:
        values = dict(_NOTHING)
        for annotation in event.debug_annotations:
            name = sequence.annotation_names.get(annotation.name_iid) or annotation.name
            if name not in values:
                continue
            value = self._value(sequence, annotation)
            if isinstance(value, str):
                values[name] = self._string(value) if name in _TEXTS else -1
            elif isinstance(value, int) and name in _NUMBERS:
                values[name] = value
        columns = self._columns
        columns["start_ns"].append(start)
        columns["end_ns"].append(end)
        iid = event.name_iid
        columns["name"].append(self._interned(sequence.names, iid) if iid else self._string(event.name))
        columns["track"].append(self._track(uuid))
        columns["category"].append(self._category(sequence, event))
        for name, number in values.items():
            columns[name].append(number)
        flows = event.flow_ids or event.terminating_flow_ids
        columns["flow"].append(flows[0] if flows else 0)
        return len(columns["start_ns"]) - 1

    def _interned(self, table: dict[int, int], iid: int) -> int:
        try:
            return table[iid]
        except KeyError:
            raise TraceDamaged(
                f"{self._source} is damaged: it uses interned string {iid}, which it does not define"
            ) from None

    def _category(self, sequence: _Sequence, event: Any) -> int:
        for iid in event.category_iids:
            return self._interned(sequence.categories, iid)
        return self._string(event.categories[0]) if event.categories else -1

    def _value(self, sequence: _Sequence, annotation: Any) -> Any:
        which = annotation.WhichOneof("value")
        if which == "string_value_iid":
            position = self._interned(sequence.annotation_strings, annotation.string_value_iid)
            return self._texts[position]
        return getattr(annotation, which) if which else None

    def _stack(self, sequence: _Sequence, iid: int) -> int:
        frames = sequence.stacks.get(iid, ())
        names = (sequence.functions.get(sequence.frames.get(frame, 0), "?") for frame in frames)
        return self._string(";".join(names))

    def _instant(self, sequence: _Sequence, event: Any, uuid: int, time: int) -> None:
        if event.callstack_iid:
            weight = float(event.callstack_weight or 1)
            stack = self._stack(sequence, event.callstack_iid)
            self._samples.append((time, self._track(uuid), stack, weight))
            return
        category = self._category(sequence, event)
        iid = event.name_iid
        name = self._interned(sequence.names, iid) if iid else self._string(event.name)
        if category == self._strings.get("argus") and name == self._strings.get("window"):
            self._window = {
                sequence.annotation_names.get(one.name_iid) or one.name: self._value(sequence, one)
                for one in event.debug_annotations
            }
        else:  # such as a launch, whose end is not known
            self._row(sequence, event, uuid, time, time)


def _window(found: dict[str, Any]) -> Window:
    def text(name: str) -> str:
        return str(found.get(name) or "")

    def number(name: str, missing: int) -> int:
        value = found.get(name, missing)
        return value if isinstance(value, int) else missing

    return Window(
        training_job=text("training_job"),
        rank=number("rank", -1),
        node=text("node"),
        gpu_uuid=text("gpu_uuid"),
        role=text("role"),
        world_size=number("world_size", -1),
        coordinates={name: number(name, -1) for name in _COORDINATES if number(name, -1) >= 0},
        sizes={name: number(f"{name}_size", -1) for name in _COORDINATES if number(f"{name}_size", -1) > 0},
        first_step=number("first_step", -1),
        last_step=number("last_step", -1),
        start_ns=number("start_ns", 0),
        end_ns=number("end_ns", 0),
        dropped=number("dropped", 0),
    )
