"""EROICA by the letter and as it is here, and what sampled peers cost KAIR's score."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus_l3_worker.judge import eroica, rhythm
from argus_l3_worker.triples import Floats
from bench.evidence.table import Table

_RANKS, _PEERS = 10_000, 100


def tables(seed: int) -> Iterator[Table]:
    yield eroica_among_healthy(seed)
    yield eroica_by_effect(seed)
    yield eroica_beside_an_extreme_rank(seed)
    yield rhythm_of_sampled_peers(seed)


def _patterns(variation: float, rng: np.random.Generator, ranks: int = _RANKS) -> Floats:
    """(beta, mu, sigma) of healthy ranks; this coefficient of variation in sigma."""
    spread = np.array([0.02, 0.02, variation])
    return np.clip(np.array([0.3, 0.6, 0.1]) * (1.0 + spread * rng.standard_normal((ranks, 3))), 0.0, 1.0)


def by_the_letter(patterns: Floats, rng: np.random.Generator) -> Floats:
    """Equations 8 to 11: normalised by the maximum, beyond the median plus 5 MAD, no floor."""
    normal = patterns / patterns.max(axis=0)
    peers = normal[rng.choice(len(normal), min(_PEERS, len(normal)), replace=False)]
    far = np.zeros(len(normal))
    for peer in peers:
        far += np.abs(normal - peer).sum(axis=1) >= 0.4
    share = far / len(peers)
    middle = np.median(share)
    flagged: Floats = (share > middle + 5.0 * np.median(np.abs(share - middle))).astype(np.float64)
    return flagged


def eroica_among_healthy(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    rows = {}
    for variation in (0.02, 0.05, 0.1, 0.2, 0.3):
        letter, here = [], []
        for number in range(5):
            patterns = _patterns(variation, rng)
            letter.append(float(by_the_letter(patterns, rng).mean()))
            here.append(float(eroica.distances(patterns, "compute", number).abnormal.mean()))
        rows[f"variation {variation:.0%}"] = {
            "to the letter": float(np.mean(letter)),
            "here": float(np.mean(here)),
        }
    return Table(f"EROICA: share of {_RANKS} healthy ranks that are abnormal", rows)


def eroica_by_effect(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    rows = {}
    for effect in (0.12, 0.3, 0.5, 1.0):
        patterns = _patterns(0.05, rng)
        patterns[:20, 0] *= 1.0 + effect
        rows[f"beta +{effect:.0%}"] = {
            "found": float(eroica.distances(patterns, "compute").abnormal[:20].mean())
        }
    return Table("EROICA: of 20 ranks with a larger share of the path", rows)


def eroica_beside_an_extreme_rank(seed: int) -> Table:
    """Twenty ranks with twice the share, beside one with ten times."""
    rng = np.random.default_rng(seed)
    patterns = _patterns(0.05, rng, 1000) * [0.27, 1.0, 1.0]
    patterns[:20, 0] *= 2.0
    patterns[20, 0] *= 10.0
    found = {
        "to the letter": float(by_the_letter(patterns, rng)[:20].mean()),
        "here": float(eroica.distances(patterns, "compute").abnormal[:20].mean()),
    }
    return Table("EROICA: one rank at 10x", {"20 ranks at 2x, found": found})


def rhythm_of_sampled_peers(seed: int) -> Table:
    """All pairs against 256 sampled peers, of 3,000 ranks."""
    counts = np.random.default_rng(seed).poisson(200, (3000, 64)).astype(np.float64)
    sampled = rhythm.scores(counts, seed)
    ecdf = rhythm.distributions(counts)
    exact = np.array([np.abs(ecdf[rank] - ecdf).max(axis=1).sum() / 2999 for rank in range(0, 3000, 10)])
    errors = np.abs(sampled[::10] - exact)
    row = {"mean score": float(exact.mean()), "largest error": float(errors.max())}
    return Table("KAIR: 256 sampled peers", {"3,000 ranks x 64 slices": row})
