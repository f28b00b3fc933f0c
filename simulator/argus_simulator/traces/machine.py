"""When everything happens: host issue, launch queue, streams, and collectives that end together.

Each rank works through its program. An operation starts when it is launched, its stream is free and what it
needs has ended. A communication starts alone and ends when the last member has come and the transfer is done.
Times are true time in seconds; clocks are skewed only when a trace is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.traces.faults import Fault, Pause, SlowData, SlowKernels, SlowLaunch, SlowLink
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.program import Operation, StepProgram, Work, step_program

_QUEUE = 1024
"""Launches that may wait on the device before the host has to."""
_ISSUE_S = 5e-6
_FOLLOW_S = 2e-6
_SYNC_S = 20e-6
_STEP_HOST_S = 1.5e-3
"""Host work between the end of a step and the next data fetch: logging, schedulers."""


@dataclass(frozen=True)
class Noise:
    """How much things vary. `shape_sigma`: log deviation of a microbatch's size, such as of images."""

    kernel_cv: float = 0.03
    step_cv: float = 0.01
    rank_cv: float = 0.004
    body_cv: float = 0.06
    outlier_probability: float = 0.003
    outlier_factor: float = 5.0
    launch_cv: float = 0.25
    shape_sigma: float = 0.0
    pause_probability: float = 0.2
    """Chance of a small garbage collection in a rank's step, 1 to 8 ms."""


@dataclass
class Done:
    """One operation that took place: `launch` to `start` is its issue latency."""

    operation: Operation
    step: int
    launch: float
    start: float
    end: float


@dataclass
class HostSpan:
    """Something the host did: category `data`, `gc`, `compile` or `iteration`."""

    category: str
    start: float
    end: float
    step: int


@dataclass
class RankTimeline:
    """Everything that happened on one rank, in order of launch."""

    rank: int
    done: list[Done] = field(default_factory=list)
    host: list[HostSpan] = field(default_factory=list)


@dataclass
class _Exchange:
    starts: dict[int, float] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """(rank, position among its operations)."""


class _Rank:
    """The program counter of one rank."""

    def __init__(self, rank: int) -> None:
        self.timeline = RankTimeline(rank)
        self.host = 0.0
        self.step = -1
        self.position = 0
        self.programs: list[StepProgram] = []
        self.base = 0
        self.stream_last: dict[str, int] = {}
        self.ends: list[float | None] = []
        self.pauses: list[tuple[int, float, str]] = []
        self.step_start = 0.0


class Machine:
    """Plays `steps` steps of a job. `faults` change times, never the random numbers."""

    def __init__(
        self, layout: Layout, work: Work, noise: Noise, faults: Sequence[Fault], steps: int, seed: int
    ) -> None:
        self._layout, self._noise, self._steps, self._seed, self._work = layout, noise, steps, seed, work
        self._slow = [fault for fault in faults if isinstance(fault, SlowKernels)]
        self._links = {fault.group: fault for fault in faults if isinstance(fault, SlowLink)}
        self._pauses = [fault for fault in faults if isinstance(fault, Pause)]
        self._launches = {fault.rank: fault for fault in faults if isinstance(fault, SlowLaunch)}
        self._data = {fault.rank: fault for fault in faults if isinstance(fault, SlowData)}
        self._programs = [step_program(layout, rank, work) for rank in range(layout.ranks)]
        self._exchanges: dict[tuple[int, tuple[str, str, int]], _Exchange] = {}
        self._ranks = [_Rank(rank) for rank in range(layout.ranks)]
        self._factors: dict[tuple[int, int], NDArray[np.float64]] = {}
        self._rank_effect = np.exp(noise.rank_cv * self._random(1 << 20, 0).standard_normal(layout.ranks))

    def run(self) -> list[RankTimeline]:
        """All timelines, by rank."""
        active = True
        while active:
            active = max(self._advance(rank) for rank in self._ranks)
        for rank in self._ranks:
            if rank.step < self._steps:
                raise ArgusSimulatorError(f"rank {rank.timeline.rank} waits for ever in step {rank.step}")
        return [rank.timeline for rank in self._ranks]

    # -- one rank -------------------------------------------------------------------------------------------

    def _advance(self, rank: _Rank) -> bool:
        """Go on until the rank has to wait for another's time to be known; whether it moved."""
        moved = False
        while rank.step < self._steps:
            program = self._programs[rank.timeline.rank].operations
            if rank.step < 0 or rank.position == len(program):
                if not self._next_step(rank):
                    return moved
            elif not self._launch(rank, program[rank.position]):
                return moved
            moved = True
        return moved

    def _next_step(self, rank: _Rank) -> bool:
        number, timeline = rank.timeline.rank, rank.timeline
        if rank.step >= 0:
            ends = rank.ends[rank.base :]
            if any(end is None for end in ends):
                return False
            # The step ends with the loss on the host: everything has to be done.
            finished = max(end for end in ends if end is not None) + _SYNC_S
            rank.host = max(rank.host, finished)
            timeline.host.append(HostSpan("iteration", rank.step_start, rank.host, rank.step))
        rank.step += 1
        if rank.step >= self._steps:
            return True
        rank.position, rank.base = 0, len(rank.ends)
        random = self._random(number, rank.step, 1)
        rank.host += _STEP_HOST_S * float(np.exp(0.2 * random.standard_normal()))
        rank.step_start = rank.host
        wait = self._work.data * float(np.exp(0.3 * random.standard_normal()))
        slow = self._data.get(number)
        if slow is not None and (slow.steps is None or rank.step in slow.steps):
            wait += slow.seconds
        timeline.host.append(HostSpan("data", rank.host, rank.host + wait, rank.step))
        rank.host += wait
        count = len(self._programs[number].operations)
        rank.pauses = [
            (int(pause.position * count), pause.seconds, pause.kind)
            for pause in self._pauses
            if pause.rank == number and pause.step == rank.step
        ]
        small = random.random(3)
        if small[0] < self._noise.pause_probability:
            rank.pauses.append((int(small[1] * count), 1e-3 + 7e-3 * float(small[2]), "gc"))
        return True

    def _launch(self, rank: _Rank, operation: Operation) -> bool:
        number, step = rank.timeline.rank, rank.step
        needs = [rank.base + position for position in operation.needs]
        before = rank.stream_last.get(operation.stream)
        if before is not None:
            needs.append(before)
        queued = len(rank.ends) - _QUEUE
        if queued >= 0:
            needs.append(queued)
        ends = [rank.ends[position] for position in needs]
        known = [end for end in ends if end is not None]
        if len(known) < len(ends):
            return False
        factors = self._of_step(number, step)
        self._pause(rank)
        cost = self._work.launch * factors[1, rank.position]
        slow = self._launches.get(number)
        if slow is not None and (slow.steps is None or step in slow.steps):
            cost *= slow.factor
        rank.host += cost
        if queued >= 0:
            rank.host = max(rank.host, known.pop())
        launch = rank.host
        # A kernel follows what it waited for after a gap of one to three microseconds.
        gap = _FOLLOW_S * (0.5 + factors[2, rank.position])
        start = max(
            [launch + _ISSUE_S * (0.8 + 0.4 * factors[2, rank.position]), *(end + gap for end in known)]
        )
        self._start(rank, operation, launch, start, float(factors[0, rank.position]))
        rank.stream_last[operation.stream] = len(rank.ends) - 1
        rank.position += 1
        return True

    def _pause(self, rank: _Rank) -> None:
        for position, seconds, kind in rank.pauses:
            if position == rank.position:
                if kind != "silent":
                    rank.timeline.host.append(HostSpan(kind, rank.host, rank.host + seconds, rank.step))
                rank.host += seconds

    def _start(self, rank: _Rank, operation: Operation, launch: float, start: float, factor: float) -> None:
        done = Done(operation, rank.step, launch, start, start)
        rank.timeline.done.append(done)
        number = rank.timeline.rank
        if operation.exchange is None:
            for slow in self._slow:
                if slow.applies(number, rank.step, operation.phase, operation.name):
                    factor *= slow.factor
            done.end = start + operation.base_s * factor
            rank.ends.append(done.end)
            return
        rank.ends.append(None)
        exchange = self._exchanges.setdefault((rank.step, operation.exchange), _Exchange())
        exchange.starts[number] = start
        exchange.waiting.append((number, len(rank.ends) - 1))
        if len(exchange.starts) == len(operation.peers):
            self._finish(rank.step, operation, exchange)

    def _finish(self, step: int, operation: Operation, exchange: _Exchange) -> None:
        assert operation.exchange is not None
        random = self._random(1 << 21, step, hash_of(operation.exchange))
        body = operation.base_s * float(np.exp(self._noise.body_cv * random.standard_normal()))
        if random.random() < self._noise.outlier_probability:
            body *= 1 + float(random.random()) * (self._noise.outlier_factor - 1)
        link = self._links.get(operation.group)
        if link is not None and (link.steps is None or step in link.steps):
            body *= link.factor
        end = max(exchange.starts.values()) + body
        for number, position in exchange.waiting:
            # Members leave within microseconds of each other.
            own = end + 2e-6 * float(random.random())
            self._ranks[number].ends[position] = own
            self._ranks[number].timeline.done[position].end = own
        del self._exchanges[step, operation.exchange]

    # -- randomness -----------------------------------------------------------------------------------------

    def _of_step(self, rank: int, step: int) -> NDArray[np.float64]:
        """Factors of a rank's operations in a step, shape (3, operations): duration, launch, latency."""
        key = (rank, step)
        if key not in self._factors:
            operations = self._programs[rank].operations
            noise, random = self._noise, self._random(rank, step)
            duration = np.exp(noise.kernel_cv * random.standard_normal(len(operations)))
            chance, size = random.random((2, len(operations)))
            outliers = chance < noise.outlier_probability
            duration[outliers] *= 1 + size[outliers] * (noise.outlier_factor - 1)
            duration *= self._rank_effect[rank] * np.exp(noise.step_cv * random.standard_normal())
            if noise.shape_sigma > 0:
                # All ranks that handle a replica's microbatch see its shape.
                replica = self._layout.place(rank)["dp"]
                shapes = np.exp(
                    noise.shape_sigma
                    * self._random(1 << 22, step, replica).standard_normal(self._work.microbatches)
                )
                duration *= np.array(
                    [shapes[one.microbatch] if one.kind == "compute" and one.microbatch >= 0 else 1.0
                     for one in operations]
                )  # fmt: skip
            launch = np.exp(noise.launch_cv * random.standard_normal(len(operations)))
            self._factors[key] = np.stack([duration, launch, random.random(len(operations))])
        return self._factors[key]

    def _random(self, stream: int, step: int, part: int = 0) -> np.random.Generator:
        key = [self._seed & 0xFFFFFFFF, (stream << 36) ^ (step << 24) ^ (part & 0xFFFFFF)]
        return np.random.Generator(np.random.Philox(key=key))


def hash_of(exchange: tuple[str, str, int]) -> int:
    """A number for an exchange that is the same in every process, unlike `hash`."""
    value = 2166136261
    for byte in f"{exchange[0]}/{exchange[1]}/{exchange[2]}".encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value
