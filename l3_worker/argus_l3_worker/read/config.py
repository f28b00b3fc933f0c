"""Where kernel modes are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from argus_core.http_access import AccessConfig, require_url
from argus_core.settings import constant, require_positive, setting


@dataclass(frozen=True)
class PrometheusConfig(AccessConfig):
    """Where triples are read."""

    GONE: ClassVar = {"gzip": "answers are not compressed, which took Prometheus longer than a line saves"}

    url: str = setting("http://127.0.0.1:9090", "base URL of the Prometheus HTTP API")
    timeout_seconds: float = constant(
        30.0, "longest wait for one answer: shard_series keeps the largest near 1.5 s on two cores"
    )
    concurrency: int = setting(4, "queries in flight at a time")
    shard_series: int = constant(50_000, "a query asks for about this many series at most; kernels are split")
    max_kernels: int = constant(
        5_000,
        "kernels of a job that are asked for at most, by share of kernel time: what a cycle has no time for "
        "is left out too, mostly before",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "concurrency")
        require_url("url", self.url)
