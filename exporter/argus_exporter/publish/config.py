"""Where the exporter serves, how it is found, and where single steps are written to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from argus_core.http_access import AccessConfig, require_url
from argus_core.settings import constant, setting

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
    interval_seconds: float = constant(
        5.0, "how often samples are sent: as Prometheus' own batch_send_deadline, sooner than a scrape"
    )
    timeout_seconds: float = constant(
        15.0, "longest wait for one request: what fails is sent again from the queue"
    )
    queue_samples: int = constant(
        50_000,
        "samples kept while the receiver is away: 10 MB, and 100 minutes of 8 ranks at a step a second",
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
