"""How long ranks are kept, and what of the configuration concerns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from argus_core.settings import require_positive, setting
from argus_exporter.kernels.pipeline import PipelineConfig


@dataclass(frozen=True)
class RanksConfig:
    forget_seconds: float = setting(300.0, "how long a lost rank stays visible with argus_rank_up 0")
    limit: int = setting(
        1024, "ranks kept at a time, lost ones among them: what a broken or hostile producer can make of them"
    )

    def __post_init__(self) -> None:
        require_positive(self, "limit", "forget_seconds")


class RankConfig(PipelineConfig, Protocol):
    """What of the exporter's configuration concerns a rank."""

    @property
    def ranks(self) -> RanksConfig: ...
