"""What a span is of, and finished spans and iterations as wire records."""

from __future__ import annotations

import itertools
import struct
import time
from typing import Final, NamedTuple

from argus_core import wire
from argus_core.link import Link
from argus_core.shared_page import SPARE_WORD, PageWriter
from argus_training.exclusive_time import ExclusiveTime
from argus_training.step_log import GPU_SPAN, ITERATION, NO_CODE, TRAINING_CLOCK, StepLog

now: Final = time.monotonic_ns
"""The clock of all spans and of the shared page: CLOCK_MONOTONIC, nanoseconds."""

_PHASES_LIMIT: Final = 200  # below the exporter's limit of 256 series keys a rank
_CLOCKS_LIMIT: Final = 64
"""Threads and streams whose spans are told apart; a program that makes more begins anew."""

# A span record in three parts: what differs, what each span of a phase repeats, what lies in others.
_PACK_TIMES: Final = struct.Struct("<QQQ").pack
_PACK_PHASE: Final = struct.Struct("<IIBBH").pack
_PACK_NESTED: Final = struct.Struct("<f").pack
_NOTHING_NESTED: Final = _PACK_NESTED(0.0)
_PACK_ITERATION: Final = wire.Iteration.FORMAT.pack
_ITERATIONS: Final = int(wire.MessageType.ITERATIONS)
_PACK_LAYER: Final = wire.Layer.FORMAT.pack
_LAYERS: Final = int(wire.MessageType.LAYERS)
_PACK_GPU_SPAN: Final = wire.GpuSpan.FORMAT.pack
_GPU_SPANS: Final = int(wire.MessageType.GPU_SPANS)
_COMPUTE: Final = int(wire.Kind.COMPUTE)
_ITERATIONS_LEAST: Final = 3
"""Before the mean of iterations says what is usual: as the exporter has it of jobs."""
_LARGEST: Final = 0xFFFF
"""Index or micro-batch that fits a record."""
assert len(_PACK_TIMES(0, 0, 0) + _PACK_PHASE(0, 0, 0, 0, 0) + _NOTHING_NESTED) == wire.Span.FORMAT.size


class Phase:
    """What a span is of. `group` may be empty: the exporter routes it."""

    __slots__ = ("code", "group", "kind", "name", "packed", "slot", "source")

    def __init__(
        self, code: int, name: str, kind: wire.Kind, source: wire.Source, group: str, slot: int
    ) -> None:
        self.code = code
        """Its number in the step log."""
        self.name = name
        self.kind = int(kind)
        self.source = int(source)
        self.group = group
        self.slot = slot
        """Word of the shared page that holds the start of the open span."""
        self.packed = b""
        """The part of a span record that does not change; made at the first flush."""


class Task(NamedTuple):
    """What a stopwatch times: the same phase with either clock as its source."""

    on_host: Phase | None
    on_gpu: Phase | None
    slot: int
    """Word of the shared page that is the start of the open span."""
    code: int
    """Number in the step log, on the host's clock."""


class LayerSample(Phase):
    """What one sampled span of a layer is of: takes a phase's place on its way to the packer, and is none.

    Of the shared page it has no word that anybody reads.
    """

    __slots__ = ("index", "microbatch")

    def __init__(self, kind: str, index: int, microbatch: int) -> None:
        super().__init__(NO_CODE, kind, wire.Kind.COMPUTE, wire.Source.HOST, "", SPARE_WORD)
        self.index = index
        self.microbatch = microbatch

    def task(self) -> Task:
        """For a stopwatch."""
        return Task(self, self, self.slot, self.code)


class PhaseTable:
    """The phases and process groups of one process, and their words in the shared page.

    Args:
        page: None where there is none: all share a word that nobody reads.
    """

    def __init__(self, page: PageWriter | None) -> None:
        self._page = page
        self._codes = itertools.count(ITERATION + 1)
        self._phases: dict[tuple[str, int, int, str], Phase] = {}
        self._group_slots: dict[str, int] = {}
        self.coded: dict[int, Phase] = {}
        """Phase by its number in the step log."""

    def phase(
        self, name: str, kind: wire.Kind, source: wire.Source = wire.Source.HOST, group: str = ""
    ) -> Phase | None:
        """The phase of that name, made at first use; None when there are too many to be names."""
        key = (name, kind, source, group)
        known = self._phases.get(key)
        if known is None and len(self._phases) < _PHASES_LIMIT:
            slot = self._page.phase(name, kind) if self._page is not None else None
            slot = SPARE_WORD if slot is None else slot
            made = Phase(next(self._codes), name, kind, source, group, slot)
            self.coded[made.code] = made
            known = self._phases.setdefault(key, made)
        return known

    def group(self, name: str) -> int:
        """Word of the shared page that counts the collectives of a process group; the next: when entered."""
        slot = self._group_slots.get(name)
        if slot is None:
            slot = self._page.group(name) if self._page is not None else None
            slot = self._group_slots[name] = SPARE_WORD if slot is None else slot
        return slot

    def forked(self) -> None:
        """The page is the parent's."""
        self._page = None


class _Clock:
    """What was told on one clock: all spans, and those that are no computing, which layers leave out."""

    __slots__ = ("spans", "waits")

    def __init__(self) -> None:
        self.spans = ExclusiveTime()
        self.waits = ExclusiveTime()

    def nested(self, phase: Phase | None, begin: int, end: int, measured: int) -> int:
        """As `ExclusiveTime.nested`."""
        if phase is None or phase.kind != _COMPUTE:
            self.waits.nested(begin, end, measured)
        return self.spans.nested(begin, end, measured)


class Packer:
    """Spans as wire records, and iterations onto the link with their running totals. One thread at a time."""

    def __init__(self, link: Link, log: StepLog, table: PhaseTable) -> None:
        self._link = link
        self._log = log
        self._table = table
        self._step = 1
        """Number of the iteration that the next entry of the log belongs to."""
        self._total_seconds = 0.0
        self._total_squared = 0.0
        self.last_iteration = b""
        """As it was queued; empty: none has ended."""
        self._training = _Clock()
        self._clocks: dict[int, _Clock] = {}
        """Of other threads, and of streams."""

    def mean_seconds(self) -> float:
        """How long an iteration takes, on average; 0: fewer than three were queued."""
        ended = self._step - 1
        return self._total_seconds / ended if ended >= _ITERATIONS_LEAST else 0.0

    def take(self, most: int, offset: int) -> tuple[list[bytes], int]:
        """Queue the iterations of the log; its spans as records, and how many were none."""
        coded, training, packed, dropped = self._table.coded, self._training, [], 0
        for entry in self._log.take(most):
            if entry[0] is GPU_SPAN:
                self._queue_gpu_span(*entry[1:])
                continue
            if len(entry) > 3:
                phase, begin, end, measured, step, clock = entry
                if type(phase) is LayerSample:
                    self._queue_layer(phase, begin, end, measured, step, clock, offset)
                    continue
                nested = self._clock(clock).nested(phase, begin, end, measured)
                if phase is not None:
                    packed.append(self._record(phase, begin + offset, measured, step, nested))
                continue
            code, begin, end = entry
            if code == ITERATION:
                self._queue_iteration(begin, end, offset)
                continue
            phase = coded.get(code)
            if phase is None or not 0 < begin <= end:  # its begin has failed
                dropped += 1
                continue
            nested = training.nested(phase, begin, end, end - begin)
            packed.append(self._record(phase, begin + offset, end - begin, self._step, nested))
        return packed, dropped

    def _record(self, phase: Phase, start_ns: int, duration_ns: int, step: int, nested_ns: int) -> bytes:
        """One record; `start_ns` is Unix time."""
        nested = _PACK_NESTED(nested_ns / 1e9) if nested_ns else _NOTHING_NESTED
        return _PACK_TIMES(start_ns, duration_ns, step) + (phase.packed or self._bind(phase)) + nested

    def _queue_layer(
        self, of: LayerSample, begin: int, end: int, measured: int, step: int, clock: int, offset: int
    ) -> None:
        """One sample; no span hears of it."""
        nested = min(self._clock(clock).waits.within(begin, end), measured)
        source = wire.Source.HOST if clock >= TRAINING_CLOCK else wire.Source.EVENT
        where = min(of.index, _LARGEST), min(of.microbatch, _LARGEST), source
        name_id = self._link.name_id(of.name)
        packed = _PACK_LAYER(begin + offset, measured, step, name_id, nested / 1e9, *where)
        self._link.add_packed(_LAYERS, packed)

    def _queue_gpu_span(self, phase: Phase, step: int, after_ns: int, duration_ns: int) -> None:
        name_id = self._link.name_id(phase.name)
        self._link.add_packed(_GPU_SPANS, _PACK_GPU_SPAN(step, after_ns, duration_ns, name_id, phase.kind))

    def _clock(self, clock: int) -> _Clock:
        if clock == TRAINING_CLOCK:
            return self._training
        known = self._clocks.get(clock)
        if known is None:
            if len(self._clocks) >= _CLOCKS_LIMIT:
                self._clocks.clear()
            known = self._clocks[clock] = _Clock()
        return known

    def skip(self, iterations: int) -> None:
        """Leave the oldest entries out: iterations alone, of a process that speaks for no rank yet."""
        self._step += sum(1 for _ in self._log.take(iterations))

    def _queue_iteration(self, start_ns: int, end_ns: int, offset: int) -> None:
        step, duration = self._step, max(end_ns - start_ns, 0)
        self._step = step + 1
        self._total_seconds += duration / 1e9
        self._total_squared += (duration / 1e9) ** 2
        totals = step, self._total_seconds, self._total_squared
        self.last_iteration = _PACK_ITERATION(step, end_ns + offset, duration, *totals)
        self._link.add_packed(_ITERATIONS, self.last_iteration)

    def repeat_iteration(self) -> None:
        """Queue the last one again: an exporter that has started while this rank hangs would hear of none."""
        if self.last_iteration:
            self._link.add_packed(_ITERATIONS, self.last_iteration)

    def _bind(self, phase: Phase) -> bytes:
        link = self._link
        group_id = link.name_id(phase.group) if phase.group else 0
        phase.packed = _PACK_PHASE(link.name_id(phase.name), group_id, phase.kind, phase.source, 0)
        return phase.packed
