"""All ranks in one Perfetto file on one clock, with the chain of blame on a track of its own.

The files of the ranks are read again packet by packet and go out with their times shifted; ids of sequences,
tracks and flows are kept apart by rank. Flow arrows lead from cause to effect along the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from argus_core.kernel_names import kernel_id
from argus_traces.blame import Blame
from argus_traces.packets import packet_batches

_TRACK, _PROCESS = 0xA2605, 0xA2604
_PID: Final = 1_000_000_000
"""Above every rank: the process of the chain."""
_RANK_SHIFT: Final = 44
_FLOW: Final = 1 << 62
_SEQUENCES_A_FILE: Final = 1 << 20
# Links shorter than this share of the chain are too small to be seen and would be most of the file.
_LEAST_SHARE: Final = 1e-5
_BEGIN, _END = 1, 2


def write_marked(
    target: BinaryIO, blame: Blame, sources: Sequence[tuple[str, Callable[[], Iterable[bytes]]]]
) -> None:
    """Write the file; `sources`: name and bytes of each rank's file, in the order of the traces."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    message: Any = perfetto_trace_pb2.Trace
    for rank, (name, chunks) in enumerate(sources):
        for batch in packet_batches(chunks(), name):
            out = message()
            out.packet.extend(_moved(batch.packet, blame, rank))
            target.write(out.SerializeToString())
    target.write(_chain(message(), blame).SerializeToString())


def _moved(packets: Iterable[Any], blame: Blame, rank: int) -> Iterator[Any]:
    """Packets with ids of their own rank and times of the common clock."""
    salt = (rank + 1) << _RANK_SHIFT
    for packet in packets:
        packet.trusted_packet_sequence_id = (
            rank * _SEQUENCES_A_FILE + packet.trusted_packet_sequence_id % (_SEQUENCES_A_FILE) + 1
        )
        if packet.timestamp:
            packet.timestamp = int(blame.alignment.common(rank, np.array([packet.timestamp]))[0])
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            descriptor.uuid ^= salt
            if descriptor.parent_uuid:
                descriptor.parent_uuid ^= salt
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults.track_event_defaults
            if defaults.track_uuid:
                defaults.track_uuid ^= salt
        if packet.HasField("track_event"):
            event = packet.track_event
            if event.track_uuid:
                event.track_uuid ^= salt
            for ids in (event.flow_ids, event.terminating_flow_ids):
                ids[:] = [one ^ salt for one in ids]
        yield packet


def _chain(out: Any, blame: Blame) -> Any:
    of = blame.model
    _descriptors(out)
    roots = {number: finding for finding in reversed(blame.findings) for number in finding.links}
    least = _LEAST_SHARE * blame.seconds * 1e9
    flow = 0
    for number in range(len(blame.links) - 1, -1, -1):
        link = blame.links[number]
        if link.end - link.begin < max(least, 1.0):
            continue
        operation = of.operations[link.operation]
        begin = _event(out, _BEGIN, link.begin)
        event = begin.track_event
        finding = roots.get(number)
        blamed = finding is not None and link.excess > 0
        event.categories.append("blamed" if blamed else "chain")
        name = kernel_id(of.fleet.strings[operation["name"]])
        what = of.exchanges.all[link.exchange].label if link.kind == "exchange" else name
        event.name = f"rank {of.fleet.traces[link.rank].window.rank} {link.kind}: {what}"
        _annotate(event, "excess_ms", round(link.excess / 1e6, 3))
        _annotate(event, "expected_ms", round(link.expected / 1e6, 3))
        _annotate(event, "step", int(operation["step"]))
        if finding is not None and blamed:
            _annotate(event, "cause", finding.cause)
        if flow:
            event.terminating_flow_ids.append(_FLOW + flow)
        flow += 1
        event.flow_ids.append(_FLOW + flow)
        _event(out, _END, link.end)
    return out


def _descriptors(out: Any) -> None:
    process = out.packet.add().track_descriptor
    process.uuid, process.process.pid = _PROCESS, _PID
    process.process.process_name = "ARGUS: what waited for what"
    thread = out.packet.add().track_descriptor
    thread.uuid, thread.parent_uuid = _TRACK, _PROCESS
    thread.thread.pid, thread.thread.tid, thread.thread.thread_name = _PID, _PID, "chain of blame"


def _event(out: Any, kind: int, time: int) -> Any:
    packet = out.packet.add()
    packet.timestamp, packet.trusted_packet_sequence_id = time, 0x7FFFFFFF
    packet.track_event.type, packet.track_event.track_uuid = kind, _TRACK
    return packet


def _annotate(event: Any, name: str, value: float | int | str) -> None:
    annotation = event.debug_annotations.add()
    annotation.name = name
    if isinstance(value, str):
        annotation.string_value = value
    elif isinstance(value, int):
        annotation.int_value = value
    else:
        annotation.double_value = value
