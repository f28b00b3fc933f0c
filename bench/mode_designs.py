"""Mixture designs on which mode finding is judged: log-normal modes with a known truth.

165 designs in four families, of which those count whose population density is really multimodal:
one mode; two at ratio r; that pair and a third mode 10x away; two such pairs 20x apart.
r = 1.1-10, minor weight 1-50 %, sigma 1, 3, 10 %, n = 20-5000, ticks of 32 ns, 0 or 1 % outliers
at 3-100x. Synthetic: nobody knows the modes of a real trace.

What they showed: docs/evidence/modes.md.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argus_core.modes import Modes

Floats = NDArray[np.float64]

TICK_SECONDS = 32e-9
BASE_SECONDS = 1e-4
WINDOW_SIZES = (20, 50, 200, 1000, 5000)
OUTLIER_SHARES = (0.0, 0.01)


@dataclass(frozen=True)
class Design:
    """A mixture: medians in seconds, one log standard deviation, weights; `boundaries` are its valleys."""

    family: str
    medians: tuple[float, ...]
    sigma: float
    weights: tuple[float, ...]
    boundaries: tuple[float, ...] = ()

    def sample(self, rng: np.random.Generator, count: int, outlier_share: float) -> Floats:
        """Durations in seconds, shape (count,), on the clock's ticks."""
        mode = rng.choice(len(self.medians), count, p=self.weights)
        logs = np.log(self.medians)[mode] + rng.normal(0.0, self.sigma, count)
        outlier = rng.random(count) < outlier_share
        far = rng.uniform(math.log(3.0), math.log(100.0), int(outlier.sum()))
        logs[outlier] = math.log(max(self.medians)) + far
        ticks = np.maximum(np.round(np.exp(logs) / TICK_SECONDS), 1.0)
        return np.asarray(ticks * TICK_SECONDS)


def designs() -> list[Design]:
    """Every design that has as many peaks as modes, each valley at most 0.6 of its lower peak."""
    found = [_with_boundaries(design) for design in _all_designs()]
    return [design for design in found if design is not None]


def windows(repeats: int) -> Iterator[tuple[Design, int, float]]:
    """(design, events, outlier share); left out where the smallest mode has hardly an event."""
    for design in designs():
        for count in WINDOW_SIZES:
            if len(design.medians) > 1 and min(design.weights) * count < max(8.0, 0.01 * count):
                continue
            for share in OUTLIER_SHARES:
                for _ in range(repeats):
                    yield design, count, share


def without_outlier_modes(found: Modes, design: Design, outlier_share: float) -> list[float]:
    """Medians found, less those that only outliers can have made: they are no error of counting."""
    limit = 2.5 * max(design.medians) if outlier_share > 0.0 else math.inf
    return [mode.p50 for mode in found.modes if mode.p50 <= limit]


def f1(medians: list[float], design: Design) -> float:
    """Modes found at a true place (within a quarter of the gap to the next mode), as F1, 0 to 1."""
    true = np.log(design.medians)
    matched = set()
    for median in medians:
        mode = int(np.searchsorted(design.boundaries, median))
        others = np.abs(np.delete(true, mode) - true[mode])
        tolerance = max(0.25 * float(others.min(initial=0.2)), 0.01)
        if abs(math.log(median) - true[mode]) < tolerance:
            matched.add(mode)
    return 2.0 * len(matched) / (len(medians) + len(true))


def _all_designs() -> Iterator[Design]:
    for sigma in (0.01, 0.03, 0.1):
        yield Design("one mode", (BASE_SECONDS,), sigma, (1.0,))
    for r in (1.1, 1.2, 1.5, 2.0, 3.0, 10.0):
        for w in (0.01, 0.05, 0.2, 0.5):
            for sigma in (0.01, 0.03, 0.1):
                a, b = BASE_SECONDS, BASE_SECONDS * r
                yield Design("two modes", (a, b), sigma, (1.0 - w, w))
                three = (0.6 * (1.0 - w), w, 0.4 * (1.0 - w))
                yield Design("third 10x away", (a, b, 10.0 * b), sigma, three)
                if w == 0.5:
                    yield Design("two pairs 20x apart", (a, b, 20.0 * a, 20.0 * b), sigma, (0.25,) * 4)


def _with_boundaries(design: Design) -> Design | None:
    """The design with the valleys of its density; None where it has too few, or shallow ones."""
    order = np.argsort(design.medians)
    medians = np.array(design.medians)[order]
    weights = np.array(design.weights)[order]
    grid = np.linspace(
        math.log(medians[0]) - 6.0 * design.sigma, math.log(medians[-1]) + 6.0 * design.sigma, 6001
    )
    deviations = (grid[:, None] - np.log(medians)) / design.sigma
    # In logarithms: far from every mode the density itself is 0.
    density = np.logaddexp.reduce(np.log(weights) - 0.5 * deviations**2, axis=1)
    inside, before, after = density[1:-1], density[:-2], density[2:]
    peaks = np.flatnonzero((inside > before) & (inside >= after)) + 1
    valleys = np.flatnonzero((inside < before) & (inside <= after)) + 1
    if peaks.size != medians.size or valleys.size != medians.size - 1:
        return None
    lower_peaks = np.minimum(density[peaks[:-1]], density[peaks[1:]])
    if np.any(density[valleys] > math.log(0.6) + lower_peaks):
        return None
    return Design(
        design.family,
        tuple(medians.tolist()),
        design.sigma,
        tuple(weights.tolist()),
        tuple(np.exp(grid[valleys]).tolist()),
    )
