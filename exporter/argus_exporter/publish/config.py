"""Where the exporter serves, how it is found, and where single steps are written to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from argus_core.http_access import AccessConfig, require_url
from argus_core.settings import require_positive, setting

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OURS = ("training_job", "rank", "__name__")


@dataclass(frozen=True)
class WebConfig:
    listen_address: str = setting(
        ":9877", "HOST:PORT to serve /metrics on; empty host: all interfaces; port 0: any"
    )
    config_file: Path | None = setting(
        None, "TLS and basic auth, in the format of the Prometheus exporter toolkit"
    )


@dataclass(frozen=True)
class DiscoveryConfig:
    file: Path | None = setting(None, "file_sd file (JSON) to keep while serving, for this host's target")
    address: str = setting("", "HOST:PORT to write into it; default: this host's name and the port served")


@dataclass(frozen=True)
class RemoteWriteConfig(AccessConfig):
    url: str = setting(
        "",
        "where to write argus_iteration_seconds, one sample a step (/api/v1/write of Prometheus); empty: off",
    )
    labels: dict[str, str] = setting({}, "labels to add to each sample, such as those that your scrapes add")
    interval_seconds: float = setting(5.0, "how often samples are sent")
    timeout_seconds: float = setting(15.0, "longest wait for one request")
    queue_samples: int = setting(
        50_000, "samples kept while the receiver is away (some 200 bytes each); the oldest go first, counted"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_url("url", self.url, or_empty=True)
        for name in self.labels:
            if not _LABEL.fullmatch(name) or name in _OURS:
                raise ValueError(
                    f"labels.{name} is no label to add; allowed: letters, digits and _, and none of "
                    f"{', '.join(_OURS)}"
                )
        require_positive(self, "interval_seconds", "timeout_seconds", "queue_samples")
