"""Settings of traces in the worker (section `traces` of its configuration)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from argus_core.http_access import AccessConfig, require_url
from argus_core.settings import constant, require_positive, section, setting
from argus_core.store.config import StoreConfig


@dataclass(frozen=True)
class RequestConfig(AccessConfig):
    """Asking exporters for the traces of suspects and of healthy peers."""

    enabled: bool = setting(True, "ask exporters for traces when a rank is accused")
    exporter_url: str = setting(
        "http://{instance}",
        "where the exporter of a rank listens; {instance}, {node}, {rank} are labels of its argus_rank_info",
    )
    seconds: float = setting(
        30.0, "length of the window that is asked for; it ends when the verdict is given"
    )
    timeout_seconds: float = constant(
        15.0, "longest wait for all answers of a cycle; an exporter itself waits 2 s for late kernels"
    )
    cooldown_seconds: float = constant(
        1800.0, "a rank is not asked for again before: the next trace of the same fault says the same"
    )
    ranks_per_cycle: int = constant(16, "suspects and peers that one cycle asks for at most")
    keep_seconds: float = constant(21_600.0, "how long argus_l3_trace_info names a trace")
    keep_traces: int = constant(256, "series of argus_l3_trace_info at a time; the oldest go first")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_url("exporter_url", self.exporter_url)
        try:
            self.exporter_url.format(instance="", node="", rank="")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(
                f"exporter_url is {self.exporter_url!r}; allowed in braces: instance, node, rank"
            ) from error
        require_positive(self, "seconds")


@dataclass(frozen=True)
class TracesConfig:
    """Where traces are, who may see them, and when they are asked for."""

    store: StoreConfig = section(StoreConfig, "where traces are; the same as in the exporters")
    serve: bool = setting(True, "serve /traces/KEY to everybody who reaches the worker's port")
    ui_url: str = setting(
        "https://ui.perfetto.dev", "the Perfetto UI that links open and that may fetch traces"
    )
    presign_seconds: int = setting(600, "how long a link into the store works; 0: always through the worker")
    request: RequestConfig = section(RequestConfig, "asking exporters for traces")

    def __post_init__(self) -> None:
        url = urlsplit(self.ui_url)
        if url.scheme not in ("http", "https") or not url.netloc or url.query or url.fragment:
            raise ValueError(f"ui_url is {self.ui_url!r}; allowed: a URL with http or https and a host")
        if self.presign_seconds < 0:
            raise ValueError(f"presign_seconds is {self.presign_seconds}; allowed: 0 or more")

    @property
    def ui_origin(self) -> str:
        """Scheme and host of the UI, as browsers send it."""
        url = urlsplit(self.ui_url)
        return f"{url.scheme}://{url.netloc}"
