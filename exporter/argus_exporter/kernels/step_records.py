"""What has come of a rank's steps: kernels, marks, spans on the GPU, until all of a step is there.

Spans and kernels come from different connections, kernels up to seconds after the spans. What ties them is
the step mark: a memory set that the producer puts on its stream at the end of each step, right before an
event from which the spans of the next step are measured (`wire.GpuSpan`). Between two marks lies one step.
All of it has come with

* a kernel that started `settle_seconds` after it (or no record for that long);
* a span of a later step: spans come in the order of their ends.

Kernels wait until then and no longer.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from argus_core import wire
from argus_core.kernel_records import KernelArray, join, select
from argus_exporter.kernels.pairs import stream_key

_RECORDS_LIMIT: Final = 1_000_000
"""Kernels that wait (40 MB, which the open window holds too); more, and their steps are left out."""
_STEPS_LIMIT: Final = 4096
_SPANS_LIMIT: Final = 16_384
"""Spans that wait (3 MB): some seconds of 2,000 a second."""
_LATE: Final = 5
"""Settling times without any record after which nothing more is expected."""
_UNTOLD_NS: Final = 60_000_000_000
"""A step without any span after it is complete this much later."""
_PAUSE_NS: Final = 1_000_000
"""Host and GPU clocks agree to this."""
_LATEST_NS: Final = 2**62


@dataclass(frozen=True)
class Mark:
    """The end of a step on the GPU; `stream` is a `stream_key`."""

    step: int
    time_ns: int
    device: int
    stream: int


class SpanOnGpu(NamedTuple):
    """A span of a step, from the mark before that step on."""

    phase: str
    is_compute: bool
    after_ns: int
    duration_ns: int


@dataclass(frozen=True)
class Step:
    """What lies between two marks. `is_iteration`: it began where the step before ended."""

    before: Mark
    after: Mark
    spans: list[SpanOnGpu]
    is_iteration: bool


class StepRecords:
    """Of one rank. One thread."""

    def __init__(self, settle_seconds: float) -> None:
        self.settle_seconds = settle_seconds
        """How late kernel records may come."""
        self.restart()

    def restart(self) -> None:
        """Records may be missing: what has not been divided never will be."""
        self._records: list[KernelArray] = []
        self._waiting = 0
        self._marks: list[tuple[int, int, int, int]] = []  # mark, time, device, stream; as they came
        self._spans: dict[int, list[SpanOnGpu]] = {}  # by step
        self._spans_waiting = 0
        self._begins: dict[int, int] = {}  # of iterations by step, host's clock
        self._step = -1  # of the latest iteration; before the first, no mark tells its step
        self._told = -1  # the latest step of a span
        self._newest_ns = 0
        self._lost_until_ns = 0
        self._losing = False  # and what was lost lies before the records that come next
        self._heard_at = -math.inf

    def lost(self) -> None:
        """The producer says that records were lost: of the steps that wait, nobody knows which."""
        self._lost_until_ns = self._newest_ns
        self._losing = True

    def kernels(self, records: KernelArray, now: float) -> KernelArray:
        """Take kernel records, which nobody changes from now on; `now` is monotonic seconds.

        Returns:
            Those that are of the job: all but step marks.
        """
        marked = records["mark"] != 0
        if marked.any():
            for record in records[marked].tolist():
                start, duration, _, _, stream, _, _, device, mark = record
                end = start + duration
                if end < _LATEST_NS and len(self._marks) < _STEPS_LIMIT:
                    self._marks.append((mark, end, device, stream_key(device, stream)))
                    self._newest_ns = max(self._newest_ns, end)
            self._heard_at = now
            records = select(records, ~marked)
        if not self._marks or not len(records):
            return records
        if self._waiting + len(records) > _RECORDS_LIMIT:
            self.restart()
            return records
        self._records.append(records)
        self._waiting += len(records)
        self._newest_ns = max(self._newest_ns, min(int(records["start_ns"].max()), _LATEST_NS))
        if self._losing:
            self._losing, self._lost_until_ns = False, self._newest_ns
        self._heard_at = now
        return records

    def span(self, step: int, span: SpanOnGpu, now: float) -> None:
        """Take a span that the GPU has passed."""
        if self._spans_waiting >= _SPANS_LIMIT or len(self._spans) >= _STEPS_LIMIT:
            self._spans.clear()
            self._spans_waiting = 0
            self._lost_until_ns = max(self._lost_until_ns, self._newest_ns)
        self._spans.setdefault(step, []).append(span)
        self._spans_waiting += 1
        self._told = max(self._told, step)
        self._heard_at = now

    def iteration(self, record: wire.Iteration) -> None:
        """Take an iteration."""
        self._step = record.step
        self._begins[record.step] = record.end_ns - record.duration_ns
        if len(self._begins) > _STEPS_LIMIT:
            del self._begins[next(iter(self._begins))]

    def complete(self, now: float) -> list[Mark]:
        """Marks up to the last one before which nothing is missing, by time."""
        if self._step < 0 or len(self._marks) < 2:
            return []
        marks = sorted(
            (Mark(wire.marked_step(mark, self._step), *where) for mark, *where in self._marks),
            key=lambda mark: mark.time_ns,
        )
        silent = now - self._heard_at
        if silent >= _LATE * self.settle_seconds:
            return marks
        seen_ns = self._newest_ns
        if silent < self.settle_seconds:
            seen_ns -= int(self.settle_seconds * 1e9)
        while marks and not (
            marks[-1].time_ns <= seen_ns
            and (marks[-1].step < self._told or marks[-1].time_ns <= seen_ns - _UNTOLD_NS)
        ):
            marks.pop()
        return marks

    def steps(self, marks: list[Mark]) -> list[Step]:
        """The steps between such marks of which nothing was lost, on the stream of the last."""
        home = marks[-1].stream
        return [
            Step(before, after, self._spans.get(after.step, []), self._is_iteration(before, after))
            for before, after in itertools.pairwise(marks)
            if after.step == before.step + 1
            and before.stream == after.stream == home
            and before.time_ns >= self._lost_until_ns
            and before.time_ns < after.time_ns
        ]

    def waiting(self) -> KernelArray:
        """The kernels that wait, in any order."""
        self._records = [join(self._records)]
        return self._records[0]

    def _is_iteration(self, before: Mark, after: Mark) -> bool:
        """Between two steps may lie an evaluation, or a checkpoint."""
        begin = self._begins.get(after.step)
        return begin is not None and begin <= before.time_ns + _PAUSE_NS

    def forget(self, last: Mark) -> None:
        """Let go of what lies before a mark."""
        records = self.waiting()
        end = records["start_ns"].astype(np.int64) + records["duration_ns"].astype(np.int64)
        self._records = [select(records, end > last.time_ns)]
        self._waiting = len(self._records[0])
        self._marks = [mark for mark in self._marks if mark[1] >= last.time_ns]
        self._spans = {step: spans for step, spans in self._spans.items() if step > last.step}
        self._spans_waiting = sum(map(len, self._spans.values()))
        self._begins = {step: begin for step, begin in self._begins.items() if step > last.step}
