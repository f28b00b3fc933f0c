"""Random numbers that a fault cannot move: each is addressed by (seed, stream, step), never by history.

Two runs with one seed therefore share their noise whatever the faults (common random numbers), and the noise
of a rank can be carried along when ranks are relabelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_GROUP_STREAMS = 1 << 31
"""Streams from here on belong to process groups, below to ranks."""


@dataclass(frozen=True)
class NoiseLevels:
    """How much durations vary, dimensionless.

    `step_cv` varies a rank's whole phase from step to step (clocks, temperature), `kernel_cv` each kernel.
    Outliers multiply one kernel, or stretch one phase by an idle gap, by up to `outlier_factor`.
    """

    step_cv: float = 0.01
    kernel_cv: float = 0.03
    outlier_probability: float = 0.003
    outlier_factor: float = 5.0


class Noise:
    """Source of all randomness of a job. `levels` scale it; the underlying numbers depend on `seed` alone."""

    def __init__(self, seed: int, levels: NoiseLevels) -> None:
        self.levels = levels
        self._seed = seed & 0xFFFFFFFFFFFFFFFF

    def of_rank(self, stream: int, step: int) -> StepNoise:
        return StepNoise(self._generator(stream, step), self.levels)

    def of_group(self, stream: int, step: int) -> StepNoise:
        return StepNoise(self._generator(_GROUP_STREAMS + stream, step), self.levels)

    def _generator(self, stream: int, step: int) -> np.random.Generator:
        # Philox is counter-based: any key gives an independent stream at once.
        return np.random.Generator(np.random.Philox(key=[self._seed, (stream << 32) | step]))


class StepNoise:
    """Factors of one rank (or group) in one step. Callers must ask in an order that no fault changes."""

    def __init__(self, generator: np.random.Generator, levels: NoiseLevels) -> None:
        self._generator = generator
        self._levels = levels

    def factor(self) -> float:
        """Multiplier with mean 1 for a whole phase in this step."""
        return float(_lognormal(self._generator.standard_normal(1), self._levels.step_cv)[0])

    def kernel_factors(self, count: int) -> Floats:
        """Multipliers for kernels, shape (count,): log-normal body and rare outliers."""
        levels = self._levels
        factors = _lognormal(self._generator.standard_normal(count), levels.kernel_cv)
        chance, size = self._generator.random((2, count))
        outliers = chance < levels.outlier_probability
        factors[outliers] *= 1 + size[outliers] * (levels.outlier_factor - 1)
        return factors

    def idle_share(self) -> float:
        """Idle time as a share of a phase: 0 but for a rare host hiccup of up to half the phase."""
        chance, size = self._generator.random(2)
        return float(size) / 2 if chance < self._levels.outlier_probability else 0.0


def _lognormal(normal: Floats, cv: float) -> Floats:
    sigma = math.sqrt(math.log1p(cv * cv))
    factors: Floats = np.exp(sigma * normal - sigma * sigma / 2)
    return factors
