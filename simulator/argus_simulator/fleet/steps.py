"""Plays the steps of all ranks at once: who works how long, who waits for whom, and the totals of it.

A collective starts at a rank's own arrival and ends, for all members alike, at the latest arrival plus the
transfer; so a late rank has the shortest span in it and its peers the longest. Durations in seconds, arrays
by rank.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from argus_simulator.fleet import program
from argus_simulator.fleet.bank import STEP_CV
from argus_simulator.fleet.faults import Faults
from argus_simulator.fleet.kernel_table import PLANS
from argus_simulator.fleet.ranks import Floats, Ints, Layout

EXTREMES_SECONDS: Final = 60.0
"""Trailing window of the exporter's extremes (`windows.extremes_seconds`)."""
_CHIP_CV: Final = 0.005
_HICCUP_SHARE: Final = 0.0005
"""Rank-phases that the host delays by up to half the phase."""
_GC_EVERY_STEPS: Final = 10
_GC_SECONDS: Final = 0.002


@dataclass(frozen=True)
class Step:
    """One step of all ranks.

    Attributes:
        start: shape (ranks,).
        boundaries: ends of the program's operations in order, shape (operations, ranks); infinite where a
            rank never gets there.
        pauses: garbage collection in it, shape (ranks,).
    """

    start: Floats
    boundaries: Floats
    pauses: Floats

    @property
    def end(self) -> Floats:
        last: Floats = self.boundaries[-1]
        return last

    def durations(self) -> Floats:
        """Of each operation, shape (operations, ranks)."""
        return np.diff(np.vstack((self.start, self.boundaries)), axis=0)


@dataclass
class Totals:
    """What the producers have counted. By phase: (distinct phases, ranks)."""

    steps: int
    iteration_seconds: Floats
    iteration_squared: Floats
    phase_seconds: Floats
    phase_count: Ints
    gc_count: Floats
    gc_seconds: Floats
    last_end: Floats


@dataclass
class _Recent:
    """One step, as long as it counts for the trailing extremes."""

    end: float
    iteration: Floats
    longest: Floats


@dataclass
class Steps:
    """The job from its first step on; time 0 is its start.

    Args:
        first_step: number of the first one: a job that is watched has been running.
    """

    layout: Layout
    step_seconds: float
    faults: Faults
    seed: int
    first_step: int = 1000
    totals: Totals = field(init=False)
    window_phase_seconds: Floats = field(init=False)
    """Sum by distinct phase since `take_window`, shape (phases, ranks)."""
    last_phase_seconds: Floats = field(init=False)
    """Of the last finished step, same shape."""
    _recent: deque[_Recent] = field(default_factory=deque)

    def __post_init__(self) -> None:
        ranks = self.layout.ranks
        self.operations = program.step_phases(self.layout)
        self.phases = program.distinct_phases(self.layout)
        self._phase_of = [
            -1 if phase is program.GAP else self.phases.index(phase) for phase in self.operations
        ]
        count = np.array([self._phase_of.count(index) for index in range(len(self.phases))])
        before = self.first_step
        healthy = np.array([phase.share for phase in self.phases])[:, None] * self.step_seconds
        self.totals = Totals(
            before,
            np.full(ranks, before * self.step_seconds),
            np.full(ranks, before * self.step_seconds**2),
            np.tile(before * healthy * count[:, None], (1, ranks)),
            before * count,
            np.full(ranks, float(before // _GC_EVERY_STEPS)),
            np.full(ranks, before // _GC_EVERY_STEPS * _GC_SECONDS),
            np.zeros(ranks),
        )
        self._counts_a_step = count
        self.window_phase_seconds = np.zeros((len(self.phases), ranks))
        self.last_phase_seconds = np.zeros((len(self.phases), ranks))
        rng = np.random.default_rng([self.seed, 1])
        self.chips: Floats = np.exp(_CHIP_CV * rng.standard_normal(ranks))
        """Each GPU's own speed, as a factor on its compute."""
        self.running = self._play(np.zeros(ranks), before)

    def advance(self, now: float) -> int:
        """Finish all steps that have ended by `now`; how many. Call `next_step_end` to go step by step."""
        finished = 0
        while self.next_step_end <= now:
            self._finish(self.running)
            self.running = self._play(self.running.end, self.totals.steps)
            finished += 1
        return finished

    @property
    def next_step_end(self) -> float:
        """When the slowest rank ends the step that runs now; infinite in a hang."""
        return float(self.running.end.max())

    def extremes(self, now: float) -> tuple[Floats, Floats, Floats] | None:
        """Shortest and longest iteration and longest span by phase of the trailing window."""
        while self._recent and self._recent[0].end <= now - EXTREMES_SECONDS:
            self._recent.popleft()
        if not self._recent:
            return None
        iterations = np.stack([step.iteration for step in self._recent])
        longest = np.maximum.reduce([step.longest for step in self._recent])
        return iterations.min(axis=0), iterations.max(axis=0), longest

    def take_window(self) -> Floats:
        """Seconds by phase since the last call, shape (phases, ranks)."""
        taken, self.window_phase_seconds = self.window_phase_seconds, np.zeros_like(self.window_phase_seconds)
        return taken

    def open_operation(self, now: float) -> tuple[Ints, Floats]:
        """Number of the operation that every rank is in (past the last: none), and when it began."""
        place = (self.running.boundaries <= now).sum(axis=0)
        edges = np.vstack((self.running.start, self.running.boundaries))
        return place, np.take_along_axis(edges, place[None, :], axis=0)[0]

    def compute_factors(self, phase: program.FleetPhase, seconds: float) -> Floats:
        """What the rank's GPU and its faults make of a compute phase, but for its kernels' own faults."""
        factor = self.chips.copy()
        for fault, members in self.faults.active("phase", seconds):
            if fault.phase == phase.name:
                factor[members] *= fault.factor
        return factor

    def kernel_cost(self, phase: program.FleetPhase, seconds: float) -> Floats:
        """Factor on the phase's time that slow kernels in it cause, shape (ranks,)."""
        cost = np.ones(self.layout.ranks)
        if phase.name in PLANS and phase.kind == "compute":
            plan = PLANS[phase.name]
            for fault, members in self.faults.active("kernels", seconds):
                hit = float(plan.relative_seconds[plan.matching(fault.kernels)].sum())
                cost[members] += hit * (fault.factor - 1)
        return cost

    def _finish(self, step: Step) -> None:
        durations, iteration = step.durations(), step.end - step.start
        by_phase = np.zeros((len(self.phases), self.layout.ranks))
        longest = np.zeros_like(by_phase)
        for place, row in zip(self._phase_of, durations, strict=True):
            if place >= 0:
                by_phase[place] += row
                longest[place] = np.maximum(longest[place], row)
        totals = self.totals
        totals.steps += 1
        totals.iteration_seconds += iteration
        totals.iteration_squared += iteration**2
        totals.phase_seconds += by_phase
        totals.phase_count += self._counts_a_step
        totals.gc_count += step.pauses > 0
        totals.gc_seconds += step.pauses
        totals.last_end = step.end
        self.window_phase_seconds += by_phase
        self.last_phase_seconds = by_phase
        self._recent.append(_Recent(float(step.end.max()), iteration, longest))

    def _play(self, start: Floats, number: int) -> Step:
        # Addressed by (seed, step): the noise is the same whatever the faults.
        rng = np.random.default_rng([self.seed, 2, number])
        now, ends = start, []
        seconds = float(start.max())
        hang = self.faults.ranks_with("hang", seconds)
        pauses = self._pauses(seconds, number, rng)
        for phase in self.operations:
            work = self._work(phase, seconds, rng)
            if phase is program.GAP:
                # The pause falls into a compute phase by turns; before the all-reduce nobody hides it.
                work = work + pauses
                for fault, members in self.faults.active("late", seconds):
                    work[members] += fault.late
            if phase is program.FORWARD and hang.any():
                work = np.where(hang, math.inf, work)
            if phase.along is not None:
                now = self.layout.last_of_group(now, phase.along)
                work = self._transfer(phase, work, seconds)
            now = now + work
            ends.append(now)
        return Step(start, np.stack(ends), pauses)

    def _work(self, phase: program.FleetPhase, seconds: float, rng: np.random.Generator) -> Floats:
        ranks, healthy = self.layout.ranks, phase.share * self.step_seconds
        noise = np.exp(STEP_CV * rng.standard_normal(ranks))
        delayed, by = rng.random((2, ranks))
        work: Floats = healthy * noise
        if phase.kind == "compute":
            work *= self.compute_factors(phase, seconds) * self.kernel_cost(phase, seconds)
        elif phase.kind == "host":
            for fault, members in self.faults.active("phase", seconds):
                if fault.phase == phase.name:
                    work[members] *= fault.factor
        if phase.along is None:
            work += healthy * by / 2 * (delayed < _HICCUP_SHARE)
        return work

    def _transfer(self, phase: program.FleetPhase, noise: Floats, seconds: float) -> Floats:
        """The same for all members of a group: the noise of its slowest member, times what slows its link."""
        assert phase.along is not None
        healthy = phase.share * self.step_seconds
        factor = np.ones(self.layout.ranks)
        for fault, members in self.faults.active("phase", seconds):
            if fault.phase == phase.name:
                factor[members] *= fault.factor
        slowest = self.layout.last_of_group(noise / healthy, phase.along)
        return healthy * slowest * self.layout.last_of_group(factor, phase.along)

    def _pauses(self, seconds: float, number: int, rng: np.random.Generator) -> Floats:
        """A short collection on every rank at the same steps; long ones where a fault says so, at random."""
        ranks = self.layout.ranks
        pauses = np.full(ranks, _GC_SECONDS if number % _GC_EVERY_STEPS == 0 else 0.0)
        chance = rng.random(ranks)
        for fault, members in self.faults.active("gc", seconds):
            pauses[members & (chance < 1 / _GC_EVERY_STEPS)] += fault.gc
        return pauses


def window_steps(step_seconds: float, window_seconds: float = 60.0) -> int:
    """Steps in a kernel window, as the exporter derives them from the median step time at first."""
    return int(2 ** max(0, math.floor(math.log2(window_seconds / step_seconds) + 0.3)))


def by_name(phases: tuple[program.FleetPhase, ...]) -> Mapping[str, int]:
    return {phase.name: index for index, phase in enumerate(phases)}
