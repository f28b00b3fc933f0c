"""Pauses of a rank's host code: garbage collection and JIT compilation, as totals that its producer keeps.

The totals are the producer's, so a restart of the exporter is no reset of a counter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from argus_core import wire

GENERATIONS: Final = 3
"""Of Python's collector: 0, 1 and 2."""
_COMPILERS_LIMIT: Final = 16
"""Distinct compilers of one rank: a producer names them."""


@dataclass(frozen=True)
class Total:
    count: int
    seconds: float


@dataclass
class HostTotals:
    """Of one process; a new process of the rank begins anew."""

    collections: dict[int, Total] = field(default_factory=dict)
    """By generation."""
    compilations: dict[str, Total] = field(default_factory=dict)
    """By compiler."""

    def collected(self, record: wire.GarbageCollection) -> None:
        """Raises:
        WireError: a generation that Python does not have, or a total that is no duration.
        """
        if record.generation >= GENERATIONS:
            raise wire.WireError("value", f"garbage collection of generation {record.generation}")
        self.collections[record.generation] = _total(record)

    def compiled(self, record: wire.Compilation, compiler: str) -> bool:
        """False where the rank has named too many compilers.

        Raises:
            WireError: a total that is no duration.
        """
        total = _total(record)
        if compiler not in self.compilations and len(self.compilations) >= _COMPILERS_LIMIT:
            return False
        self.compilations[compiler] = total
        return True


def _total(record: wire.GarbageCollection | wire.Compilation) -> Total:
    if not (math.isfinite(record.total_seconds) and record.total_seconds >= 0):
        raise wire.WireError(
            "value", f"total of {record.total_seconds} s is not a finite number of 0 or more"
        )
    return Total(record.total_count, record.total_seconds)
