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
from argus_training.step_log import ITERATION, TRAINING_CLOCK, StepLog

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
        self._training = ExclusiveTime()
        self._clocks: dict[int, ExclusiveTime] = {}
        """Of other threads, and of streams."""

    def take(self, most: int, offset: int) -> tuple[list[bytes], int]:
        """Queue the iterations of the log; its spans as records, and how many were none."""
        coded, training, packed, dropped = self._table.coded, self._training, [], 0
        for entry in self._log.take(most):
            if len(entry) > 3:
                phase, begin, end, measured, step, clock = entry
                nested = self._clock(clock).nested(begin, end, measured)
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
            nested = training.nested(begin, end, end - begin)
            packed.append(self._record(phase, begin + offset, end - begin, self._step, nested))
        return packed, dropped

    def _record(self, phase: Phase, start_ns: int, duration_ns: int, step: int, nested_ns: int) -> bytes:
        """One record; `start_ns` is Unix time."""
        nested = _PACK_NESTED(nested_ns / 1e9) if nested_ns else _NOTHING_NESTED
        return _PACK_TIMES(start_ns, duration_ns, step) + (phase.packed or self._bind(phase)) + nested

    def _clock(self, clock: int) -> ExclusiveTime:
        if clock == TRAINING_CLOCK:
            return self._training
        known = self._clocks.get(clock)
        if known is None:
            if len(self._clocks) >= _CLOCKS_LIMIT:
                self._clocks.clear()
            known = self._clocks[clock] = ExclusiveTime()
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
        self._link.add_packed(_ITERATIONS, _PACK_ITERATION(step, end_ns + offset, duration, *totals))

    def _bind(self, phase: Phase) -> bytes:
        link = self._link
        group_id = link.name_id(phase.group) if phase.group else 0
        phase.packed = _PACK_PHASE(link.name_id(phase.name), group_id, phase.kind, phase.source, 0)
        return phase.packed
