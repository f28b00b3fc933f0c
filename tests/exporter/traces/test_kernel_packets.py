"""The packets that numpy builds are those that the protos of the perfetto package describe."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from argus_exporter.traces import kernel_packets

U64 = st.integers(0, 2**64 - 1)
IID = st.integers(1, 20_000)
SLICE = st.tuples(U64, U64, IID, IID, IID, U64, U64)


def parsed(packed: bytes):
    """Packets as messages, written anew: padding of numbers is gone."""
    return [packet.SerializeToString() for packet in protos.Trace.FromString(packed).packet]


def column(rows, place: int) -> np.ndarray:
    return np.array([row[place] for row in rows], np.uint64)


def slice_oracle(sequence, row, *, with_bytes: bool, with_flow: bool):
    """One slice by proto objects, the plain way."""
    start, end, name, category, text, size, flow = row
    begin = protos.TracePacket(timestamp=start, trusted_packet_sequence_id=sequence)
    event = begin.track_event
    event.type, event.name_iid = protos.TrackEvent.TYPE_SLICE_BEGIN, name
    event.category_iids.append(category)
    annotation = event.debug_annotations.add()
    annotation.name_iid, annotation.string_value_iid = 1, text
    if with_bytes:
        annotation = event.debug_annotations.add()
        annotation.name_iid, annotation.uint_value = 2, size
    if with_flow:
        event.terminating_flow_ids.append(flow)
    finish = protos.TracePacket(timestamp=end, trusted_packet_sequence_id=sequence)
    finish.track_event.type = protos.TrackEvent.TYPE_SLICE_END
    return [begin.SerializeToString(), finish.SerializeToString()]


@settings(max_examples=60)
@given(rows=st.lists(SLICE, min_size=1, max_size=20), sequence=st.integers(1, 2**31), flags=st.integers(0, 3))
def test_slices_equal_the_proto_path(rows, sequence, flags) -> None:
    """Any number of 64 bits, any interned id, with and without flow and bytes."""
    with_bytes, with_flow = bool(flags & 1), bool(flags & 2)
    packed = kernel_packets.slices(
        sequence,
        column(rows, 0),
        column(rows, 1),
        column(rows, 2),
        column(rows, 3),
        texts=[(1, column(rows, 4))],
        numbers=[(2, column(rows, 5))] if with_bytes else [],
        terminates=column(rows, 6) if with_flow else None,
    ).tobytes()
    expected = [
        packet
        for row in rows
        for packet in slice_oracle(sequence, row, with_bytes=with_bytes, with_flow=with_flow)
    ]
    assert parsed(packed) == expected


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(U64, U64), min_size=1, max_size=20), sequence=st.integers(1, 2**31))
def test_launches_equal_the_proto_path(rows, sequence) -> None:
    """Instants that begin a flow."""
    packed = kernel_packets.launches(sequence, column(rows, 0), 4, 5, column(rows, 1)).tobytes()
    expected = []
    for time, flow in rows:
        packet = protos.TracePacket(timestamp=time, trusted_packet_sequence_id=sequence)
        event = packet.track_event
        event.type, event.name_iid = protos.TrackEvent.TYPE_INSTANT, 4
        event.category_iids.append(5)
        event.flow_ids.append(flow)
        expected.append(packet.SerializeToString())
    assert parsed(packed) == expected


@given(rows=st.lists(st.tuples(U64, st.integers(0, 2**63 - 1)), min_size=1, max_size=20))
def test_counters_equal_the_proto_path(rows) -> None:
    """Values of 63 bits."""
    packed = kernel_packets.counts(9, column(rows, 0), column(rows, 1)).tobytes()
    expected = []
    for time, value in rows:
        packet = protos.TracePacket(timestamp=time, trusted_packet_sequence_id=9)
        packet.track_event.type = protos.TrackEvent.TYPE_COUNTER
        packet.track_event.counter_value = value
        expected.append(packet.SerializeToString())
    assert parsed(packed) == expected


@given(choice=st.lists(st.integers(0, 2), min_size=1, max_size=50))
def test_classes_of_rows_are_merged_in_order(choice) -> None:
    """Rows of different length end up where they belong."""
    chosen = np.array(choice)
    parts = []
    for kind in sorted(set(choice)):
        places = np.flatnonzero(chosen == kind)
        rows = np.full((len(places), kind + 1), kind, np.uint8)
        rows[:, 0] = places
        parts.append((places, rows))
    expected = b"".join(bytes([place] + [kind] * kind) for place, kind in enumerate(choice))
    assert kernel_packets.interleave(parts, len(choice)) == expected
