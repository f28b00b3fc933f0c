"""What one bandwidth hides, what one outlier does to a triple, what a clock's ticks look like.

How well known modes come back is `python -m bench.modes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from argus_core.lognormal import sigma_from_p99
from argus_core.modes import ModeConfig, find_modes
from bench.evidence.table import Table

_Z99 = 2.326
_WINDOWS = 4000


def tables(seed: int) -> Iterator[Table]:
    yield least_ratio_told_apart()
    yield sigma_from_p99_over_truth(seed)
    yield sigma_with_one_outlier(seed)
    yield modes_by_clock_tick(seed)
    yield left_skew(seed)


def least_ratio_told_apart() -> Table:
    """Two equal modes of sigma 3 % blur into one peak below this ratio. No chance in it.

    Scott's bandwidth of the whole window widens both modes; two equal normals have two peaks from a distance
    of two standard deviations on.
    """
    rows = {}
    for far in (2, 10, 100):
        sd = math.sqrt(0.3 * 0.7) * math.log(far)
        rows[f"far mode at {far}x"] = {
            f"n = {n}": math.exp(2.0 * math.hypot(0.03, 1.06 * sd * n**-0.2)) for n in (100, 1000, 10_000)
        }
    return Table("One bandwidth for all: least ratio of two modes, a far mode holding 30 %", rows)


def sigma_from_p99_over_truth(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    rows = {}
    for n in (2, 5, 10, 20, 50, 100, 300):
        logs = rng.normal(0.0, 0.05, (_WINDOWS, n))
        p50, p99 = np.exp(np.quantile(logs, 0.5, axis=1)), np.exp(np.quantile(logs, 0.99, axis=1))
        rows[f"n = {n}"] = {
            "by 2.326": float((np.log(p99 / p50) / _Z99).mean() / 0.05),
            "by z_n": float(sigma_from_p99(p50, p99, np.full(_WINDOWS, float(n))).mean() / 0.05),
        }
    return Table("Sigma from p99 over the true one", rows)


def sigma_with_one_outlier(seed: int) -> Table:
    """Median over windows of one event at five times the median among n."""
    rng = np.random.default_rng(seed)
    rows = {}
    for n in (20, 50, 100, 200):
        read: dict[str, list[float]] = {"kept": [], "cut as tail": []}
        for _ in range(200):
            window = np.append(np.exp(rng.normal(0.0, 0.05, n - 1)), 5.0) * 1e-4
            for name, config in (
                ("kept", ModeConfig(tail_ratio=math.inf)),
                ("cut as tail", ModeConfig()),
            ):
                mode = max(find_modes(window, config).modes, key=lambda mode: mode.count)
                p50, p99, count = (np.array(value) for value in (mode.p50, mode.p99, mode.count))
                read[name].append(float(sigma_from_p99(p50, p99, count)) / 0.05)
        rows[f"n = {n}"] = {name: float(np.median(values)) for name, values in read.items()}
    return Table("Sigma over the true one (5 %), with one outlier at 5x", rows)


def modes_by_clock_tick(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    rows = {}
    for median, tick in ((20e-6, 1e-6), (2e-6, 32e-9)):
        found: dict[str, list[int]] = {"tick unknown": [], "tick known": []}
        for _ in range(50):
            exact = median * np.exp(rng.normal(0.0, 0.02, 2000))
            window = np.round(exact / tick) * tick
            found["tick unknown"].append(len(find_modes(window).modes))
            found["tick known"].append(len(find_modes(window, ModeConfig(tick_seconds=tick)).modes))
        rows[f"{median * 1e6:g} us on ticks of {tick * 1e9:g} ns"] = {
            name: float(np.mean(modes)) for name, modes in found.items()
        }
    return Table("Modes found in one mode of sigma 2 %, n = 2000", rows)


def left_skew(seed: int) -> Table:
    """What three numbers cannot show: logarithms of a gamma distribution, long towards the short side."""
    window = 1e-4 * np.exp(-0.15 * np.random.default_rng(seed).gamma(2.0, size=100_000))
    mode = max(find_modes(window).modes, key=lambda mode: mode.count)
    sigma = float(sigma_from_p99(*(np.array(value) for value in (mode.p50, mode.p99, mode.count))))
    levels = {"p1": -2.326, "p10": -1.2816, "p90": 1.2816}
    own = np.quantile(window, (0.01, 0.1, 0.9))
    errors = {
        name: mode.p50 * math.exp(sigma * z) / float(value) - 1.0
        for (name, z), value in zip(levels.items(), own, strict=True)
    }
    return Table("Left skew: quantiles rebuilt from the triple, relative error", {"gamma(2) x 15 %": errors})
