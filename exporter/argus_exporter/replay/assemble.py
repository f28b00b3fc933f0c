"""What profilers record, made one rank's recording: shared by the importers of Kineto and Nsight Systems.

Both write GPU work, host-side launches tied to it by a correlation id, and ranges that people put around
steps and phases. An importer collects these into a `Collected`; `assemble` joins, sorts and checks them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_exporter.place.topology import Identity
from argus_exporter.replay.recording import (
    ITERATION_DTYPE,
    SPAN_DTYPE,
    TIME_LIMIT_NS,
    Array,
    RankRecording,
    TextTable,
)
from argus_exporter.replay.rows import LAUNCH_DTYPE, Rows, kernel_rows, sort_by_start

_INT64: Final = np.dtype("<i8")
_DEVICE_SHIFT: Final = 24
"""Raw stream numbers are small; the device goes above them where a process uses several."""
_STEPS_SHOWN: Final = 8


class Interval(NamedTuple):
    """A range that the program marked, on the host's clock."""

    name: str
    start_ns: int
    duration_ns: int


class Phase(NamedTuple):
    """A phase and the ranges that mark it; the first kind of mark that a recording holds is taken, because
    the others lie inside it."""

    name: str
    kind: wire.Kind
    marks: tuple[str, ...]


@dataclass
class Collected:
    """One process's events so far. Times are relative to a base that is known only at the end.

    Attributes:
        kernels: KERNEL_DTYPE; `start_ns` holds a signed number until the base is added.
        correlations: of each kernel, what its launch has too; -1 where unknown.
        launches: LAUNCH_DTYPE.
        steps: numbered steps; one number may come several times.
        marks: what may become phase spans, named after `Phase.marks`.
        events: all events seen, for messages.
        unusable: GPU events left out, by what they lack.
    """

    kernels: Rows = field(default_factory=kernel_rows)
    correlations: Rows = field(default_factory=lambda: Rows(_INT64))
    launches: Rows = field(default_factory=lambda: Rows(LAUNCH_DTYPE))
    steps: list[tuple[int, Interval]] = field(default_factory=list)
    marks: list[Interval] = field(default_factory=list)
    texts: TextTable = field(default_factory=TextTable)
    events: int = 0
    unusable: Counter[str] = field(default_factory=Counter)

    def kernel(
        self,
        start_ns: int,
        duration_ns: int,
        name: str,
        stream: int,
        size_kilobytes: int,
        operation: wire.Operation,
        device: int,
        correlation: int,
    ) -> None:
        """Add one kernel, copy or memory set; out-of-range streams and devices are clipped.

        `start_ns` is negative only relative to the base, and of at most 63 bits like `correlation`.
        """
        self.kernels.add(
            start_ns & 0xFFFFFFFFFFFFFFFF,
            duration_ns,
            -1,
            self.texts.intern(name) or self.texts.intern("unnamed"),
            min(max(stream, 0), 0xFFFFFFFF),
            size_kilobytes,
            operation,
            min(max(device, 0), 255),
            0,
        )
        self.correlations.add(correlation)


def assemble(
    found: Collected,
    *,
    base_ns: int,
    source: Path,
    identity: Identity,
    phases: Sequence[Phase],
    notes: Sequence[str] = (),
) -> RankRecording | None:
    """One rank's recording; None where no GPU event is usable (`found.unusable` says why).

    Args:
        found: all of one process; used up.
        base_ns: Unix time of the origin of its times, 0 where they are absolute; below TIME_LIMIT_NS.
        source: the file.
        identity: who the process is.
        phases: which marks become which phases.
        notes: what the importer has to say itself.
    """
    kernels, launched = _kernels(found, base_ns)
    if not len(kernels):
        return None
    said = [
        *notes,
        *(f"{count} GPU events without {what} left out" for what, count in _sorted(found.unusable)),
    ]
    _keep_devices_apart(kernels, said)
    starts = kernels["start_ns"].astype(np.int64)
    iterations = _iterations(_moved_steps(found.steps, base_ns), said)
    steps = step_at(iterations, np.where(launched >= 0, launched, starts))
    iterations = _without_idle(iterations, steps, said)
    return RankRecording(
        source=source,
        identity=identity,
        spans=_spans(_moved(found.marks, base_ns), iterations, found.texts, phases),
        texts=found.texts.texts,
        kernels=kernels,
        kernel_steps=steps,
        iterations=iterations,
        notes=tuple(said),
    )


def step_at(iterations: Array, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The step in which each time lies, -1 outside; the short gap after a step belongs to it."""
    if not len(iterations):
        return np.full(len(times), -1, np.int64)
    ordered = iterations[np.argsort(iterations["start_ns"], kind="stable")]
    place = np.searchsorted(ordered["start_ns"], times, side="right") - 1
    end = int((ordered["start_ns"] + ordered["duration_ns"]).max())
    return np.where((place >= 0) & (times <= end), ordered["step"][np.maximum(place, 0)], -1)


def _sorted(unusable: Counter[str]) -> list[tuple[str, int]]:
    return sorted(unusable.items())


def _kernels(found: Collected, base_ns: int) -> tuple[Array, NDArray[np.int64]]:
    """Kernels ascending by start with their issue latency, and when each was launched (-1: unknown)."""
    kernels, correlations = found.kernels.array(), found.correlations.array()
    starts = kernels["start_ns"].view(np.int64)  # a strided view: the numbers change in place
    starts += base_ns
    usable = (starts >= 0) & (starts < TIME_LIMIT_NS)
    if not usable.all():
        found.unusable["a usable start"] += int(np.count_nonzero(~usable))
        kernels, correlations = kernels[usable], correlations[usable]
    launched = _launch_times(correlations, found.launches.array(), base_ns)
    sort_by_start(kernels, launched)
    starts = kernels["start_ns"].astype(np.int64)
    kernels["issue_ns"] = np.where(launched >= 0, np.maximum(starts - launched, 0), -1)
    return kernels, launched


def _launch_times(correlations: NDArray[np.int64], launches: Array, base_ns: int) -> NDArray[np.int64]:
    """When each correlation was launched first; -1 where it was not."""
    times = np.full(len(correlations), -1, np.int64)
    known, first = np.unique(launches["correlation"], return_index=True)
    if len(known):
        place = np.minimum(np.searchsorted(known, correlations), len(known) - 1)
        matches = (known[place] == correlations) & (correlations >= 0)
        times[matches] = launches["start_ns"][first][place[matches]] + base_ns
    return times


def _keep_devices_apart(kernels: Array, notes: list[str]) -> None:
    """Stream numbers repeat from device to device: in a process with several they get the device's number."""
    devices = np.unique(kernels["device"])
    if len(devices) > 1:
        small = kernels["stream"] < 1 << _DEVICE_SHIFT
        kernels["stream"] += np.where(small, kernels["device"].astype(np.uint32) << _DEVICE_SHIFT, 0).astype(
            np.uint32
        )
        notes.append(f"{len(devices)} devices in one process: their streams are kept apart")


def _moved(marks: list[Interval], base_ns: int) -> list[Interval]:
    moved = (mark._replace(start_ns=mark.start_ns + base_ns) for mark in marks)
    return [mark for mark in moved if 0 <= mark.start_ns < TIME_LIMIT_NS]


def _moved_steps(steps: list[tuple[int, Interval]], base_ns: int) -> list[tuple[int, Interval]]:
    moved = ((step, mark._replace(start_ns=mark.start_ns + base_ns)) for step, mark in steps)
    return [(step, mark) for step, mark in moved if 0 <= mark.start_ns < TIME_LIMIT_NS]


def _iterations(steps: list[tuple[int, Interval]], notes: list[str]) -> Array:
    longest: dict[int, Interval] = {}
    for step, interval in steps:
        known = longest.get(step)
        if known is None or interval.duration_ns > known.duration_ns:
            longest[step] = interval
    if len(steps) > len(longest):
        notes.append(f"{len(steps) - len(longest)} repeated step marks left out, the longest kept")
    rows = [(step, interval.start_ns, interval.duration_ns) for step, interval in sorted(longest.items())]
    return np.array(rows, ITERATION_DTYPE)


def _without_idle(iterations: Array, steps: NDArray[np.int64], notes: list[str]) -> Array:
    idle = ~np.isin(iterations["step"], steps)
    if not idle.any() or idle.all():
        return iterations
    # The profiler opens a step at its last call, which ends with the recording.
    numbers = iterations["step"][idle]
    shown = ", ".join(map(str, numbers[:_STEPS_SHOWN])) + (", ..." if len(numbers) > _STEPS_SHOWN else "")
    notes.append(f"steps without GPU events left out: {shown}")
    return iterations[~idle]


def _spans(marks: list[Interval], iterations: Array, texts: TextTable, phases: Sequence[Phase]) -> Array:
    chosen: list[tuple[Interval, Phase]] = []
    for phase in phases:
        for name in phase.marks:
            matching = [(mark, phase) for mark in marks if mark.name == name]
            if matching:
                chosen += matching
                break
    chosen.sort(key=lambda item: item[0].start_ns)
    starts = np.array([mark.start_ns for mark, _ in chosen], np.int64)
    steps = step_at(iterations, starts) if len(iterations) else np.zeros(len(chosen), np.int64)
    rows = [
        (m.start_ns, m.duration_ns, int(step), texts.intern(p.name), 0, p.kind, wire.Source.HOST, 0, 0)
        for (m, p), step in zip(chosen, steps, strict=True)
        if step >= 0
    ]
    return np.array(rows, SPAN_DTYPE)
