"""Settings of traces (section `traces` of the exporter's configuration)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from argus_core.settings import constant, section, setting
from argus_core.store.config import StoreConfig


@dataclass(frozen=True)
class RingConfig:
    bytes: int = setting(
        2 << 30, "what the ring may take on disk; 8 ranks at 1e5 events a minute fill 2 GB/h"
    )
    seconds: float = setting(3600.0, "how long records are kept")

    def __post_init__(self) -> None:
        if self.bytes < 1 << 20:
            raise ValueError(f"bytes is {self.bytes!r}; allowed: 1048576 or more")
        if not 60 <= self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds!r}; allowed: 60 or more, and finite")


@dataclass(frozen=True)
class RequestsConfig:
    """What POST /traces/request may ask of a host that trains."""

    per_minute: int = constant(
        60, "windows of single ranks a minute: all 8 of a host, seven times; the worker asks for 16 a cycle"
    )
    seconds: float = constant(
        120.0, "longest time range of a request: four times what the worker asks for by default"
    )
    steps: int = constant(64, "most steps of a request: what a person reads in Perfetto is a handful")


@dataclass(frozen=True)
class SamplingConfig:
    every_steps: int = setting(0, "upload a window of every rank's turn each so many steps; 0: none")
    steps: int = constant(
        4,
        "steps of a sampled window: enough to see one beside the next; every_steps and ratio set the volume",
    )
    ratio: float = setting(0.01, "share of the ranks whose turn it is, drawn anew for each window")

    def __post_init__(self) -> None:
        if self.every_steps < 0 or 0 < self.every_steps < self.steps:
            raise ValueError(f"every_steps is {self.every_steps!r}; allowed: 0, or {self.steps} or more")
        if not 0 < self.ratio <= 1:
            raise ValueError(f"ratio is {self.ratio!r}; allowed: above 0, up to 1")


@dataclass(frozen=True)
class TracesConfig:
    enabled: bool | None = setting(
        None, "keep traces; default: where the socket is the user's default one, or traces.folder is set"
    )
    folder: Path | None = setting(
        None, "folder of the ring and of traces that wait for the store; default: the user's state folder"
    )
    outbox_bytes: int = setting(1 << 30, "what traces that wait for the store may take; the oldest go first")
    ring: RingConfig = section(RingConfig, "raw records on local disk")
    requests: RequestsConfig = section(RequestsConfig, "traces on request")
    sampling: SamplingConfig = section(SamplingConfig, "traces without a request")
    store: StoreConfig = section(StoreConfig, "where traces go")

    def __post_init__(self) -> None:
        if self.outbox_bytes < 1 << 20:
            raise ValueError(f"outbox_bytes is {self.outbox_bytes!r}; allowed: 1048576 or more")
