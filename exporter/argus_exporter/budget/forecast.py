"""From series to memory, samples and servers. The constants are measured: `python -m bench.budget`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from argus_exporter.budget.series import Fleet, exported

RECORDED_A_PHASE: Final = 2.0
"""Series that rules record for one rank and phase of a healthy job: its mean, and its mean by work."""
RECORDED_A_RANK: Final = 6.0
"""For a rank: garbage collection, compilation, busy time, its number."""
RECORDED_A_GROUP: Final = 16.0
"""For a group and phase: mean, median, extremes, deviation, coverage and so on."""
SMALL_GROUP_PHASES: Final = 2
SMALL_GROUP: Final = 4
"""Phases that are compared in groups of few ranks (tensor, pipeline, expert parallel), and their size.

The groups of the other phases are large, so few."""

BYTES_A_SERIES: Final = 5_500
"""Resident memory of Prometheus 2.42 over the series in its head while all rules are evaluated.

Measured 4,300 to 5,600: bench.budget 1.18 GiB with 293,000 series, 2.09 with 442,000 (all imbalanced);
bench.rules 3.56 GiB with 689,000, 4.00 with 791,000."""
BASE_BYTES: Final = 150 << 20
"""Of an empty Prometheus with the rules loaded."""
BYTES_A_SAMPLE: Final = 1.7
"""On disk, compacted (Prometheus' documentation says 1 to 2)."""
SERVER_SERIES: Final = 10_000_000
"""Series in the head beyond which one server is slow to restart and to query: shard by training_job."""


@dataclass(frozen=True)
class Forecast:
    """What a fleet costs.

    Attributes:
        sources: series by where they come from, rules included.
        series: all of them, in the head of Prometheus.
        samples_per_second: scraped, written and recorded.
        memory_bytes: resident memory of Prometheus.
        disk_bytes_per_day: of its blocks.
        servers: over which the jobs must be spread.
    """

    sources: dict[str, float]
    series: float
    samples_per_second: float
    memory_bytes: float
    disk_bytes_per_day: float
    servers: int


def forecast(fleet: Fleet, scrape_seconds: float = 15.0) -> Forecast:
    """What the fleet costs one Prometheus that scrapes it each `scrape_seconds`.

    Raises:
        ValueError: `scrape_seconds` is not above 0.
    """
    if not scrape_seconds > 0:
        raise ValueError(f"scrape_seconds is {scrape_seconds!r}; allowed: a number above 0")
    sources = exported(fleet)
    recorded = fleet.ranks * (RECORDED_A_RANK + RECORDED_A_PHASE * fleet.phases)
    small = min(SMALL_GROUP_PHASES, fleet.phases) if fleet.groups > 1 else 0
    recorded += RECORDED_A_GROUP * small * -(-fleet.ranks // SMALL_GROUP)
    sources["recording rules"] = recorded
    series = sum(sources.values())
    rate = series / scrape_seconds
    memory = BASE_BYTES + BYTES_A_SERIES * series
    return Forecast(
        sources=sources,
        series=series,
        samples_per_second=rate,
        memory_bytes=memory,
        disk_bytes_per_day=rate * 86_400 * BYTES_A_SAMPLE,
        servers=max(1, -(-int(series) // SERVER_SERIES)),
    )
