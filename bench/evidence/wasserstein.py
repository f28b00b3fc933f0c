"""Errors of the grid that W1 is summed on, and what fences over W1 flag among healthy ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.stats import norm

from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.role_judgement import RoleJudgement
from argus_l3_worker.judge.wasserstein import Mixtures, grid, mean_distances, upper_fence
from argus_l3_worker.triples import Floats
from bench.evidence.table import Table
from bench.l3_fleet import Faults, fleet
from bench.l3_tables import judge_role

_RANKS, _KERNELS = 1000, 40


def tables(seed: int) -> Iterator[Table]:
    yield error_by_reach()
    yield error_by_step()
    yield error_by_nodes()
    yield error_by_grid()
    yield ranking_against_pairs(seed)
    yield what_tails_weigh()
    yield from flagged_among_healthy(seed)


def _two(shift: float, sigma: tuple[float, float], modes: tuple[float, ...] = (1e-4,)) -> Mixtures:
    """Two ranks with these medians, in equal parts, the second by `shift` slower."""
    mu = np.log(modes) + np.array([[0.0], [math.log1p(shift)]])
    return Mixtures(np.full(mu.shape, 1.0 / len(modes)), mu, np.tile(np.array(sigma)[:, None], len(modes)))


def _seconds(mixtures: Mixtures, points: Floats | None = None) -> float:
    return float(mean_distances(mixtures, points)[0])


def _fine(mixtures: Mixtures) -> float:
    """By 400,000 points within ten sigmas of some mode."""
    parts = [
        np.linspace(mu - 10.0 * sigma, mu + 10.0 * sigma, 100_000)
        for mu, sigma in zip(mixtures.mu.ravel(), mixtures.sigma.ravel(), strict=True)
    ]
    return _seconds(mixtures, np.unique(np.concatenate(parts)))


def _span(mixtures: Mixtures, reach: float, step: float) -> Floats:
    low = float((mixtures.mu - reach * mixtures.sigma).min())
    high = float((mixtures.mu + reach * mixtures.sigma).max())
    return np.linspace(low, high, math.ceil((high - low) / step) + 1)


def error_by_reach() -> Table:
    rows = {}
    for sigma in (0.03, 0.1, 0.8):
        two = _two(0.07, (sigma, sigma))
        exact = _fine(two)
        rows[f"sigma {sigma:.0%}"] = {
            f"{reach} sigma": abs(_seconds(two, _span(two, reach, sigma / 200)) / exact - 1.0)
            for reach in (3, 4, 5)
        }
    return Table("W1 of a 7 % shift: part of it beyond the grid's bounds", rows)


def error_by_step() -> Table:
    """On the time axis the trapezoid rule errs by step^2 / 6."""
    two = _two(0.07, (0.1, 0.1))
    exact = _fine(two)
    errors = {
        f"step {step}": abs(_seconds(two, _span(two, 6.0, step)) / exact - 1.0) for step in (0.01, 0.02, 0.03)
    }
    return Table("W1 of a 7 % shift at sigma 10 %, error by step in log units", {"relative error": errors})


def error_by_nodes() -> Table:
    """Distributions of other widths cross, and |F - G| has a kink between two nodes: worst of 40 offsets."""
    rows = {}
    for sigma in ((0.03, 0.05), (0.02, 0.01)):
        errors = {}
        for nodes in (4, 8, 14, 28):
            worst = 0.0
            for shift in np.linspace(-0.02, 0.02, 40):
                two = _two(float(shift), sigma)
                points = _span(two, 6.0, min(min(sigma) / nodes, 0.02))
                worst = max(worst, abs(_seconds(two, points) / _fine(two) - 1.0))
            errors[f"{nodes} a sigma"] = worst
        rows[f"sigma {sigma[0]:.0%}, {sigma[1]:.0%}"] = errors
    return Table("W1 of distributions that cross: largest error by nodes", rows)


def error_by_grid() -> Table:
    """The same number of log-uniform points from end to end, and the worker's own grid."""
    rows = {}
    for apart in (10, 1000):
        for sigma in (0.005, 0.01, 0.03):
            two = _two(0.07, (sigma, sigma), (1e-6, apart * 1e-6))
            exact, own = _fine(two), grid(two)
            uniform = np.linspace(own[0], own[-1], 256)
            rows[f"modes {apart}x apart, sigma {sigma:.1%}"] = {
                "256 uniform": abs(_seconds(two, uniform) / exact - 1.0),
                "worker's": abs(_seconds(two) / exact - 1.0),
                "its points": float(own.size),
            }
    return Table("W1 of a 7 % shift: error by grid", rows)


def ranking_against_pairs(seed: int) -> Table:
    """Mean distance by ranks and prefix sums, and by the matrix of all pairs, on the same points."""
    rng = np.random.default_rng(seed)
    mu = np.log([1e-4, 1e-3]) + 0.05 * rng.standard_normal((200, 2))
    mixtures = Mixtures(np.tile([0.7, 0.3], (200, 1)), mu, rng.uniform(0.005, 0.2, (200, 2)))
    points = grid(mixtures)
    cdf, steps = mixtures.cdf(points).T, np.diff(np.exp(points))
    matrix = np.zeros(200)
    for rank, own in enumerate(cdf):
        apart = np.abs(cdf - own)
        matrix[rank] = (((apart[:, 1:] + apart[:, :-1]) / 2.0) @ steps).sum() / 199
    worst = float(np.abs(mean_distances(mixtures, points) / matrix - 1.0).max())
    return Table(
        "Mean W1 by ranking against all pairs", {"200 ranks": {"largest relative difference": worst}}
    )


def what_tails_weigh() -> Table:
    """W1 to the healthy distribution, as a share of the median (linear) and in log units."""
    healthy = np.exp(0.03 * norm.ppf((np.arange(100_000) + 0.5) / 100_000))
    tail = healthy.copy()
    tail[-200:] = 50.0
    rows = {}
    for name, sample in (("0.2 % of events at 50x", tail), ("all 7 % slower", 1.07 * healthy)):
        rows[name] = {
            "linear W1": float(np.abs(np.sort(sample) - healthy).mean()),
            "log W1": float(np.abs(np.log(np.sort(sample) / healthy)).mean()),
        }
    return Table("What W1 makes of a tail and of a slow rank", rows)


def flagged_among_healthy(seed: int) -> Iterator[Table]:
    """(rank, kernel) pairs of a healthy fleet beyond a fence, and with evidence as the worker has it."""
    config, faults = JudgeConfig(), Faults()
    for outliers in (False, True):
        made = fleet(_RANKS, _KERNELS, seed, outliers=outliers)
        rng = np.random.default_rng([seed, outliers])
        judgement = judge_role(made.window(1, faults, rng, made.chips(rng)), config)
        assert isinstance(judgement, RoleJudgement)
        pairs = _RANKS * len(judgement.pairs)
        flagged = {}
        for alpha in (1.5, 3.0):
            beyond = sum(
                int((pair.w1.seconds > upper_fence(pair.w1.seconds, alpha)).sum())
                for pair in judgement.pairs
                if pair.w1 is not None
            )
            flagged[f"W1 beyond Q3 + {alpha:g} IQR"] = {"share of pairs": beyond / pairs}
        evidence = sum(int((pair.evidence != 0.0).sum()) for pair in judgement.pairs)
        flagged["evidence of one window"] = {"share of pairs": evidence / pairs}
        suffix = "0.3 % of launches far out" if outliers else "no outliers"
        yield Table(f"Healthy fleet of {_RANKS} ranks x {_KERNELS} kernels, {suffix}: flagged", flagged)
