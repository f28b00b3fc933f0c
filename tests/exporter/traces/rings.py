"""A producer that speaks to a tap as intake does, with records that can be told apart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_exporter.place.topology import Identity
from argus_exporter.traces.ring import Ring

STEP_NS = 100_000_000
KERNELS = 50


def identity(rank: int = 0) -> Identity:
    return Identity("job", rank, coordinates={"dp": rank, "pp": 0}, sizes={"dp": 4, "pp": 1}, node="n")


class Clock:
    """Unix ns that a test moves."""

    def __init__(self, now: int | None = None) -> None:
        self.now = now if now is not None else time.time_ns()

    def __call__(self) -> int:
        return self.now


class Producer:
    """One connection: each step has a span, kernels, an iteration."""

    def __init__(
        self, ring: Ring, rank: int = 0, *, ids: Iterator[int] | None = None, begin: int | None = None
    ):
        self.tap = ring.connect(identity(rank))
        self.begin = begin if begin is not None else time.time_ns() - 60 * 10**9
        self.steps = 0
        self.lost = 0
        """What the sender has lost since its last message."""
        ids = ids or count(1)
        self.phase, self.kernel, self.compiler = next(ids), next(ids), next(ids)
        self._send(
            wire.MessageType.NAMES,
            *(
                wire.Name(name_id, wire.encode_name(text))
                for name_id, text in (
                    (self.phase, "forward"),
                    (self.kernel, "gemm"),
                    (self.compiler, "dynamo"),
                )
            ),
        )

    def step(self, kernels: int = KERNELS, *, marked: bool = True) -> None:
        start = self.begin + self.steps * STEP_NS
        self._send(wire.MessageType.SPANS, wire.Span(start, STEP_NS // 2, self.steps, self.phase, 0, 0, 1, 0))
        records = np.zeros(kernels, KERNEL_DTYPE)
        records["start_ns"] = start + np.arange(kernels) * (STEP_NS // kernels)
        records["duration_ns"] = 1000 + self.steps
        records["name_id"], records["stream"], records["issue_ns"] = self.kernel, 7, -1
        self.message(wire.MessageType.KERNELS, records.tobytes(), kernels)
        self.steps += 1
        if marked:
            self._send(
                wire.MessageType.ITERATIONS,
                wire.Iteration(self.steps - 1, start + STEP_NS, STEP_NS, self.steps, 0.0, 0.0),
            )

    def layer(self) -> None:
        """A sample in the first step."""
        sample = wire.Layer(self.begin + 5, 700, 0, self.kernel, 0.0, 12, 3, wire.Source.HOST)
        self._send(wire.MessageType.LAYERS, sample)

    def pauses(self) -> None:
        """A collection and a compilation in the first step."""
        self._send(
            wire.MessageType.GARBAGE_COLLECTIONS, wire.GarbageCollection(self.begin + 5, 700, 1, 7e-7, 2)
        )
        self._send(
            wire.MessageType.COMPILATIONS, wire.Compilation(self.begin + 9, 800, 1, 8e-7, self.compiler)
        )

    def _send(self, type_: wire.MessageType, *records: wire.Record) -> None:
        self.message(type_, b"".join(record.pack() for record in records), len(records))

    def message(self, type_: wire.MessageType, payload: bytes, count: int) -> None:
        self.tap.take(wire.Header(type_, count, 0, 0), memoryview(payload), self.lost)
        self.lost = 0


def segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.segment"))
