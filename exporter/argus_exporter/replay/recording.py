"""One rank's recording in memory: the common form of every importer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_names import is_collective
from argus_core.kernel_records import KernelArray
from argus_exporter.errors import ArgusExporterError
from argus_exporter.place.topology import Identity

SPAN_DTYPE = np.dtype(
    [
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("step", "<u8"),
        ("phase_id", "<u4"),
        ("group_id", "<u4"),
        ("kind", "u1"),
        ("source", "u1"),
        ("microbatch", "<u2"),
        ("nested_seconds", "<f4"),
    ]
)
"""`wire.Span` as numpy sees it."""

ITERATION_DTYPE = np.dtype([("step", "<i8"), ("start_ns", "<i8"), ("duration_ns", "<i8")])

TIME_LIMIT_NS = 1 << 62
"""Times and durations are below this (the year 2116), so that sums of two fit 64 bits."""
STEP_LIMIT = 1 << 32
"""Steps are below this, so that looping cannot overflow the wire."""
RANK_LIMIT = 1 << 31
"""Ranks, coordinates and sizes are below this: 32 bits with sign on the wire."""

Array = NDArray[np.void]


class RecordingError(ArgusExporterError):
    """A file is not a usable recording; the message names the file, what is so, and what is allowed."""


@dataclass(frozen=True)
class RankRecording:
    """What one rank did.

    Attributes:
        source: the file that it was read from.
        identity: who the rank is.
        texts: what the ids of `kernels` and `spans` mean; 0 is the empty text.
        kernels: KERNEL_DTYPE ascending by start; times in Unix nanoseconds, or since the origin of the log.
        kernel_steps: the step that launched each kernel; -1 where unknown. Shape of `kernels`.
        spans: SPAN_DTYPE ascending by start.
        iterations: ITERATION_DTYPE ascending by step, one each.
        own_work: spans of kind compute wait for no other rank, by the word of the file.
        notes: what was left out on import, and why, in words.
    """

    source: Path
    identity: Identity
    texts: tuple[str, ...]
    kernels: KernelArray
    kernel_steps: NDArray[np.int64]
    spans: Array
    iterations: Array
    notes: tuple[str, ...] = ()
    own_work: bool = False

    @property
    def rank(self) -> int:
        return self.identity.rank

    @property
    def begin_ns(self) -> int:
        """When the first thing of the recording starts."""
        return min(int(part["start_ns"].min()) for part in self._parts())

    @property
    def end_ns(self) -> int:
        """When the last thing of the recording ends."""
        return max(int((part["start_ns"] + part["duration_ns"]).max()) for part in self._parts())

    @property
    def tick_seconds(self) -> float:
        """Resolution of the kernel durations: 1e-6 where all are whole microseconds, else 0."""
        durations = self.kernels["duration_ns"]
        return 1e-6 if len(durations) and not np.any(durations % 1000) else 0.0

    @property
    def collective(self) -> NDArray[np.bool_]:
        """Which kernels are collectives. Shape of `kernels`."""
        ids = [index for index, text in enumerate(self.texts) if is_collective(text)]
        return np.isin(self.kernels["name_id"], ids)

    @property
    def compute(self) -> NDArray[np.bool_]:
        """Which kernels compute: neither collectives nor copies nor memory sets. Shape of `kernels`."""
        is_kernel: NDArray[np.bool_] = self.kernels["operation"] == wire.Operation.KERNEL
        return is_kernel & ~self.collective

    def shifted(self, nanoseconds: int, steps: int = 0) -> RankRecording:
        """The same recording at another time and from another step on."""
        kernels, spans, iterations = self.kernels.copy(), self.spans.copy(), self.iterations.copy()
        for part in (kernels, spans, iterations):
            part["start_ns"] = part["start_ns"].astype(np.int64) + nanoseconds
        spans["step"] = spans["step"].astype(np.int64) + steps
        iterations["step"] += steps
        kernel_steps = np.where(self.kernel_steps >= 0, self.kernel_steps + steps, self.kernel_steps)
        return dataclasses.replace(
            self, kernels=kernels, spans=spans, iterations=iterations, kernel_steps=kernel_steps
        )

    def _parts(self) -> list[Array]:
        return [part for part in (self.kernels, self.spans, self.iterations) if len(part)]


class TextTable:
    """Interns names of one recording as the wire will carry them (`wire.encode_name`), so that ids agree."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {"": 0}
        self._by_given: dict[str, int] = {}

    def intern(self, text: str) -> int:
        """Id of a text; two that agree in what the wire carries share one."""
        known = self._by_given.get(text)
        if known is None:
            carried = wire.decode_text(wire.encode_name(text))
            known = self._by_given[text] = self._ids.setdefault(carried, len(self._ids))
        return known

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._ids)


def clean_text(text: str, limit: int) -> str:
    """The text as it arrives at the other end of the wire."""
    if len(text) <= limit and text.isascii() and text.isprintable():  # nearly all, and ten times as fast
        return text
    return wire.decode_text(wire.encode_text(text, limit))


def kilobytes(size: float) -> int:
    """Bytes of a copy as the wire carries them: rounded up, so that a small copy is not 0."""
    return int(min(-(-max(size, 0) // 1024), 0xFFFFFFFF))


def refuse_duplicates(recordings: Iterable[RankRecording]) -> None:
    """One recording a rank.

    Raises:
        RecordingError: two files hold the same rank.
    """
    seen: dict[int, Path] = {}
    for recording in recordings:
        first = seen.get(recording.rank)
        if first is not None:
            raise RecordingError(
                f"{recording.source}: is rank {recording.rank}, and so is {first}; give one file a rank, "
                "or pass --assume-ranks to number the files in the order given"
            )
        seen[recording.rank] = recording.source


def align(recordings: Sequence[RankRecording]) -> list[RankRecording]:
    """Bring files that were not recorded together to one time and first step.

    Ranks of one run overlap in time and stay as they are, as do all ranks of one event log. Where two files
    have no instant in common (repeats of a single-GPU job) every file is moved to start with the first one.
    """
    by_source: dict[Path, list[RankRecording]] = {}
    for recording in recordings:
        by_source.setdefault(recording.source, []).append(recording)
    begins = {source: min(r.begin_ns for r in own) for source, own in by_source.items()}
    ends = {source: max(r.end_ns for r in own) for source, own in by_source.items()}
    if max(begins.values()) <= min(ends.values()):
        return list(recordings)
    first = recordings[0].source
    first_step = {source: _first_step(own) for source, own in by_source.items()}
    note = "recorded at another time than the first file: moved to start with it"
    aligned = []
    for recording in recordings:
        source = recording.source
        if source != first:
            steps = first_step[first] - first_step[source]
            moved = recording.shifted(begins[first] - begins[source], steps)
            recording = dataclasses.replace(moved, notes=(*moved.notes, note))
        aligned.append(recording)
    return aligned


def _first_step(recordings: Sequence[RankRecording]) -> int:
    return min((int(r.iterations["step"][0]) for r in recordings if len(r.iterations)), default=0)
