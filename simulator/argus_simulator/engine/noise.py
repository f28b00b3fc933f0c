"""Random numbers that a fault cannot move: each is addressed by (seed, stream, step), never by history.

Two runs with one seed therefore share their noise whatever the faults (common random numbers), and the noise
of a rank can be carried along when ranks are relabelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from argus_simulator.engine.plan import Floats, Ints
from argus_simulator.engine.settings import NoiseSettings

_HOSTS: Final = 1 << 28
_FAULTS: Final = 1 << 29
_GAMMA_TRUNCATION: Final = 1e-9


def generator(seed: int, stream: int, step: int) -> np.random.Generator:
    """Philox is counter-based: any key gives an independent stream at once."""
    return np.random.Generator(np.random.Philox(key=[seed & 0xFFFFFFFFFFFFFFFF, (stream << 32) | step]))


def of_fault(seed: int, fault: int, stream: int, step: int) -> np.random.Generator:
    """For what is random in a fault: `stream` of a rank or a group."""
    return generator(seed, _FAULTS + (fault << 16) + stream, step)


def lognormal(normal: Floats, cv: float) -> Floats:
    """Factors with mean 1 and the coefficient of variation."""
    sigma = math.sqrt(math.log1p(cv * cv))
    factors: Floats = np.exp(sigma * normal - sigma * sigma / 2)
    return factors


@dataclass
class RankNoise:
    """Draws of one rank in one step. `kernel`, `launch` and `chance` have one value a launch of the rank."""

    step: float
    loader: float
    pause: Floats
    kernel: Floats
    chance: Floats
    launch: Floats


class Noise:
    """Source of all healthy randomness of a job.

    Args:
        streams: of each rank, shape (R,).
        hosts: number of the host of each rank.
    """

    def __init__(self, seed: int, levels: NoiseSettings, streams: tuple[int, ...], hosts: Ints) -> None:
        self.seed, self.levels, self.streams = seed, levels, streams
        ranks = [generator(seed, stream, 0xFFFFFFFF) for stream in streams]
        own = np.array([random.standard_normal() for random in ranks])
        of_host = {
            int(host): generator(seed, _HOSTS + int(host), 0).standard_normal()
            for host in set(hosts.tolist())
        }
        shared = np.array([of_host[int(host)] for host in hosts])
        self.rank_factor: Floats = lognormal(own, levels.rank_cv) * lognormal(shared, levels.host_cv)
        self._previous = np.zeros(len(streams))
        self._bits = np.random.Philox(key=[0, 0])
        self._random = np.random.Generator(self._bits)
        self._fresh = self._bits.state

    def of_step(self, step: int, launches: Ints) -> list[RankNoise]:
        """Draws of all ranks; steps must be asked for in order, as a step remembers the one before."""
        found = []
        for rank, stream in enumerate(self.streams):
            random = self._generator(stream, step)
            count = int(launches[rank])
            fresh, loader = random.standard_normal(2)
            rho = self.levels.autocorrelation
            mixed = (fresh + rho * self._previous[rank]) / math.sqrt(1 + rho * rho)
            self._previous[rank] = fresh
            pause = random.random(3)
            kernel = self._body(random, count)
            chance = random.random(count)
            launch = random.standard_normal(count)
            found.append(RankNoise(float(mixed), float(loader), pause, kernel, chance, launch))
        return found

    def _generator(self, stream: int, step: int) -> np.random.Generator:
        """As `generator`, until the next call: making one anew takes as long as all that it draws."""
        self._fresh["state"]["key"][:] = self.seed & 0xFFFFFFFFFFFFFFFF, (stream << 32) | step
        self._bits.state = self._fresh
        return self._random

    def _body(self, random: np.random.Generator, count: int) -> Floats:
        """Standardised deviations of kernels; the gamma family is skewed the more the wider it is."""
        if self.levels.family == "lognormal":
            return random.standard_normal(count)
        shape = 1 / max(self.levels.kernel_cv, 1e-3) ** 2
        draws = np.maximum(random.standard_gamma(shape, count), _GAMMA_TRUNCATION)
        sigma = math.sqrt(math.log1p(self.levels.kernel_cv**2))
        normal: Floats = (np.log(draws / shape) + sigma * sigma / 2) / max(sigma, 1e-9)
        return normal

    def outliers(self, chance: Floats) -> Floats:
        """Factors: 1, but rarely up to `outlier_factor`."""
        levels = self.levels
        factors = np.ones(len(chance))
        hit = chance < levels.outlier_probability
        if hit.any():
            factors[hit] += chance[hit] / levels.outlier_probability * (levels.outlier_factor - 1)
        return factors
