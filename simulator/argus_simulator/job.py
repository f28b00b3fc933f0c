"""The simulated job: computes each step of all ranks, with noise and faults, as spans and kernels.

Time is simulated and starts at 0; whoever plays the job adds the epoch. A collective ends together: a rank
that is late has the shortest span in it and its peers the longest (propagation P0 of the fault catalogue).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_records import KERNEL_DTYPE
from argus_core.wire import Operation
from argus_simulator import kernels, schedule
from argus_simulator.faults import Damage, Fault, damage
from argus_simulator.noise import Floats, Noise, NoiseLevels, StepNoise
from argus_simulator.timeline import Busy, Interval, Join, execute
from argus_simulator.timeline import Operation as TimedOperation
from argus_simulator.topology import Topology

_BUSY_SHARE = 0.92
"""Share of a healthy compute phase in which a kernel runs; the rest is launch gaps."""
_COPY_SHARE = 0.3
"""Share of the healthy data phase that the copy to the GPU takes, at its end."""


@dataclass(frozen=True)
class JobShape:
    """What a healthy job is: who takes part, how long a step lasts, how much it varies."""

    topology: Topology
    step_seconds: float
    noise: NoiseLevels


@dataclass(frozen=True)
class Span:
    """One phase of one rank in one step."""

    phase: schedule.Phase
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class RankStep:
    """What one rank did in one step. `kernels`: `KERNEL_DTYPE` with `name_id` indexing `all_names()`."""

    rank: int
    start_ns: int
    end_ns: int
    spans: tuple[Span, ...]
    kernels: NDArray[np.void]


@dataclass(frozen=True)
class _Launches:
    """Kernels of a phase before they are placed: durations in ns and the time that the phase takes."""

    phase: str
    durations_ns: NDArray[np.int64]
    total_ns: int


class Job:
    """Computes steps in order.

    Args:
        shape: the healthy job.
        faults: what is wrong with it.
        seed: of all noise.
        noise_streams: which noise each rank has; default: its own number. Lets a test relabel ranks.
    """

    def __init__(
        self, shape: JobShape, faults: Sequence[Fault], seed: int, noise_streams: Sequence[int] | None = None
    ) -> None:
        self.shape = shape
        self.faults = tuple(faults)
        self._noise = Noise(seed, shape.noise)
        ranks = shape.topology.ranks
        self._streams = tuple(noise_streams) if noise_streams is not None else tuple(range(ranks))
        self._phases = schedule.step_phases(shape.topology)
        self._now = [0] * ranks
        self._step = 0
        self._name_ids = {name: index for index, name in enumerate(kernels.all_names())}

    def next_step(self) -> list[RankStep]:
        """The next step of every rank, in rank order."""
        step, topology = self._step, self.shape.topology
        programs: list[list[TimedOperation]] = []
        launches: list[list[_Launches | None]] = []
        for rank in range(topology.ranks):
            program, of_rank = self._rank_program(rank, step)
            programs.append(program)
            launches.append(of_rank)
        finished = execute(programs, self._now)
        self._now = [intervals[-1].end_ns for intervals in finished]
        self._step += 1
        return [self._rank_step(rank, intervals, launches[rank]) for rank, intervals in enumerate(finished)]

    def _rank_program(self, rank: int, step: int) -> tuple[list[TimedOperation], list[_Launches | None]]:
        noise = self._noise.of_rank(self._streams[rank], step)
        harm = damage(self.faults, rank, step)
        program: list[TimedOperation] = []
        launches: list[_Launches | None] = []
        for index, phase in enumerate(self._phases):
            if phase.along is not None:
                program.append(self._join(rank, step, index, phase))
                launches.append(None)
            elif phase is schedule.GAP:
                seconds = phase.share * self.shape.step_seconds * noise.factor() + harm.late_seconds
                program.append(Busy(phase.name, _ns(seconds)))
                launches.append(None)
            else:
                run = self._phase_launches(phase, noise, harm)
                program.append(Busy(phase.name, run.total_ns))
                launches.append(run)
        return program, launches

    def _join(self, rank: int, step: int, index: int, phase: schedule.Phase) -> Join:
        assert phase.along is not None
        members = self.shape.topology.members(rank, phase.along)
        # A group's noise follows its members' streams, so that it stays with them when ranks are relabelled.
        stream = min(self._streams[member] for member in members) * len(self._phases) + index
        body = phase.share * self.shape.step_seconds * self._noise.of_group(stream, step).factor()
        return Join(phase.name, (f"{phase.name}#{index}", members[0]), max(1, _ns(body)), members)

    def _phase_launches(self, phase: schedule.Phase, noise: StepNoise, harm: Damage) -> _Launches:
        """Durations from the kernels up: a slow kernel makes its phase longer by exactly what it costs."""
        plan = kernels.PLANS[phase.name]
        healthy = phase.share * self.shape.step_seconds
        step_factor, idle = noise.factor(), noise.idle_share()
        variation = noise.kernel_factors(len(plan.kind_of_launch))
        if phase is schedule.DATA:
            copies = healthy * _COPY_SHARE * plan.relative_seconds * variation * _of_kernels(harm, plan)
            loader = healthy * (1 - _COPY_SHARE) * (step_factor + idle)
            # A slow loader makes the whole phase `factor` times as long and leaves the copies alone.
            extra = (harm.host_factor(phase.name) - 1) * (loader + float(copies.sum()))
            durations, other = copies, loader + extra
        else:
            factors = harm.kernel_factors(phase.name, plan)
            durations = healthy * _BUSY_SHARE * step_factor * plan.relative_seconds * variation * factors
            other = healthy * (1 - _BUSY_SHARE + idle) * harm.host_factor(phase.name)
        durations_ns = np.maximum(1, np.rint(durations * 1e9)).astype(np.int64)
        return _Launches(phase.name, durations_ns, int(durations_ns.sum()) + _ns(other))

    def _rank_step(self, rank: int, intervals: list[Interval], launches: list[_Launches | None]) -> RankStep:
        spans: list[Span] = []
        records: list[NDArray[np.void]] = []
        for phase, interval, run in zip(self._phases, intervals, launches, strict=True):
            if phase is schedule.GAP:
                continue
            spans.append(Span(phase, interval.start_ns, interval.duration_ns))
            records.append(self._collective(phase, interval) if run is None else self._place(run, interval))
        return RankStep(
            rank, intervals[0].start_ns, intervals[-1].end_ns, tuple(spans), np.concatenate(records)
        )

    def _place(self, run: _Launches, interval: Interval) -> NDArray[np.void]:
        """Kernels back to back with equal gaps inside the phase; the loader's copies come at its end."""
        plan = kernels.PLANS[run.phase]
        idle = interval.duration_ns - int(run.durations_ns.sum())
        before = np.concatenate(([0], np.cumsum(run.durations_ns[:-1])))
        if run.phase == schedule.DATA.name:
            starts = interval.start_ns + idle + before
        else:
            starts = interval.start_ns + before + idle * np.arange(1, len(before) + 1) // (len(before) + 1)
        kinds = [plan.kinds[index] for index in plan.kind_of_launch]
        records = np.zeros(len(before), KERNEL_DTYPE)
        records["start_ns"] = starts
        records["duration_ns"] = run.durations_ns
        records["issue_ns"] = -1
        records["name_id"] = [self._name_ids[kind.name] for kind in kinds]
        records["stream"] = [kind.stream for kind in kinds]
        records["operation"] = [kind.operation for kind in kinds]
        return records

    def _collective(self, phase: schedule.Phase, interval: Interval) -> NDArray[np.void]:
        records = np.zeros(1, KERNEL_DTYPE)
        records["start_ns"] = interval.start_ns
        records["duration_ns"] = interval.duration_ns
        records["issue_ns"] = -1
        records["name_id"] = self._name_ids[kernels.COLLECTIVE_NAMES[phase.name]]
        records["stream"] = kernels.COMM_STREAM
        records["operation"] = Operation.KERNEL
        return records


def _of_kernels(harm: Damage, plan: kernels.KernelPlan) -> Floats:
    """Factors of faults that name kernels; a slow data phase is the loader, not the copy."""
    return Damage(tuple(fault for fault in harm.faults if fault.kernels is not None)).kernel_factors("", plan)


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e9))
