"""ARGUS appendix B in numpy, from the formulas: what the rules must say of a job's history. No PromQL here.

L1 works on the durations of single iterations, L2 on those of single spans; where the rules see sums at
scrapes, the reference sees which iterations lie between two scrapes. Thresholds that the paper leaves open
are those of jsonnet/config.libsonnet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rank = int

REGRESSION_RATIO = 1.05
RELATIVE_STDDEV = 0.1
MIN_ITERATIONS = 8
MIN_ERRORS = 5
JITTER_RATIO = 1.5
CULPRIT_RATIO = 1.15
ROBUST_RATIO = 1.3
PAIR_MEDIAN_RATIO = 1.2
"""Of two, 1.5 times the other is 1.2 times the median."""
MIN_LOST = 0.02


def change_point(segments: list[Floats]) -> tuple[float, int] | None:
    """The valid split with the largest ratio of means, among those between segments.

    The segment after the split, which holds the change, belongs to neither side; the error is that of the
    pooled variance, since eight iterations sometimes look far calmer than they are.

    Args:
        segments: durations of the iterations between two consecutive scrapes, in order; may be empty.

    Returns:
        (mu_R / mu_L, number of segments to the left); None where no split is valid. Of splits that divide the
        iterations alike the last counts, as of two equal scrapes the later.
    """
    best: tuple[float, int] | None = None
    for split in range(1, len(segments) - 1):
        left, right = np.concatenate(segments[:split]), np.concatenate(segments[split + 1 :])
        if min(len(left), len(right)) < MIN_ITERATIONS:
            continue
        spread_left, spread_right = left.std() / left.mean(), right.std() / right.mean()
        ratio = float(right.mean() / left.mean())
        pooled = (len(left) * spread_left**2 + len(right) * spread_right**2) / (len(left) + len(right))
        error = np.sqrt(pooled * (1 / len(left) + 1 / len(right)))
        if (
            ratio > REGRESSION_RATIO
            and max(spread_left, spread_right) < RELATIVE_STDDEV
            and ratio - 1 > MIN_ERRORS * error
            and (best is None or ratio >= best[0] * (1 - 1e-12))
        ):
            best = (max(ratio, best[0]) if best else ratio, split)
    return best


def candidate(ends: Floats, durations: Floats, at: float, window: float) -> float | None:
    """max / min over the iterations that ended in the `window` seconds before `at`: phase 1 of jitter."""
    inside = durations[(ends > at - window) & (ends <= at)]
    return float(inside.max() / inside.min()) if len(inside) else None


@dataclass(frozen=True)
class Group:
    """L2 of one comparison group in one phase: means of its ranks over the window.

    `means` has shape (ranks,), seconds.
    """

    means: Floats

    @property
    def deviation(self) -> float:
        """Of a sample; zero for one rank."""
        return float(self.means.std(ddof=1)) if len(self.means) > 1 else 0.0

    @property
    def cv(self) -> float:
        return self.deviation / float(self.means.mean())

    @property
    def imbalanced(self) -> bool:
        mean = self.means.mean()
        return bool(
            (len(self.means) > 1 and self.cv >= 0.02)
            or self.means.max() / mean > 1.1
            or self.means.min() / mean < 1 / 1.1
        )

    @property
    def zscores(self) -> Floats:
        return np.asarray((self.means - self.means.mean()) / self.deviation)

    @property
    def ratios(self) -> Floats:
        return self.means / float(np.median(self.means))

    @property
    def threshold(self) -> float:
        """Of z, which n ranks cannot bring above (n - 1) / sqrt(n)."""
        n = len(self.means)
        return float(min(0.9 * (n - 1) / np.sqrt(n), 3.0))


class Undecided(Exception):
    """A decision so near its threshold that the rate of steps, which a scraper only estimates, may tip it."""


def decided(value: float, threshold: float, margin: float) -> bool:
    """value >= threshold.

    Raises:
        Undecided: the two are within the margin (a share of the threshold).
    """
    if abs(value / threshold - 1) < margin:
        raise Undecided(f"{value:g} against {threshold:g}")
    return value >= threshold


def outliers(group: Group, inverted: bool = False) -> set[int]:
    """Ranks far above their group; with `inverted`, far below: the last to arrive has the shortest span."""
    if not group.imbalanced:
        return set()
    n = len(group.means)
    found: set[int] = set()
    for rank, (ratio, zscore) in enumerate(zip(group.ratios, group.zscores, strict=True)):
        effect = 1 / ratio if inverted else ratio
        if n == 2:
            # 1.5 times the other is 1.2 of the median above it, and 0.8 below it.
            if decided(effect, 1.25 if inverted else PAIR_MEDIAN_RATIO, 1e-6):
                found.add(rank)
        elif decided(effect, ROBUST_RATIO, 1e-6) or (
            n >= 4
            and decided(effect, CULPRIT_RATIO, 1e-6)
            and decided(-zscore if inverted else zscore, group.threshold, 1e-6)
        ):
            found.add(rank)
    return found


def culprits(
    forward: Group, data: Group, collective: Group, steps_a_second: float, margin: float
) -> set[tuple[Rank, str, str]]:
    """Who is to blame, as (rank, phase, cause).

    Compute and host phases blame whoever is slow in them; slow in both, the host. Whoever is late to the
    collective is to blame if nothing of its own, and no culprit in the job, costs about as much.

    Args:
        margin: share by which a scraper may be wrong about the rate of steps.

    Raises:
        Undecided: for the cost of a finding near its threshold.
    """

    def costly(group: Group, ranks: set[int]) -> dict[int, float]:
        lost = {rank: float(group.means[rank] - np.median(group.means)) * steps_a_second for rank in ranks}
        return {rank: cost for rank, cost in lost.items() if decided(cost, MIN_LOST, margin)}

    slow = costly(forward, outliers(forward))
    loading = costly(data, outliers(data))
    blamed: dict[tuple[Rank, str, str], float] = {}
    for rank in slow.keys() | loading.keys():
        excess = {
            phase: float(group.ratios[rank]) - 1
            for phase, group, found in (("forward", forward, slow), ("data", data, loading))
            if rank in found
        }
        if len(excess) == 2 and decided(excess["data"], 0.5 * excess["forward"], 1e-6):
            blamed[rank, "all", "host-cpu"] = slow[rank]
            continue
        if rank in slow:
            blamed[rank, "forward", "gpu-compute"] = slow[rank]
        if rank in loading:
            blamed[rank, "data", "data-input"] = loading[rank]
    # Of two, the one waits for the other; of more, who has less to do and waits longest makes nobody late.
    usual = collective.means.max() if len(collective.means) == 2 else np.median(collective.means)
    worst = max(blamed.values(), default=0.0)
    for rank in outliers(collective, inverted=True):
        late = float(usual - collective.means[rank]) * steps_a_second
        if not decided(late, MIN_LOST, margin) or rank in slow or rank in loading:
            continue
        own = [
            float(group.means[rank] - np.median(group.means)) * steps_a_second for group in (forward, data)
        ]
        excuse = sum(lost for lost in own if lost > 0 and decided(lost, 0.005, margin))
        if excuse and not decided(late, 2 * excuse, margin):
            continue
        if worst and not decided(late, 1.5 * worst, margin):
            continue
        blamed[rank, "all_reduce", "collective-late"] = late
    return set(blamed)
