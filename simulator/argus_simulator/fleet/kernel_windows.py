"""What the kernel channel of every rank publishes: the modes of its top pairs in the last complete window."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_simulator.fleet.bank import SAMPLE, Pair
from argus_simulator.fleet.ranks import Floats
from argus_simulator.fleet.steps import Steps

_STAYS_WITHIN: Final = 1.25
"""As in the exporter: a pair takes a published one's place when it is larger by this factor."""


@dataclass
class KernelWindows:
    """Windows of all ranks. Arrays of modes have shape (pairs, modes, ranks), NaN where nothing is published.

    Args:
        top: pairs that a rank publishes.
        window_steps: steps in a window.
    """

    steps: Steps
    pairs: list[Pair]
    top: int
    window_steps: int
    events: Floats = field(init=False)
    p50: Floats = field(init=False)
    p99: Floats = field(init=False)
    tail: Floats = field(init=False)
    """Shape (pairs, ranks), as all that follow but for the shares."""
    launches: Floats = field(init=False)
    seconds: Floats = field(init=False)
    coverage: Floats = field(init=False)
    cutoff: Floats = field(init=False)
    last_step: int = -1

    def __post_init__(self) -> None:
        ranks, pairs = self.steps.layout.ranks, len(self.pairs)
        self._width = max(pair.modes.shape[1] for pair in self.pairs)
        self.events, self.p50, self.p99 = (np.full((pairs, self._width, ranks), np.nan) for _ in range(3))
        self.tail = np.full((pairs, ranks), np.nan)
        self.coverage, self.cutoff = np.full(ranks, np.nan), np.full(ranks, np.nan)
        self._published: NDArray[np.bool_] = np.zeros((pairs, ranks), bool)
        a_step = np.array([pair.launches for pair in self.pairs])[:, None]
        seconds = np.array([self._healthy_step(pair) for pair in self.pairs])[:, None]
        before = self.steps.first_step
        self.launches = np.tile(float(before) * a_step, (1, ranks))
        self.seconds = np.tile(before * seconds, (1, ranks))

    def _healthy_step(self, pair: Pair) -> float:
        if pair.collective:
            return pair.launches * pair.phase.share * self.steps.step_seconds
        return pair.step_seconds

    @property
    def published(self) -> NDArray[np.bool_]:
        """Shape (pairs, ranks)."""
        return self._published

    def count(self, now: float) -> None:
        """Take the step that has just ended into the totals: these advance with the records."""
        of_phase = dict(zip(self.steps.phases, self.steps.last_phase_seconds, strict=True))
        for index, pair in enumerate(self.pairs):
            self.launches[index] += pair.launches
            if pair.collective:
                self.seconds[index] += of_phase[pair.phase]
            else:
                self.seconds[index] += pair.step_seconds * self._compute_factor(pair, now)

    def close(self, now: float) -> None:
        """Take the window that has just ended: call after the step that closes it."""
        steps, ranks = self.steps, self.steps.layout.ranks
        of_phase = dict(zip(steps.phases, steps.take_window(), strict=True))
        rng = np.random.default_rng([steps.seed, 3, steps.totals.steps])
        spent = np.empty((len(self.pairs), ranks))
        for index, pair in enumerate(self.pairs):
            drawn = pair.modes[rng.integers(0, SAMPLE, ranks)]
            events = pair.launches * self.window_steps
            if pair.collective:
                factor = of_phase[pair.phase] / events
                spent[index] = of_phase[pair.phase]
            else:
                factor = self._compute_factor(pair, now)
                spent[index] = pair.step_seconds * self.window_steps * factor
            count = np.where(drawn[:, :, 0] > 0, drawn[:, :, 0], np.nan).T
            width = count.shape[0]
            self.events[index, :width] = count
            self.p50[index, :width] = np.where(np.isnan(count), np.nan, drawn[:, :, 1].T * factor)
            self.p99[index, :width] = np.where(np.isnan(count), np.nan, drawn[:, :, 2].T * factor)
            self.tail[index] = pair.tail[rng.integers(0, SAMPLE, ranks)]
        self._choose(spent)
        self.last_step = steps.totals.steps
        hidden = ~self._published
        for values in (self.events, self.p50, self.p99):
            values[hidden[:, None, :] & np.ones_like(values, bool)] = np.nan
        self.tail[hidden] = np.nan

    def _compute_factor(self, pair: Pair, now: float) -> Floats:
        if pair.phase.kind != "compute":
            return np.ones(self.steps.layout.ranks)
        factor = self.steps.compute_factors(pair.phase, now)
        for fault, members in self.steps.faults.active("kernels", now):
            if fnmatchcase(pair.name, fault.kernels):
                factor[members] *= fault.factor
        return factor

    def _choose(self, spent: Floats) -> None:
        """The largest pairs of every rank, with the exporter's hysteresis."""
        total = spent.sum(axis=0)
        score = np.where(self._published, _STAYS_WITHIN, 1.0) * spent
        order = np.argsort(-score, axis=0, kind="stable")
        chosen = np.zeros_like(self._published)
        np.put_along_axis(chosen, order[: self.top], True, axis=0)
        self._published = chosen
        self.coverage = np.where(chosen, spent, 0).sum(axis=0) / total
        smallest = np.where(chosen, spent, np.inf).min(axis=0)
        left_out = np.where(chosen, 0, spent).max(axis=0)
        self.cutoff = np.maximum(smallest, left_out) / total
