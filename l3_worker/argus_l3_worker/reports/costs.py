"""What findings have cost a job. No I/O.

All figures come from one series, the share of its time that the job loses to a finding: ranks hold up the
same step at the same time, so of several the largest counts, and their sum never.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from argus_l3_worker.read.prometheus import Series

Points = tuple[tuple[float, float], ...]
"""(Unix seconds, value)."""
STALLED: Final = "stalled"
"""The cause of what a job loses while it stands still: everything, whoever it waits for."""


@dataclass(frozen=True)
class Ranks:
    """How many ranks, that is GPUs, a job had over time."""

    count: Mapping[float, float]
    usual: float
    """Where nothing was recorded."""

    def at(self, time: float) -> float:
        return self.count.get(time, self.usual)


@dataclass(frozen=True)
class Costs:
    """Of a job: share of its time and GPUs over time, GPU-hours in all and by cause, costliest first."""

    shares: Points
    gpus: Points
    gpu_hours: float
    by_cause: Mapping[str, float]


def ranks_of(counts: Sequence[Series], usual: int) -> Ranks:
    """From `job:argus_ranks:count`."""
    return Ranks({time: value for one in counts for time, value in one.points}, float(usual))


def costs_of(findings: Iterable[Series], stalled: Iterable[Series], ranks: Ranks, step: float) -> Costs:
    """From `rank:argus_finding:lost_ratio`, and the seconds for which the job stood still."""
    by_who: dict[tuple[float, tuple[str, ...]], float] = {}
    by_cause: dict[tuple[float, str], float] = {}
    for one in findings:
        who, cause = _who(one.labels), one.labels.get("cause", "")
        for time, share in one.points:
            by_who[time, who] = by_who.get((time, who), 0.0) + share
            by_cause[time, cause] = max(by_cause.get((time, cause), 0.0), share)
    for one in stalled:
        for time, _ in one.points:
            by_who[time, ("", "", "")] = by_cause[time, STALLED] = 1.0
    shares: dict[float, float] = {}
    for (time, _), share in by_who.items():
        shares[time] = max(shares.get(time, 0.0), min(share, 1.0))
    hours: dict[str, float] = {}
    for (time, cause), share in by_cause.items():
        hours[cause] = hours.get(cause, 0.0) + min(share, 1.0) * ranks.at(time) * step / 3600.0
    gpus = tuple((time, share * ranks.at(time)) for time, share in sorted(shares.items()))
    return Costs(
        tuple(sorted(shares.items())),
        gpus,
        sum(lost for _, lost in gpus) * step / 3600.0,
        dict(sorted(hours.items(), key=lambda item: -item[1])),
    )


def _who(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("rank", "set", "group"))
