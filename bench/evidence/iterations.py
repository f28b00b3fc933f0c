"""What plain noise makes of a change-point scan, and what z and CV can say in groups of a few ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.evidence.table import Table
from bench.regression import ERRORS as MIN_ERRORS
from bench.regression import LEAST as MIN_ITERATIONS

Floats = NDArray[np.float64]

_HISTORIES = 5000
REGRESSION_RATIO = 1.05


def tables(seed: int) -> Iterator[Table]:
    yield regressions_in_noise(seed)
    yield normal_steps_over_the_baseline()
    yield one_slow_rank()


def regressions_in_noise(seed: int) -> Table:
    """Steady windows whose steps vary by 8 %, split at each scrape: is the largest ratio a regression?"""
    rng = np.random.default_rng(seed)
    rows: dict[str, dict[str, float]] = {}
    for minutes, seconds in ((10, 1), (10, 4), (60, 4), (60, 15)):
        found: dict[str, list[bool]] = {}
        for _ in range(_HISTORIES):
            steps = rng.normal(1.0, 0.08, minutes * 60 // seconds)
            for rule, is_regression in _regressions(steps, max(15 // seconds, 1)).items():
                found.setdefault(rule, []).append(is_regression)
        rows[f"{minutes} minutes of {seconds} s"] = {
            rule: float(np.mean(each)) for rule, each in found.items()
        }
    return Table("Share of steady windows with a regression in them", rows)


def _regressions(steps: Floats, steps_a_scrape: int) -> dict[str, bool]:
    splits = np.arange(steps_a_scrape, steps.size, steps_a_scrape)
    splits = splits[(splits >= MIN_ITERATIONS) & (steps.size - splits >= MIN_ITERATIONS)]
    left_n, right_n = splits.astype(np.float64), (steps.size - splits).astype(np.float64)
    sums, squares = np.cumsum(steps), np.cumsum(steps**2)
    left, right = sums[splits - 1] / left_n, (sums[-1] - sums[splits - 1]) / right_n
    left_var = squares[splits - 1] / left_n / left**2 - 1.0
    right_var = (squares[-1] - squares[splits - 1]) / right_n / right**2 - 1.0
    ratio = right / left
    own = np.sqrt(left_var / left_n + right_var / right_n)
    pooled = np.sqrt(left_var / right_n + right_var / left_n)
    above = ratio > REGRESSION_RATIO
    return {
        "ratio > 1.05": bool(above.any()),
        "and 5 errors, each side's own": bool((above & (ratio - 1.0 > MIN_ERRORS * own)).any()),
        "and 5 errors, pooled": bool((above & (ratio - 1.0 > MIN_ERRORS * pooled)).any()),
    }


def normal_steps_over_the_baseline() -> Table:
    """Steps that take 4 or 5 s, three and one of four: the median is 4. No chance in it."""
    steps = np.tile([4.0, 4.0, 4.0, 5.0], 100)
    share = {f"k = {k}": float((steps > k * np.median(steps)).mean()) for k in (1.2, 1.3, 1.5)}
    return Table("Steps of 4 and 5 s: share above k times the baseline", {"all normal": share})


def one_slow_rank() -> Table:
    """CV, z and the ratio to the median of groups whose other ranks are alike. No chance in it."""
    rows = {}
    for name, ranks, slow, factor in (
        ("1 at 2x of 2", 2, 1, 2.0),
        ("1 at 2x of 4", 4, 1, 2.0),
        ("1 at 2x of 8", 8, 1, 2.0),
        ("2 at 2x of 8", 8, 2, 2.0),
        ("1 at 2x of 640", 640, 1, 2.0),
        ("1 at 1.4x of 640", 640, 1, 1.4),
        ("64 at 2x of 640", 640, 64, 2.0),
    ):
        means = np.ones(ranks)
        means[:slow] = factor
        rows[name] = {
            "CV": float(means.std(ddof=1) / means.mean()),
            "z": float((means.max() - means.mean()) / means.std(ddof=1)),
            "largest z": (ranks - 1) / float(np.sqrt(ranks)),
            "ratio to median": float(means.max() / np.median(means)),
        }
    return Table("What a slow rank looks like", rows)
