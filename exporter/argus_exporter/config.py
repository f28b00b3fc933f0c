"""Configuration of the exporter. Each key is documented where it is declared (`serve --help-config`)."""

from __future__ import annotations

import grp
from dataclasses import dataclass
from pathlib import Path

from argus_core.modes import ModeConfig
from argus_core.settings import section, setting
from argus_exporter.peers import AllowedUsers
from argus_exporter.remote_write_config import RemoteWriteConfig
from argus_exporter.stacks.settings import StacksConfig
from argus_exporter.topology import DIMENSIONS
from argus_exporter.traces.config import TracesConfig


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} is {value!r}; allowed: a number above 0")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value!r}; allowed: 1 or more")


@dataclass(frozen=True)
class WebConfig:
    listen_address: str = setting(
        ":9877", "HOST:PORT to serve /metrics on; empty host: all interfaces; port 0: any"
    )
    config_file: Path | None = setting(
        None, "TLS and basic auth, in the format of the Prometheus exporter toolkit"
    )


@dataclass(frozen=True)
class SocketConfig:
    path: Path | None = setting(
        None, "socket that producers connect to; default: $ARGUS_SOCKET, else a private folder of the user"
    )
    allowed_users: tuple[str | int, ...] = setting(
        (),
        "names or ids of the users whose training may connect, beside root and the exporter's own; "
        "* allows every user of this host",
    )
    group: str | None = setting(
        None, "group that may reach the socket (mode 0660); default: all users once any is allowed, else none"
    )
    connections_per_user: int = setting(
        1024, "connections that the processes of one user may hold; a rank has one to three"
    )

    def __post_init__(self) -> None:
        try:
            AllowedUsers(self.allowed_users)
        except ValueError as error:
            raise ValueError(f"allowed_users: {error}") from error
        _at_least_one("connections_per_user", self.connections_per_user)
        if self.group is not None:
            try:
                grp.getgrnam(self.group)
            except KeyError:
                raise ValueError(
                    f"group is {self.group!r}; allowed: the name of a group of this host"
                ) from None


@dataclass(frozen=True)
class DiscoveryConfig:
    file: Path | None = setting(None, "file_sd file (JSON) to keep while serving, for this host's target")
    address: str = setting("", "HOST:PORT to write into it; default: this host's name and the port served")


@dataclass(frozen=True)
class WindowsConfig:
    seconds: float = setting(60.0, "length that a kernel window aims at; it ends at a power-of-two step")
    steps: int | None = setting(
        None, "fixed window length in steps, the same on every rank; default: derived from windows.seconds"
    )
    settle_seconds: float = setting(2.0, "how long a closed window waits for late kernel records")
    extremes_seconds: float = setting(
        60.0, "trailing window of the min and max gauges; at least two scrape intervals"
    )

    def __post_init__(self) -> None:
        _positive("seconds", self.seconds)
        _positive("extremes_seconds", self.extremes_seconds)
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps is {self.steps!r}; allowed: 1 or more")
        if self.settle_seconds < 0:
            raise ValueError(f"settle_seconds is {self.settle_seconds!r}; allowed: 0 or more")


@dataclass(frozen=True)
class KernelsConfig:
    top_pairs: int = setting(20, "(kernel, stream) pairs published a rank, by time share")

    def __post_init__(self) -> None:
        _at_least_one("top_pairs", self.top_pairs)


@dataclass(frozen=True)
class TopologyConfig:
    file: Path | None = setting(
        None,
        "coordinates and roles of ranks (YAML or JSON, see docs/exporter.md); goes before what jobs report",
    )


@dataclass(frozen=True)
class RanksConfig:
    forget_seconds: float = setting(300.0, "how long a lost rank stays visible with argus_rank_up 0")
    limit: int = setting(
        1024, "ranks kept at a time, lost ones among them: what a broken or hostile producer can make of them"
    )

    def __post_init__(self) -> None:
        _at_least_one("limit", self.limit)
        _positive("forget_seconds", self.forget_seconds)


@dataclass(frozen=True)
class ExporterConfig:
    """The whole file."""

    web: WebConfig = section(WebConfig, "HTTP server")
    socket: SocketConfig = section(SocketConfig, "where producers connect")
    discovery: DiscoveryConfig = section(DiscoveryConfig, "how Prometheus finds this exporter")
    windows: WindowsConfig = section(WindowsConfig, "time windows")
    kernels: KernelsConfig = section(KernelsConfig, "kernel statistics")
    stacks: StacksConfig = section(StacksConfig, "call stacks, sampled from outside")
    modes: ModeConfig = section(ModeConfig, "how the durations of a kernel are clustered")
    ranks: RanksConfig = section(RanksConfig, "life of a rank")
    traces: TracesConfig = section(TracesConfig, "timelines of single ranks, for Perfetto")
    topology: TopologyConfig = section(TopologyConfig, "who the ranks are")
    remote_write: RemoteWriteConfig = section(RemoteWriteConfig, "one sample a step")
    routing: dict[str, str] = setting(
        {}, f"phase name pattern to comparison dimension ({', '.join(DIMENSIONS)}), before the built-in table"
    )

    def __post_init__(self) -> None:
        for pattern, dimension in self.routing.items():
            if dimension not in DIMENSIONS:
                raise ValueError(f"routing.{pattern} is {dimension!r}; allowed: {', '.join(DIMENSIONS)}")
