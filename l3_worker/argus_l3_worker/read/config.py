"""Where kernel modes are read."""

from __future__ import annotations

from dataclasses import dataclass

from argus_core.http_access import AccessConfig, require_url
from argus_core.settings import constant, require_positive, setting


@dataclass(frozen=True)
class PrometheusConfig(AccessConfig):
    """Where triples are read."""

    url: str = setting("http://127.0.0.1:9090", "base URL of the Prometheus HTTP API")
    timeout_seconds: float = setting(30.0, "longest wait for one answer")
    concurrency: int = setting(4, "queries in flight at a time")
    shard_series: int = constant(50_000, "a query asks for about this many series at most; kernels are split")
    max_kernels: int = setting(5_000, "kernels of a job that are asked for at most, by share of kernel time")
    gzip: bool = setting(
        False,
        "ask for compressed answers: for thin lines only, since Prometheus takes longer to compress than a "
        "fast line to carry them",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "timeout_seconds", "concurrency", "shard_series", "max_kernels")
        require_url("url", self.url)
