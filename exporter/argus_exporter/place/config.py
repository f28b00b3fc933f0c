"""Where the places of ranks are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from argus_core.settings import setting


@dataclass(frozen=True)
class TopologyConfig:
    file: Path | None = setting(
        None,
        "coordinates and roles of ranks (YAML or JSON, see docs/exporter.md); goes before what jobs report",
    )
