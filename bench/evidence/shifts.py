"""W1 and shifts of modes where counts differ; deviations over few ranks; who is blind to many bad ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.stats import norm

from argus_core.modes import find_modes
from argus_l3_worker.judge.baseline import own_evidence
from argus_l3_worker.judge.clusters import splits
from argus_l3_worker.judge.config import JudgeConfig
from argus_l3_worker.judge.role_judgement import significant
from argus_l3_worker.judge.segments import Segments, robust_deviation
from argus_l3_worker.judge.shifts import mode_shifts
from argus_l3_worker.judge.wasserstein import Mixtures, mean_distances, upper_fence
from argus_l3_worker.triples import Bools, Floats, Ints
from bench.evidence.table import Table
from bench.l3_tables import pair_triples

_RANKS, _EVENTS, _SLOW = 300, 300, 10
_CONFIG = JudgeConfig()
# Ranks whose temperature wanders, minutes of a half hour, and when some become slow.
_WANDERING, _HALF_HOUR, _ILL_FROM = 1_024, 30, 720


def tables(seed: int) -> Iterator[Table]:
    yield when_counts_differ(seed)
    yield median_of_few(seed)
    yield deviations_of_healthy_roles(seed)
    yield errors_of_quantiles(seed)
    yield modes_by_chance(seed)
    yield when_many_are_bad(seed)
    yield own_past_by_hours(seed)


def when_counts_differ(seed: int) -> Table:
    """Modes at 1, 1.2 and 10; ten ranks 7 % slow, ten more with the middle mode alone 12 % slower."""
    rows: dict[str, dict[str, float]] = {}
    for name in ("whole windows", "a window edge of one step in 15", "counts at random"):
        rng = np.random.default_rng(seed)
        table = [(rank, _window(rng, rank, name)) for rank in range(_RANKS)]
        pair = pair_triples("gemm", "compute0", table)
        w1 = mean_distances(Mixtures(*pair.components()))
        beyond = w1 > upper_fence(w1, _CONFIG.alpha)
        modes = mode_shifts(pair, _CONFIG.min_events)
        floor = float(np.log1p(_CONFIG.group_effect))
        shifted = np.zeros(_RANKS, dtype=bool)
        for mode in range(modes.p50.shape[1]):
            shifted |= significant(modes.p50[:, mode], modes.p50_error[:, mode], floor, _CONFIG) > 0.0
        rows[name] = {}
        for judge, found in (("W1", beyond), ("modes", shifted)):
            rows[name][f"{judge}: false"] = float(found[2 * _SLOW :].mean())
            rows[name][f"{judge}: 7 %"] = float(found[:_SLOW].mean())
            rows[name][f"{judge}: 12 %"] = float(found[_SLOW : 2 * _SLOW].mean())
    return Table("Share of ranks flagged: W1 beyond Q3 + 3 IQR, and modes by 3 % and 5 deviations", rows)


def _window(rng: np.random.Generator, rank: int, counts: str) -> list[tuple[float, float, float]]:
    weights, medians = np.array([0.4, 0.3, 0.3]), np.array([1e-4, 1.2e-4, 1e-3])
    if counts == "counts at random":
        sizes = rng.multinomial(_EVENTS, weights)
    elif counts == "whole windows":
        sizes = (_EVENTS * weights).astype(int)
    else:
        sizes = (_EVENTS * weights * rng.choice([14, 15, 16], 3) / 15).astype(int)
    if rank < _SLOW:
        medians *= 1.07
    elif rank < 2 * _SLOW:
        medians[1] *= 1.12
    chip = math.exp(0.005 * rng.standard_normal())
    parts = [m * np.exp(0.03 * rng.standard_normal(n)) for m, n in zip(medians, sizes, strict=True)]
    durations = chip * np.concatenate(parts)
    far = rng.random(durations.size) < 0.005
    durations[far] *= np.exp(rng.uniform(math.log(2.0), math.log(20.0), int(far.sum())))
    return [(mode.p50, mode.p99, float(mode.count)) for mode in find_modes(durations).modes]


def median_of_few(seed: int) -> Table:
    """The median follows its values, so their distances from it are too short."""
    rng = np.random.default_rng(seed)
    rows = {}
    for n in (4, 5, 8, 16, 64):
        values = rng.standard_normal((40_000, n))
        distances = np.abs(values - np.median(values, axis=1, keepdims=True))
        truth = norm.ppf(0.75) / float(np.median(distances))
        rows[f"{n} ranks"] = {"too short by": truth, "1 + 1.5 / n": 1.0 + 1.5 / n}
    return Table("Pooled distances from the median of n normal values", rows)


def deviations_of_healthy_roles(seed: int) -> Table:
    """How many of their own robust deviations the farthest healthy chip is away."""
    rng = np.random.default_rng(seed)
    rows = {}
    for n in (4, 8, 16, 64):
        values = rng.standard_normal((4000, n))
        farthest = np.array([np.abs(row - np.median(row)).max() / robust_deviation(row) for row in values])
        rows[f"roles of {n}"] = {"beyond 5": float((farthest > _CONFIG.deviations).mean())}
    return Table("Share of healthy roles with a rank beyond 5 deviations of its own role", rows)


def errors_of_quantiles(seed: int) -> Table:
    """Standard errors in sigmas / sqrt(n), for n = 2000."""
    samples = np.random.default_rng(seed).standard_normal((4000, 2000))
    rows = {}
    for name, level in (("p10", 0.1), ("p50", 0.5), ("p99", 0.99)):
        measured = float(np.quantile(samples, level, axis=1).std() * math.sqrt(2000))
        theory = math.sqrt(level * (1 - level)) / float(norm.pdf(norm.ppf(level)))
        rows[name] = {"measured": measured, "theory": theory}
    return Table("Standard error of a normal sample's quantile", rows)


def modes_by_chance(seed: int) -> Table:
    """A tenth and nine tenths of the launches at 1 and 1.5, and at times the end of either is cut off."""
    rows: dict[str, dict[str, float]] = {}
    for launches, windows in ((200, 400), (1000, 400), (5000, 150)):
        rng, smallest = np.random.default_rng(seed), []
        for _ in range(windows):
            values = 1e-3 * np.exp(0.05 * rng.standard_t(3, launches))
            values[rng.random(launches) < 0.9] *= 1.5
            counts = [mode.count for mode in find_modes(values).modes]
            smallest += [min(counts) / launches] if len(counts) > 2 else []
        rows[f"{launches} launches"] = {
            "windows with three modes": len(smallest) / windows,
            "most launches of the smallest": max(smallest, default=0.0),
        }
    return Table("Two kinds of launches, 5 % wide, Student's t of 3 degrees: a third mode by chance", rows)


def when_many_are_bad(seed: int) -> Table:
    """Share of the bad ranks that are found, of 512 that are 12 % slow at sigma 5 %, n = 100; mean of 8."""
    rng = np.random.default_rng(seed)
    rows = {}
    for share in (0.01, 0.2, 0.24, 0.26, 0.4, 0.5):
        found: dict[str, list[float]] = {}
        for _ in range(8):
            bad = np.arange(512) < round(share * 512)
            for name, flagged in _judges(bad, rng).items():
                found.setdefault(name, []).append(float(flagged[bad].mean()))
        rows[f"{share:.0%} bad"] = {name: float(np.mean(values)) for name, values in found.items()}
    return Table("Recall where many ranks are bad", rows)


def _judges(bad: Bools, rng: np.random.Generator) -> dict[str, Bools]:
    noise = math.hypot(0.005, 1.2533 * 0.05 / math.sqrt(100))
    mu: Floats = math.log(1e-3) + noise * rng.standard_normal(bad.size) + math.log(1.12) * bad
    ones = np.ones((bad.size, 1))
    w1 = mean_distances(Mixtures(ones, mu[:, None], 0.05 * ones))
    shift = mu - np.median(mu)
    gap = float(np.log1p(_CONFIG.group_effect))
    clusters = splits(shift, Segments([shift.size]), gap, np.zeros(shift.size), shift).get(0)
    return {
        "W1, 1.5 IQR": w1 > upper_fence(w1, 1.5),
        "W1, 3 IQR": w1 > upper_fence(w1, 3.0),
        "5 deviations": shift > _CONFIG.deviations * robust_deviation(shift),
        "two clusters": np.zeros(bad.size, dtype=bool) if clusters is None else clusters.slow,
    }


def own_past_by_hours(seed: int) -> Table:
    """Chips 2 % apart whose temperature wanders by 1 %, 0.9 from minute to minute, over twelve hours.

    Then one in every fourth role is 5 % slower for two hours. A change is of the median of the recent half
    hours against those before, as in `judge/baseline.py`, of which the judgement is that shipped.
    """
    rows: dict[str, dict[str, float]] = {f"{30 * recent} minutes": {} for recent in (1, 2, 3, 4)}
    for size in (8, 4):
        sick = np.arange(0, _WANDERING, 4 * size)
        minutes = _wandering(np.random.default_rng([seed, size]), size, sick)
        by_role = Segments([size] * (_WANDERING // size))
        for recent, row in zip((1, 2, 3, 4), rows.values(), strict=True):
            changes, found = [], np.full(sick.size, np.nan)
            for now in range((recent + 4) * _HALF_HOUR, len(minutes), 5):
                lately = np.median(minutes[now - recent * _HALF_HOUR : now], axis=0)
                past = _half_hours(minutes, now // _HALF_HOUR - recent)
                if now <= _ILL_FROM:
                    changes.append(by_role.centred(lately - np.nanmedian(past, axis=1)))
                    continue
                evidence = own_evidence(minutes[now - 1], lately, past, by_role, _CONFIG, recent)
                found[(evidence[sick] > 0.0) & np.isnan(found)] = now - _ILL_FROM
            deviation = float(np.std(np.concatenate(changes)))
            row[f"{size}: deviation, %"] = 100.0 * deviation
            row[f"{size}: 3.5 % in deviations"] = float(np.log1p(_CONFIG.own_effect)) / deviation
            row[f"{size}: +5 % found"] = float((~np.isnan(found)).mean())
            row[f"{size}: after minutes"] = float(np.nanmedian(found))
    return Table("A GPU against its own past, by the length of what is held against it", rows)


def _half_hours(minutes: Floats, until: int) -> Floats:
    """Medians of the newest twelve hours of whole half hours, shape (ranks, half hours)."""
    return np.transpose(
        [
            np.median(minutes[_HALF_HOUR * at : _HALF_HOUR * (at + 1)], axis=0)
            for at in range(max(until - 24, 0), until)
        ]
    )


def _wandering(rng: np.random.Generator, size: int, sick: Ints) -> Floats:
    """Log shift of each rank against its role in each minute, shape (minutes, ranks)."""
    warmth = 0.01 * rng.standard_normal(_WANDERING)
    chip = 0.02 * rng.standard_normal(_WANDERING)
    minutes = np.empty((_ILL_FROM + 120, _WANDERING))
    for minute in range(len(minutes)):
        warmth = 0.9 * warmth + np.sqrt(1.0 - 0.9**2) * 0.01 * rng.standard_normal(_WANDERING)
        minutes[minute] = chip + warmth + 0.0015 * rng.standard_normal(_WANDERING)
    minutes[_ILL_FROM:, sick] += np.log(1.05)
    roles = minutes.reshape(len(minutes), -1, size)
    return (roles - np.median(roles, axis=2, keepdims=True)).reshape(minutes.shape)
