"""Which scenarios share a stack: as many as the machine carries, and none after another.

A stack lives for one batch: the series of jobs that have ended stay in Prometheus' head, and every rule looks
at them again, so that the sixtieth job of a stack would cost several times what the first does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from argus_simulator.score.scene import Scene


@dataclass(frozen=True)
class Capacity:
    """What may run at a time.

    Attributes:
        jobs: at most so many.
        ranks: and at most so many ranks of them together; one job always may.
    """

    jobs: int
    ranks: int


def batches(scenes: Iterable[Scene], capacity: Capacity) -> list[list[Scene]]:
    """Scenarios of about one length together, the longest first: a batch lasts as long as its longest."""
    found: list[list[Scene]] = []
    for scene in sorted(scenes, key=lambda scene: -scene.all_seconds):
        last = found[-1] if found else []
        if not last or len(last) == capacity.jobs or _ranks(last) + scene.ranks > capacity.ranks:
            found.append([])
        found[-1].append(scene)
    return found


def _ranks(scenes: Iterable[Scene]) -> int:
    return sum(scene.ranks for scene in scenes)
