"""Between whom a slow or broken link was said to be, by the series that the texts of alerts ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from argus_simulator.score.claims import Claim
from argus_simulator.stack import Samples

_ALERTS: Final = frozenset({"ArgusCollectiveSlowLink", "ArgusTrainingStalled"})
_HOPS: Final = (
    "count by (rank, to_rank) ("
    'max_over_time(rank:argus_network_wire:ratio{{training_job="{job}"}}[{window}s] @ {end:.3f}) or '
    'max_over_time(rank:argus_stall_suspect:bool{{training_job="{job}",stage="link"}}[{window}s] @ {end:.3f})'
    ")"
)


def told_links(
    query: Callable[[str], Samples], job: str, claims: Iterable[Claim], start: float, end: float
) -> tuple[tuple[int, int], ...]:
    """(from, to) of every hop that was said to be slow or broken at any moment between two Unix times.

    Args:
        claims: what was told meanwhile; where no page or ticket is of a link or a hang, no hop was told.
    """
    if not any(claim.alert in _ALERTS and claim.above_info for claim in claims):
        return ()
    window = max(1, round(end - start))
    found = query(_HOPS.format(job=job, window=window, end=end))
    return tuple(sorted((int(labels["rank"]), int(labels["to_rank"])) for labels, _ in found))
