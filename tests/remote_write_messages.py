"""Both messages of remote write as Google's protobuf reads them, from the published field numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cramjam
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Kind = descriptor_pb2.FieldDescriptorProto
_STRING, _DOUBLE, _INT64, _UINT32 = _Kind.TYPE_STRING, _Kind.TYPE_DOUBLE, _Kind.TYPE_INT64, _Kind.TYPE_UINT32
_Field = tuple[str, int, int, bool]
"""Name, number, type, repeated."""

_SAMPLE: Sequence[_Field] = [("value", 1, _DOUBLE, False), ("timestamp", 2, _INT64, False)]


@dataclass(frozen=True)
class Written:
    """One series of a request: labels in the order in which they came, (value, milliseconds), type, help."""

    labels: tuple[tuple[str, str], ...]
    samples: tuple[tuple[float, int], ...]
    type: int = 0
    help: str = ""


def read_1(body: bytes) -> list[Written]:
    """Series of a prometheus.WriteRequest; none where it is the other message."""
    request = _messages_1()()
    request.ParseFromString(bytes(cramjam.snappy.decompress_raw(body)))
    return [
        Written(tuple((label.name, label.value) for label in series.labels), _samples(series))
        for series in request.timeseries
    ]


def read_2(body: bytes) -> list[Written]:
    """Series of an io.prometheus.write.v2.Request whose table of symbols is as it must be."""
    request = _messages_2()()
    request.ParseFromString(bytes(cramjam.snappy.decompress_raw(body)))
    symbols = list(request.symbols)
    assert symbols[0] == ""
    assert len(set(symbols)) == len(symbols)
    read = []
    for series in request.timeseries:
        texts = [symbols[reference] for reference in series.labels_refs]
        labels = tuple(zip(texts[::2], texts[1::2], strict=True))
        metadata = series.metadata
        read.append(Written(labels, _samples(series), metadata.type, symbols[metadata.help_ref]))
    return read


def _samples(series: Any) -> tuple[tuple[float, int], ...]:
    return tuple((sample.value, sample.timestamp) for sample in series.samples)


@cache
def _messages_1() -> Any:
    label = [("name", 1, _STRING, False), ("value", 2, _STRING, False)]
    return _built(
        "prometheus",
        {
            "Label": label,
            "Sample": _SAMPLE,
            "TimeSeries": [("labels", 1, "Label", True), ("samples", 2, "Sample", True)],
            "WriteRequest": [("timeseries", 1, "TimeSeries", True)],
        },
    )


@cache
def _messages_2() -> Any:
    return _built(
        "io.prometheus.write.v2",
        {
            "Sample": _SAMPLE,
            "Metadata": [("type", 1, _UINT32, False), ("help_ref", 3, _UINT32, False)],
            "TimeSeries": [
                ("labels_refs", 1, _UINT32, True),
                ("samples", 2, "Sample", True),
                ("metadata", 5, "Metadata", False),
            ],
            "Request": [("symbols", 4, _STRING, True), ("timeseries", 5, "TimeSeries", True)],
        },
    )


def _built(package: str, messages: Mapping[str, Sequence[tuple[str, int, int | str, bool]]]) -> Any:
    """The class of the last message."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    name = ""
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, type_, repeated in fields:
            is_message = isinstance(type_, str)
            message.field.add(
                name=field,
                number=number,
                type=_Kind.TYPE_MESSAGE if is_message else type_,
                label=_Kind.LABEL_REPEATED if repeated else _Kind.LABEL_OPTIONAL,
                type_name=f".{package}.{type_}" if is_message else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
