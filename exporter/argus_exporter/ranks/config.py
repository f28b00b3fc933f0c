"""How long ranks are kept, and what of the configuration concerns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from argus_core.settings import constant
from argus_exporter.kernels.pipeline import PipelineConfig


@dataclass(frozen=True)
class RanksConfig:
    forget_seconds: float = constant(
        300.0,
        "how long a lost rank stays visible with argus_rank_up 0, for which ArgusRankMissing waits 120 s",
    )
    limit: int = constant(
        1024,
        "ranks kept at a time, lost ones among them: far above the 8 to 16 of a host, and what a broken or "
        "hostile producer can make of them",
    )


class RankConfig(PipelineConfig, Protocol):
    """What of the exporter's configuration concerns a rank."""

    @property
    def ranks(self) -> RanksConfig: ...
