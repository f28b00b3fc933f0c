"""What a GPU's shift against its role was, from the series that the worker itself has written.

So a GPU keeps its past when it becomes another rank of the same role, and over restarts of job and worker.
Half hours at whose end it was called slow are left out, as its illness is not what it was; of fewer than two
hours besides nothing is known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from argus_core import catalogue
from argus_l3_worker.read.prometheus import Prometheus, selector
from argus_l3_worker.triples import Floats

Gpu = tuple[str, str]
"""(gpu_uuid, role)."""
BLOCK_SECONDS: Final = 1800.0
"""The past is known by its median of each half hour, whose spread tells how far such medians wander."""
RECENT_BLOCKS: Final = 3
"""What is held against the past: the median of fewer half hours wanders too far with temperature, that of
more tells too late who has become slow (docs/evidence/shifts.md)."""
RECENT_SECONDS: Final = RECENT_BLOCKS * BLOCK_SECONDS
BLOCKS: Final = 24
"""Twelve hours: who becomes slow is so against them for six, while most of them are of before."""
# Of the recent cycles: a few would have the noise of a few.
_LEAST_SHARE: Final = 0.5


@dataclass
class PastShifts:
    """Log shifts of the GPUs of one job: `recent`, and `past` of the half hours before, shape (BLOCKS,)."""

    recent: dict[Gpu, float] = field(default_factory=dict)
    past: dict[Gpu, Floats] = field(default_factory=dict)
    _until: float = 0.0

    async def read(
        self, prometheus: Prometheus, job: str, at: float, cycle_seconds: float, accused: Collection[Gpu]
    ) -> None:
        """Ask for what was written before Unix time `at`; for the past once in half an hour.

        Args:
            cycle_seconds: how often it was written.
            accused: these keep the past that they are accused by, or their illness would become their health.

        Raises:
            QueryError: no answer, or an incomplete one.
        """
        written = selector(catalogue.L3_RANK_SHIFT.name, {"training_job": job}, excluded={"gpu_uuid": ("",)})

        def medians(seconds: float, condition: str = "") -> str:
            over = f"{written}[{seconds:.0f}s]"
            return f"avg by (gpu_uuid, role) (quantile_over_time(0.5, {over}){condition.format(over)})"

        least = _LEAST_SHARE * RECENT_SECONDS / cycle_seconds
        answer = await prometheus.instant(
            medians(RECENT_SECONDS, f" and count_over_time({{}}) >= {least:g}"), at
        )
        self.recent = {
            (one.labels.get("gpu_uuid", ""), one.labels.get("role", "")): float(np.log1p(one.value))
            for one in answer
        }
        until = (at - RECENT_SECONDS) // BLOCK_SECONDS * BLOCK_SECONDS
        if until == self._until or not self.recent:
            return
        self._until = until  # if it fails, the next time is in half an hour
        begin = until - (BLOCKS - 1) * BLOCK_SECONDS
        past = {gpu: self.past[gpu] for gpu in accused if gpu in self.past}

        async def by_block(query: str) -> dict[Gpu, Floats]:
            found = {}
            for series in await prometheus.range(query, begin, until, BLOCK_SECONDS):
                blocks = np.full(BLOCKS, np.nan)
                for time, value in series.points:
                    blocks[round((time - begin) / BLOCK_SECONDS)] = np.log1p(value)
                found[series.labels.get("gpu_uuid", ""), series.labels.get("role", "")] = blocks
            return found

        written_then = await by_block(medians(BLOCK_SECONDS))
        of = {"training_job": job, "kernel": "all", "cause": "gpu-compute", "verdict": "culprit"}
        ill = f"{written} and on (rank) {selector(catalogue.L3_ANOMALY.name, of)}"
        for gpu, blocks in (await by_block(f"max by (gpu_uuid, role) ({ill})")).items():
            if gpu in written_then:
                written_then[gpu][~np.isnan(blocks)] = np.nan
        self.past = written_then | past
