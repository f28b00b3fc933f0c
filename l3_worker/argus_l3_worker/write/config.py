"""Where results go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from argus_core.http_access import AccessConfig, require_url
from argus_core.settings import constant, require_positive, setting


@dataclass(frozen=True)
class WriteConfig(AccessConfig):
    """Where results go, and what happens while the receiver is away."""

    url: str = setting("", "remote write URL; empty: /api/v1/write of prometheus.url")
    timeout_seconds: float = setting(15.0, "longest wait for one request")
    series_per_request: int = setting(2_000, "series in one request")
    attempts: int = setting(3, "tries of a request within one cycle before it is spooled")
    backoff_seconds: float = setting(0.5, "wait after the first failed try; doubles with each")
    spool_dir: Path | None = setting(
        None, "folder that keeps undelivered requests over a restart; null: in memory"
    )
    spool_bytes: int = setting(64 << 20, "bytes of undelivered requests kept; the oldest go first")
    spool_age_seconds: float = constant(3600.0, "older requests are dropped: the receiver would refuse them")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self,
            "timeout_seconds",
            "series_per_request",
            "attempts",
            "backoff_seconds",
            "spool_bytes",
            "spool_age_seconds",
        )
        require_url("url", self.url, or_empty=True)
