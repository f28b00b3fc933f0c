"""Where results go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from argus_core.http_access import AccessConfig, require_url
from argus_core.settings import constant, setting


@dataclass(frozen=True)
class WriteConfig(AccessConfig):
    """Where results go, and what happens while the receiver is away."""

    url: str = setting("", "remote write URL; empty: /api/v1/write of prometheus.url")
    timeout_seconds: float = constant(
        15.0, "longest wait for one request: three tries fit into a cycle, and what fails is spooled"
    )
    series_per_request: int = constant(
        2_000, "what recent versions of Prometheus send at a time by default; a series has one sample"
    )
    attempts: int = constant(3, "tries of a request within one cycle before it is spooled and sent later")
    backoff_seconds: float = constant(
        0.5, "wait after the first failed try, doubled with each; a receiver's Retry-After goes before it"
    )
    spool_dir: Path | None = setting(
        None, "folder that keeps undelivered requests over a restart; null: in memory"
    )
    spool_bytes: int = constant(
        64 << 20,
        "bytes of undelivered requests kept, the oldest go first: an hour of 30,000 ranks, 0.4 MB a cycle of "
        "10,000, and none may be older",
    )
    spool_age_seconds: float = constant(3600.0, "older requests are dropped: the receiver would refuse them")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_url("url", self.url, or_empty=True)
