"""Kernels and launches as Perfetto packets, written by numpy: a proto object each would take 3x the budget.

Every packet of one class has the same length: numbers that vary are written as varints of one width, padded
where they are small, which the format allows. So a class is one two-dimensional array of bytes whose columns
are filled at once. The oracle of the tests is the same trace built from proto objects.

Source: https://protobuf.dev/programming-guides/encoding, perfetto/trace/trace_packet.proto and
track_event/track_event.proto for the field numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core.varint import varint

Rows = NDArray[np.uint8]
Numbers = NDArray[np.uint64]

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_TRACE_PACKET: Final = 1
_TIMESTAMP: Final = 8
_SEQUENCE: Final = 10
_TRACK_EVENT: Final = 11
_CATEGORY: Final = 3
_ANNOTATION: Final = 4
_TYPE: Final = 9
_NAME: Final = 10
_COUNTER_VALUE: Final = 30
_FLOW: Final = 47
_TERMINATING_FLOW: Final = 48
_ANNOTATION_NAME: Final = 1
_ANNOTATION_UINT: Final = 3
_ANNOTATION_TEXT: Final = 17
BEGIN: Final = 1
END: Final = 2
INSTANT: Final = 3
_COUNTER: Final = 4


@dataclass
class Message:
    """The bytes of a message whose numbers come later: constant bytes, and columns to fill."""

    content: bytearray = field(default_factory=bytearray)
    columns: list[tuple[int, int, Numbers]] = field(default_factory=list)
    """Place, width (0: eight plain bytes), and the value of each row."""

    def constant(self, number: int, value: int) -> Message:
        """A varint field with the same value in every row."""
        self.content += varint(number << 3 | _VARINT) + varint(value)
        return self

    def varying(self, number: int, values: Numbers) -> Message:
        """A varint field, as wide as the largest value needs."""
        self.content += varint(number << 3 | _VARINT)
        width = len(varint(int(values.max(initial=0))))
        self.columns.append((len(self.content), width, values))
        self.content += bytes(width)
        return self

    def fixed(self, number: int, values: Numbers) -> Message:
        """A fixed64 field."""
        self.content += varint(number << 3 | _FIXED64)
        self.columns.append((len(self.content), 0, values))
        self.content += bytes(8)
        return self

    def message(self, number: int, inner: Message) -> Message:
        """A message within this one."""
        self.content += varint(number << 3 | _BYTES) + varint(len(inner.content))
        at = len(self.content)
        self.columns += [(at + place, width, values) for place, width, values in inner.columns]
        self.content += inner.content
        return self

    def rows(self, count: int) -> Rows:
        """The message of each row, shape (count, length)."""
        rows = np.empty((count, len(self.content)), np.uint8)
        rows[:] = np.frombuffer(bytes(self.content), np.uint8)
        for place, width, values in self.columns:
            if width == 0:
                rows[:, place : place + 8] = values.astype("<u8").view(np.uint8).reshape(-1, 8)
            for byte in range(width):
                more = 0x80 if byte < width - 1 else 0
                rows[:, place + byte] = (values >> np.uint64(7 * byte)) & np.uint64(0x7F) | np.uint64(more)
        return rows


def slices(
    sequence: int,
    starts: Numbers,
    ends: Numbers,
    names: Numbers,
    categories: Numbers,
    *,
    texts: Sequence[tuple[int, Numbers]] = (),
    numbers: Sequence[tuple[int, Numbers]] = (),
    terminates: Numbers | None = None,
) -> Rows:
    """Begin and end of slices, one row each.

    Args:
        sequence: the packet sequence, whose defaults name the track and the clock.
        starts: Unix ns, shape (n,), as are all others.
        names: interned ids of the slices' names.
        categories: interned ids of their categories.
        texts: annotations: interned id of the name, interned ids of the texts.
        numbers: annotations: interned id of the name, numbers.
        terminates: flow that ends at each slice.
    """
    event = Message().varying(_CATEGORY, categories)
    for name, values in texts:
        annotation = Message().constant(_ANNOTATION_NAME, name).varying(_ANNOTATION_TEXT, values)
        event.message(_ANNOTATION, annotation)
    for name, values in numbers:
        annotation = Message().constant(_ANNOTATION_NAME, name).varying(_ANNOTATION_UINT, values)
        event.message(_ANNOTATION, annotation)
    event.constant(_TYPE, BEGIN).varying(_NAME, names)
    if terminates is not None:
        event.fixed(_TERMINATING_FLOW, terminates)
    pair = _packet(Message(), sequence, starts, event)
    return _packet(pair, sequence, ends, Message().constant(_TYPE, END)).rows(len(starts))


def launches(sequence: int, times: Numbers, name: int, category: int, flows: Numbers) -> Rows:
    """Instants at which kernels were launched, one row each, with the flow that leads to the kernel."""
    event = Message().constant(_CATEGORY, category).constant(_TYPE, INSTANT).constant(_NAME, name)
    return _packet(Message(), sequence, times, event.fixed(_FLOW, flows)).rows(len(times))


def counts(sequence: int, times: Numbers, values: Numbers) -> Rows:
    """Values of the counter that is the sequence's track, one row each."""
    event = Message().constant(_TYPE, _COUNTER).varying(_COUNTER_VALUE, values)
    return _packet(Message(), sequence, times, event).rows(len(times))


def interleave(parts: Sequence[tuple[NDArray[np.intp], Rows]], count: int) -> bytes:
    """Rows of several classes in the order of their places.

    Args:
        parts: for each class the places of its rows (together 0 to count - 1, each once), and the rows.
    """
    if len(parts) == 1:
        return parts[0][1].tobytes()
    lengths = np.empty(count, np.int64)
    for places, rows in parts:
        lengths[places] = rows.shape[1]
    begins = np.concatenate(([0], np.cumsum(lengths)))
    out = np.empty(int(begins[-1]), np.uint8)
    for places, rows in parts:
        out[begins[places][:, None] + np.arange(rows.shape[1])] = rows
    return out.tobytes()


def _packet(before: Message, sequence: int, times: Numbers, event: Message) -> Message:
    packet = Message().varying(_TIMESTAMP, times).constant(_SEQUENCE, sequence)
    return before.message(_TRACE_PACKET, packet.message(_TRACK_EVENT, event))
