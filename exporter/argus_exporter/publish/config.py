"""Where the exporter serves, and how it is found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from argus_core.settings import setting


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
