"""The small part of a trace by the protos of the `perfetto` package: descriptors, names, marks, samples.

A file is a series of packets that each hold a compressed part of the trace: 24 bytes a kernel instead of 90.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from argus_core.varint import varint
from argus_exporter.errors import ArgusExporterError
from argus_exporter.traces import kernel_packets
from argus_exporter.traces.kernel_packets import BEGIN, END, INSTANT

REALTIME: Final = 1
"""Perfetto's id of the clock of Unix time."""
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_BUNDLE_BYTES: Final = 1 << 20
"""Bytes of packets that are compressed together: what a reader must hold at once."""
_COMPRESSION: Final = 2
"""zlib level. 1 to 6 give 24 to 21 bytes a kernel; 3 and 5 on cost twice the time of 2 (bench/traces)."""
_COMPRESSED_PACKETS: Final = varint(50 << 3 | 2)
_TRACE_PACKET: Final = varint(1 << 3 | 2)
_SEQUENCES_A_RANK: Final = 256

Annotation = tuple[str, str | int]
Times = NDArray[np.int64]


def require_protos() -> None:
    """Say now that traces cannot be encoded; the messages are loaded (20 MB) with the first trace.

    Raises:
        ArgusExporterError: the extra is not installed.
    """
    if find_spec("perfetto") is None:
        raise ArgusExporterError(
            "traces need the package perfetto: install argus-for-prometheus[trace], or set "
            "traces.enabled: false"
        )


def protos() -> Any:
    """The generated module of Perfetto's messages.

    Raises:
        ArgusExporterError: the extra is not installed.
    """
    require_protos()
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    return perfetto_trace_pb2


class TraceWriter:
    """Writes one rank's file. The same calls give the same bytes.

    Args:
        target: where the file goes.
        training_job: with the rank and a track's name, makes ids that differ between all files of a job, so
            that files of several ranks can be opened as one.
        rank: Perfetto's process id.
    """

    def __init__(self, target: BinaryIO, training_job: str, rank: int) -> None:
        self._target = target
        self._messages = protos()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._scope = f"{training_job}\0{rank}\0"
        self.rank = rank
        self._sequences = 0
        self.process_track = self._uuid("")

    def begin(self, process_name: str) -> None:
        """First packets: times are Unix times, and the name of the process."""
        packet = self._messages.TracePacket()
        packet.clock_snapshot.primary_trace_clock = REALTIME
        clock = packet.clock_snapshot.clocks.add()
        # The same in every file: where files are joined, a clock must not go back.
        clock.clock_id, clock.timestamp = REALTIME, 1
        self.add(packet)
        packet = self._messages.TracePacket()
        packet.track_descriptor.uuid = self.process_track
        packet.track_descriptor.process.pid = self.rank
        packet.track_descriptor.process.process_name = process_name
        self.add(packet)

    def thread(self, name: str) -> Thread:
        """A new thread of the process, with a packet sequence of its own."""
        number = self._next_sequence()
        uuid = self._uuid(name)
        packet = self._messages.TracePacket()
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.parent_uuid = uuid, self.process_track
        descriptor.thread.pid, descriptor.thread.tid = self.rank, number
        descriptor.thread.thread_name = name
        self.add(packet)
        return Thread(self, self._messages, number, uuid)

    def counter(self, name: str, unit: str, times: Times, values: Times) -> None:
        """A counter of the process: its value from each time (Unix ns, ascending) on."""
        uuid = self._uuid(f"counter {name}")
        packet = self._messages.TracePacket()
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, self.process_track, name
        descriptor.counter.unit_name = unit
        self.add(packet)
        number = self._next_sequence()
        Thread(self, self._messages, number, uuid).start()
        rows = kernel_packets.counts(number, times.astype(np.uint64), values.astype(np.uint64))
        self.add_packed(rows.tobytes())

    def add(self, packet: Any) -> None:
        """One packet."""
        content = packet.SerializeToString()
        self.add_packed(_TRACE_PACKET + varint(len(content)) + content)

    def add_packed(self, packets: bytes) -> None:
        """Whole packets, each with its tag and length. A large number of them is compressed by itself."""
        self._pending.append(packets)
        self._pending_bytes += len(packets)
        if self._pending_bytes >= _BUNDLE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        if not self._pending:
            return
        compressed = zlib.compress(b"".join(self._pending), _COMPRESSION)
        self._pending, self._pending_bytes = [], 0
        content = _COMPRESSED_PACKETS + varint(len(compressed)) + compressed
        self._target.write(_TRACE_PACKET + varint(len(content)) + content)

    def _next_sequence(self) -> int:
        self._sequences += 1
        return self.rank * _SEQUENCES_A_RANK + self._sequences & 0x7FFFFFFF

    def _uuid(self, name: str) -> int:
        digest = hashlib.sha256((self._scope + name).encode("utf-8", "replace")).digest()
        return int.from_bytes(digest[:8], "little") or 1


class Thread:
    """A track of slices and the packet sequence that writes it: names are interned once a thread."""

    def __init__(self, writer: TraceWriter, messages: Any, number: int, uuid: int) -> None:
        self.writer = writer
        self.number = number
        self._messages = messages
        self._uuid = uuid
        self._interned: dict[tuple[str, str], int] = {}

    def start(
        self,
        names: Sequence[str] = (),
        categories: Sequence[str] = (),
        annotations: Sequence[str] = (),
        texts: Sequence[str] = (),
    ) -> None:
        """Defaults of the sequence, and names known beforehand: their ids are 1, 2, ... in each table."""
        packet = self._packet(None)
        packet.sequence_flags = _STATE_CLEARED
        defaults = packet.trace_packet_defaults
        defaults.timestamp_clock_id = REALTIME
        defaults.track_event_defaults.track_uuid = self._uuid
        for table, entries in (
            ("event_names", names),
            ("event_categories", categories),
            ("debug_annotation_names", annotations),
            ("debug_annotation_string_values", texts),
        ):
            for entry in entries:
                self._intern(packet, table, entry)
        self.writer.add(packet)

    def begin(self, time_ns: int, category: str, name: str, annotations: Sequence[Annotation] = ()) -> None:
        """A slice begins."""
        self.writer.add(self._event(BEGIN, time_ns, category, name, annotations))

    def end(self, time_ns: int) -> None:
        """The slice that began last ends."""
        packet = self._packet(time_ns)
        packet.track_event.type = END
        self.writer.add(packet)

    def instant(self, time_ns: int, category: str, name: str, annotations: Sequence[Annotation] = ()) -> None:
        """Something without duration."""
        self.writer.add(self._event(INSTANT, time_ns, category, name, annotations))

    def stacks(self, frames_of: Mapping[int, tuple[str, ...]]) -> None:
        """Call stacks by their id, outermost frame first, for `sample`."""
        packet = self._packet(None)
        packet.sequence_flags = _NEEDS_STATE
        data = packet.interned_data
        path = data.mapping_paths.add()
        path.iid, path.str = 1, b"python"  # a frame lies in a mapped file, or is refused
        mapping = data.mappings.add()
        mapping.iid, mapping.path_string_ids[:] = 1, [1]
        for iid, frames in frames_of.items():
            stack = data.callstacks.add()
            stack.iid = iid
            for frame in frames:
                known = self._interned.get(("frames", frame))
                if known is None:
                    known = self._interned["frames", frame] = len(self._interned) + 1
                    function = data.function_names.add()
                    function.iid, function.str = known, frame.encode("utf-8", "replace")
                    entry = data.frames.add()
                    entry.iid, entry.function_name_id, entry.mapping_id = known, known, 1
                stack.frame_ids.append(known)
        self.writer.add(packet)

    def sample(self, time_ns: int, stack: int) -> None:
        """The thread was seen in a call stack."""
        packet = self._packet(time_ns)
        sample = packet.perf_sample
        sample.cpu, sample.pid, sample.tid, sample.callstack_iid = 0, self.writer.rank, self.number, stack
        self.writer.add(packet)

    def _packet(self, time_ns: int | None) -> Any:
        packet = self._messages.TracePacket()
        if time_ns is not None:
            packet.timestamp = time_ns
        packet.trusted_packet_sequence_id = self.number
        return packet

    def _event(
        self, type_: int, time_ns: int, category: str, name: str, annotations: Sequence[Annotation]
    ) -> Any:
        packet = self._packet(time_ns)
        packet.sequence_flags = _NEEDS_STATE
        event = packet.track_event
        event.type = type_
        event.name_iid = self._intern(packet, "event_names", name)
        event.category_iids.append(self._intern(packet, "event_categories", category))
        for key, value in annotations:
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._intern(packet, "debug_annotation_names", key)
            if isinstance(value, str):
                text = self._intern(packet, "debug_annotation_string_values", value)
                annotation.string_value_iid = text
            else:
                annotation.int_value = value
        return packet

    def _intern(self, packet: Any, table: str, text: str) -> int:
        known = self._interned.get((table, text))
        if known is None:
            entries = getattr(packet.interned_data, table)
            known = sum(name == table for name, _ in self._interned) + 1
            self._interned[table, text] = known
            entry = entries.add()
            entry.iid = known
            if table == "debug_annotation_string_values":
                entry.str = text.encode("utf-8", "replace")
            else:
                entry.name = text
        return known
