"""False gpu-memory episodes of healthy fleets in a day of looks, and how often a true one is found.

    python -m bench.l3_recurrence [--days 20]

Healthy: each rank has far launches in a window by chance alone, with the same rate everywhere. Ill: one rank
has them in a quarter of its windows beside such a fleet. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

import numpy as np

from argus_l3_worker.config import Config
from argus_l3_worker.recurrence import Visits, recurring

CONFIG = Config()
LOOKS_A_DAY = round(86_400 / CONFIG.cycle_seconds)
RANKS = (16, 64, 256, 1024)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
ILL_RATE = 0.25


def accused(ranks: int, rate: float, seed: int, looks: int, ill: float = 0.0) -> Iterator[frozenset[str]]:
    """Whom each look accuses; rank 0 is ill by the rate `ill`."""
    random = np.random.default_rng([ranks, seed])
    windows, needed = CONFIG.judge.tail_windows, CONFIG.judge.windows_needed
    seen = random.random((looks + windows, ranks)) < rate
    seen[:, 0] |= random.random(looks + windows) < ill
    summed = np.cumsum(seen, axis=0)
    for before, now in zip(summed, summed[windows:], strict=False):
        visited = now - before
        yield recurring(
            {str(rank): Visits(int(visited[rank]), windows) for rank in np.flatnonzero(visited)},
            ranks * windows,
            needed,
        )


def false_episodes(ranks: int, rate: float, seed: int, looks: int = LOOKS_A_DAY) -> int:
    """How often a healthy rank begins to be accused."""
    episodes, held = 0, frozenset[str]()
    for found in accused(ranks, rate, seed, looks):
        episodes += len(found - held)
        held = found
    return episodes


def found_within(ranks: int, rate: float, seed: int, looks: int) -> bool:
    """Whether the ill rank is accused in one of the looks."""
    return any("0" in found for found in accused(ranks, rate, seed, looks, ILL_RATE))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=20, help="of each fleet and rate (default: %(default)s)")
    args = parser.parse_args()
    worst = 0.0
    for ranks in RANKS:
        of_rates = [
            float(np.mean([false_episodes(ranks, rate, seed) for seed in range(args.days)])) for rate in RATES
        ]
        worst = max(worst, *of_rates)
        shown = "  ".join(f"{rate:g}: {mean:.2f}" for rate, mean in zip(RATES, of_rates, strict=True))
        print(f"{ranks:6} ranks: {shown}", flush=True)
    hour = round(3600 / CONFIG.cycle_seconds)
    cases = [(ranks, seed) for ranks in RANKS for seed in range(10 * args.days)]
    power = float(np.mean([found_within(ranks, 0.003, seed, hour) for ranks, seed in cases]))
    print(f"ill rank found within an hour: {power:.3f}")
    print(json.dumps({"false_episodes_a_day": round(worst, 2), "found_within_an_hour": round(power, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
