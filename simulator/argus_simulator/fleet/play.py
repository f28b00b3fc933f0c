"""Plays a fleet into a sink: history as fast as it goes, then in real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from argus_simulator.fleet.bank import bank
from argus_simulator.fleet.exposition import Exposition
from argus_simulator.fleet.faults import CHANNELS, Faults, FleetFault
from argus_simulator.fleet.kernel_windows import KernelWindows
from argus_simulator.fleet.ranks import Floats, Layout
from argus_simulator.fleet.sinks import Sink
from argus_simulator.fleet.steps import Steps, window_steps


@dataclass(frozen=True)
class FleetPlan:
    """What is played. Raises ValueError with the value and what is allowed."""

    layout: Layout
    training_job: str = "fleet"
    step_seconds: float = 4.0
    seed: int = 0
    faults: tuple[FleetFault, ...] = ()
    channels: tuple[str, ...] = CHANNELS
    top_pairs: int = 20
    target_labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < len(self.training_job.encode()) <= 64:
            raise ValueError(f"job is {self.training_job!r}; allowed: 1 to 64 bytes")
        if not 0.1 <= self.step_seconds <= 600:
            raise ValueError(f"step is {self.step_seconds:g} s; allowed: 0.1 to 600")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; allowed: 0 or more")
        if not 1 <= self.top_pairs <= 200:
            raise ValueError(f"pairs is {self.top_pairs}; allowed: 1 to 200")
        unknown = set(self.channels) - set(CHANNELS)
        if unknown or "phases" not in self.channels:
            raise ValueError(
                f"channels is {','.join(self.channels)!r}; allowed: phases, and of kernels and stacks any"
            )


class Fleet:
    """A fleet at one moment, which only moves forward.

    Args:
        began: Unix time of its first sample.

    Raises:
        WrongFault: a fault names ranks that the layout does not have.
    """

    def __init__(self, plan: FleetPlan, began: float) -> None:
        faults = Faults(plan.layout, plan.faults)
        faults.check()
        self.began = began
        self._steps = Steps(plan.layout, plan.step_seconds, faults, plan.seed)
        length = window_steps(plan.step_seconds)
        pairs = bank(plan.layout, plan.step_seconds, length, np.random.default_rng([plan.seed, 4]))
        self._windows = KernelWindows(self._steps, pairs, plan.top_pairs, length)
        self._with_kernels = "kernels" in plan.channels
        self._exposition = Exposition(
            plan.training_job,
            plan.layout,
            self._steps,
            self._windows,
            began,
            plan.channels,
            plan.target_labels,
        )
        self.blocks = self._exposition.blocks()
        self._of_ranks = [index for index, block in enumerate(self.blocks) if "rank" in block.base[0]]

    def sample(self, at: float) -> list[Floats]:
        """Values of every block at Unix time `at`, which must not go back."""
        now = at - self.began
        while self._steps.next_step_end <= now:
            self._steps.advance(self._steps.next_step_end)
            ended = float(self._steps.totals.last_end.max())
            if self._with_kernels:
                self._windows.count(ended)
            if self._with_kernels and self._steps.totals.steps % self._windows.window_steps == 0:
                self._windows.close(ended)
        self._exposition.now = now
        values = [
            np.asarray(block.values(), float).reshape(len(block.rows), len(block.base))
            for block in self.blocks
        ]
        present = sum(int((~np.isnan(values[index])).sum()) for index in self._of_ranks)
        self._exposition.samples_a_rank = present / len(self.blocks[self._of_ranks[0]].base)
        return values


@dataclass(frozen=True)
class Written:
    """How far a run is: samples of all series at one time."""

    number: int
    of: int
    at: float
    series: int


def history(end: float, seconds: float, every: float) -> Sequence[float]:
    """Times of the samples, `every` seconds, the last one at `end`."""
    count = int(seconds // every) + 1
    return [end - every * (count - 1 - index) for index in range(count)]


def play(fleet: Fleet, sink: Sink, times: Sequence[float]) -> Iterator[Written]:
    """Write the fleet's samples at `times`, ascending. The caller opens and closes the sink."""
    for number, at in enumerate(times, 1):
        yield Written(number, len(times), at, sink.write(at, fleet.sample(at)))


def play_live(
    fleet: Fleet,
    sink: Sink,
    seconds: float,
    every: float,
    *,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Written]:
    """Go on in real time, one sample every so many seconds."""
    count, started = int(seconds // every), clock()
    for number in range(1, count + 1):
        due = started + number * every
        if due > clock():
            wait(due - clock())
        at = max(due, clock())
        yield Written(number, count, at, sink.write(at, fleet.sample(at)))
