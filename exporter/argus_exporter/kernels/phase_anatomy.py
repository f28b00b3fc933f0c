"""GPU time of a rank's phases and iterations, divided as `anatomy` says, as running totals.

A step is divided once, when all of it has come (`step_records`). A step of which a record was lost is left
out whole, its spans are not counted; so is a span that does not lie within one step, such as one around an
epoch.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_names import is_collective
from argus_exporter.kernels.anatomy import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    PARTS,
    SNAP_NS,
    Ran,
    Slices,
    Timeline,
    Times,
    innermost,
    snap,
)
from argus_exporter.kernels.pairs import stream_keys
from argus_exporter.kernels.step_records import Mark, Step, StepRecords

DIVIDE_SECONDS: Final = 5.0
"""Below usual scrape intervals. A division costs some 500 us and 100 ns a kernel: not for every step."""
_PHASES_LIMIT: Final = 4
_SERIES_LIMIT: Final = 30
"""Of one rank: 4 of the iteration, 5 a phase, and what is left for the groups of exposed time."""


@dataclass
class PhaseParts:
    """Of one phase. Nanoseconds, by `anatomy.PARTS` and by group of the communicator."""

    spans: int = 0
    parts: list[int] = field(default_factory=lambda: [0] * len(PARTS))
    exposed: dict[str, int] = field(default_factory=dict)


class PhaseAnatomy:
    """The anatomy of one rank. One thread.

    Args:
        names: kernel names by `name_id`.
        communication: patterns of kernel names that communicate, beside those that ARGUS knows.
        settle_seconds: how late kernel records may come.
        group_of: name of the communicator's group along a parallel dimension; of None, of an unknown one.
        every_seconds: how often `advance` divides.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        communication: tuple[str, ...],
        settle_seconds: float,
        group_of: Callable[[str | None], str],
        every_seconds: float = DIVIDE_SECONDS,
    ) -> None:
        self.every_seconds = every_seconds
        self.records = StepRecords(settle_seconds)
        """What comes, until it is divided."""
        self.communication = communication
        self._names = names
        self._group_of = group_of
        self.phases: dict[str, PhaseParts] = {}
        """By phase. Empty where there are no kernels, or no spans of CUDA events."""
        self.iterations: list[int] | None = None
        """Nanoseconds by part; None as long as no iteration was divided."""
        self._dimensions: Mapping[int, str] | None = None
        self._unnamed: dict[tuple[str, int], int] = {}  # exposed ns by phase and stream, not named yet
        self._divided_at = -math.inf

    @property
    def communication(self) -> tuple[str, ...]:
        """Patterns of kernel names that communicate, beside those that ARGUS knows."""
        return self._communication

    @communication.setter
    def communication(self, patterns: tuple[str, ...]) -> None:
        self._communication = patterns
        self._communicates = np.zeros(0, np.bool_)  # by name id, as far as names were asked for

    def label(self, dimensions: Mapping[int, str] | None) -> None:
        """Take the dimensions of communicators by stream; None: streams have no names any more."""
        self._dimensions = dimensions
        self._name_streams()

    def advance(self, now: float) -> None:
        """Divide the steps that are complete, every `every_seconds`; `now` is monotonic seconds."""
        if now - self._divided_at < self.every_seconds:
            return
        marks = self.records.complete(now)
        if len(marks) < 2:
            return
        self._divided_at = now
        steps = self.records.steps(marks)
        if steps:
            self._divide(steps, self._ran(marks[0].time_ns, marks[-1]), marks[-1].stream)
        self.records.forget(marks[-1])
        self._name_streams()

    def _divide(self, steps: list[Step], ran: Ran, home: int) -> None:
        timeline = Timeline(ran)
        iterations = [step for step in steps if step.is_iteration]
        if iterations:
            begin = np.array([step.before.time_ns for step in iterations], np.int64)
            end = np.array([step.after.time_ns for step in iterations], np.int64)
            parts = timeline.parts(Slices(begin, end, np.zeros(len(iterations), np.intp)), 1)
            self.iterations = _added(self.iterations or [0] * len(PARTS), parts[0])
        at_home = ran.stream == home
        self._divide_phases(timeline, steps, ran.start[at_home], ran.end[at_home])

    def _divide_phases(
        self, timeline: Timeline, steps: list[Step], start_home: Times, end_home: Times
    ) -> None:
        spans, rows = [], []
        for step in steps:
            for span in step.spans:
                begin = step.before.time_ns + span.after_ns
                spans.append(span)
                rows.append((begin, begin + span.duration_ns, step.before.time_ns, step.after.time_ns))
        if not spans:
            return
        begin, end, earliest, latest = np.array(rows, np.int64).T
        within = (begin >= earliest - SNAP_NS) & (end <= latest + SNAP_NS)
        begin = np.clip(snap(begin, start_home, end_home), earliest, latest)[within]
        end = np.clip(snap(end, start_home, end_home), earliest, latest)[within]
        spans = [span for span, kept in zip(spans, within.tolist(), strict=True) if kept]
        owners: dict[str, int] = {}
        of_span = np.full(len(spans), -1, np.intp)
        for place, span in enumerate(spans):
            totals = self._totals(span.phase) if span.is_compute else None
            if totals is not None:
                totals.spans += 1
                of_span[place] = owners.setdefault(span.phase, len(owners))
        slices = innermost(begin, end)
        own = of_span[slices.owner]
        ours = own >= 0
        own_slices = Slices(slices.begin[ours], slices.end[ours], own[ours])
        phases = list(owners)
        for phase, parts in zip(phases, timeline.parts(own_slices, len(owners)), strict=True):
            self.phases[phase].parts = _added(self.phases[phase].parts, parts)
        for (owner, stream), nanoseconds in timeline.exposed(own_slices).items():
            key = phases[owner], stream
            self._unnamed[key] = self._unnamed.get(key, 0) + nanoseconds

    def _totals(self, phase: str) -> PhaseParts | None:
        """Totals of a phase, made at its first span; None beyond the limit."""
        known = self.phases.get(phase)
        if known is None and len(self.phases) < _PHASES_LIMIT and self._series + 5 <= _SERIES_LIMIT:
            known = self.phases[phase] = PhaseParts()
        return known

    @property
    def _series(self) -> int:
        return len(PARTS) + sum(1 + len(PARTS) + len(parts.exposed) for parts in self.phases.values())

    def _name_streams(self) -> None:
        """Exposed time to the groups of its communicators, once the first window has named the streams."""
        if self._dimensions is None:
            return
        for (phase, stream), nanoseconds in self._unnamed.items():
            group = self._group_of(self._dimensions.get(stream))
            exposed = self.phases[phase].exposed
            if group in exposed or self._series < _SERIES_LIMIT:
                exposed[group] = exposed.get(group, 0) + nanoseconds
        self._unnamed.clear()

    def _ran(self, begin_ns: int, last: Mark) -> Ran:
        """What ran on the device of the marks, from `begin_ns` to the last mark."""
        records = self.records.waiting()
        start = records["start_ns"].astype(np.int64)
        end = start + records["duration_ns"].astype(np.int64)
        own = (records["device"] == last.device) & (start >= 0) & (start < last.time_ns) & (end > begin_ns)
        chosen = np.flatnonzero(own)
        chosen = chosen[np.argsort(start[chosen], kind="stable")]
        part = np.where(self._find_communication(records["name_id"]), COMMUNICATION, COMPUTE).astype(np.int8)
        part[records["operation"] != wire.Operation.KERNEL] = COPY
        return Ran(start[chosen], end[chosen], part[chosen], stream_keys(records)[chosen])

    def _find_communication(self, name_ids: NDArray[np.uint32]) -> NDArray[np.bool_]:
        known = len(self._communicates)
        beyond = int(name_ids.max()) + 1 if len(name_ids) else 0
        if beyond > known:
            told = [self._communication_kernel(self._names.get(id_, "")) for id_ in range(known, beyond)]
            self._communicates = np.concatenate((self._communicates, np.array(told, np.bool_)))
        return self._communicates[name_ids]

    def _communication_kernel(self, name: str) -> bool:
        return is_collective(name) or any(fnmatch.fnmatchcase(name, one) for one in self._communication)


def _added(totals: list[int], parts: Times) -> list[int]:
    return [total + part for total, part in zip(totals, parts.tolist(), strict=True)]
