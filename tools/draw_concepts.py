"""The pictures of docs/concepts.md, drawn from the product's own numerics. `python -m tools.draw_concepts`.

They are committed but not compared in `make lint`: another version of matplotlib draws other bytes.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

from argus_core.modes import find_modes

Floats = NDArray[np.float64]

_FOLDER = Path(__file__).resolve().parent.parent / "docs" / "img"
_WORK, _WAIT, _BAD = "#4878a8", "#d5dce4", "#c8452f"


def main() -> None:
    """Write all of them."""
    plt.rcParams.update({"svg.hashsalt": "argus", "font.size": 9, "axes.spines.top": False})
    plt.rcParams["axes.spines.right"] = False
    for name, draw in (("barrier", _barrier), ("change-point", _change_point), ("modes", _modes)):
        figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
        draw(axes)
        figure.savefig(_FOLDER / f"concept-{name}.svg", metadata={"Date": None})
        plt.close(figure)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
    _distance(left, right)
    figure.savefig(_FOLDER / "concept-distance.svg", metadata={"Date": None})


def _barrier(axes: Axes) -> None:
    """One step of four ranks: the collective ends for all at once, so the last to come waits least."""
    computes, end = (61.0, 60.0, 85.0, 62.0), 93.0
    for rank, compute in enumerate(computes):
        axes.barh(rank, compute, color=_BAD if rank == 2 else _WORK)
        axes.barh(rank, end - compute, left=compute, color=_WAIT)
        axes.text(compute / 2, rank, f"backward {compute:.0f} ms", color="white", ha="center", va="center")
        axes.text((compute + end) / 2, rank, f"{end - compute:.0f}", ha="center", va="center")
    axes.set_yticks(range(4), [f"rank {rank}" for rank in range(4)])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title("all-reduce (grey): the shortest span belongs to the culprit, the longest to its victims")


def _change_point(axes: Axes) -> None:
    """Iteration times with a change, and the ratio of means right and left of every split."""
    random = np.random.default_rng(3)
    times = random.lognormal(np.log(0.5), 0.02, 240)
    times[150:] *= 1.12
    total = np.concatenate(([0.0], np.cumsum(times)))
    split = np.arange(20, 221)
    ratio = ((total[-1] - total[split]) / (240 - split)) / (total[split] / split)
    axes.plot(times, color=_WORK, lw=0.8)
    axes.set_xlabel("step")
    axes.set_ylabel("iteration, s")
    right = axes.twinx()
    right.plot(split, ratio, color=_BAD)
    right.set_ylabel("mean after / mean before", color=_BAD)
    best = split[int(np.argmax(ratio))]
    right.axvline(best, color=_BAD, ls=":")
    axes.set_title(f"L1: one expression tries every split; the best is step {best}, {ratio.max():.2f}x")


def _modes(axes: Axes) -> None:
    """A histogram of one kernel, and what is kept of it."""
    events = _kernel(np.random.default_rng(5), 1.0)
    found = find_modes(events)
    axes.hist(events * 1e6, bins=list(np.geomspace(40, 900, 140)), color=_WAIT)
    axes.set_xscale("log")
    top = axes.get_ylim()[1]
    for mode in found.modes:
        p50, p99 = mode.p50 * 1e6, mode.p99 * 1e6
        axes.plot([p50, p50], [0, top * 0.95], color=_WORK)
        axes.plot([p50, p99], [top * 0.05] * 2, color=_BAD, lw=2)
        axes.text(p50, top, f"{mode.count} events\np50 {p50:.0f} us\np99 {p99:.0f} us", ha="center")
    axes.set_xlabel("duration of one kernel, us (log)")
    axes.set_yticks([])
    axes.set_ylim(0, top * 1.5)
    axes.set_title(f"{len(events)} events of a window become {len(found.modes)} triples")


def _kernel(random: np.random.Generator, factor: float) -> Floats:
    sizes = ((4000, 60e-6), (2500, 140e-6), (800, 480e-6))
    parts = [random.lognormal(np.log(centre * factor), 0.04, count) for count, centre in sizes]
    return np.concatenate(parts)


def _distance(left: Axes, right: Axes) -> None:
    """Two ranks' distributions of one kernel, and the score of each rank against all others."""
    random = np.random.default_rng(7)
    ranks = [np.sort(random.lognormal(np.log(100e-6), 0.06, 3000)) for _ in range(32)]
    ranks[11] = ranks[11] * 1.07
    share = np.linspace(0, 1, 200)
    healthy, slow = (np.quantile(ranks[rank], share) * 1e6 for rank in (0, 11))
    left.plot(healthy, share, color=_WORK, label="rank 0")
    left.plot(slow, share, color=_BAD, label="rank 11")
    left.fill_betweenx(share, healthy, slow, color=_BAD, alpha=0.2)
    left.set_xlabel("duration, us")
    left.set_ylabel("share of events")
    left.set_title("Wasserstein-1: the area between")
    left.legend(frameon=False)
    scores = np.array(
        [np.mean([np.abs(mine - other).mean() for other in ranks if other is not mine]) for mine in ranks]
    )
    low, high = np.quantile(scores, [0.25, 0.75])
    fence = high + 3 * (high - low)
    right.scatter(range(32), scores * 1e6, s=12, c=[_BAD if score > fence else _WORK for score in scores])
    right.axhline(fence * 1e6, color="black", lw=0.8, ls="--")
    right.text(31, fence * 1e6, "fence", ha="right", va="bottom")
    right.set_xlabel("rank")
    right.set_ylabel("mean distance, us")
    right.set_title("L3: who lies beyond the others")


if __name__ == "__main__":
    main()
