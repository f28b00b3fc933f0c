"""Configuration of the exporter. Each key is documented where it is declared (`--help-config`)."""

from __future__ import annotations

from dataclasses import dataclass

from argus_core.modes import ModeConfig
from argus_core.settings import section, setting
from argus_exporter.intake.config import SocketConfig
from argus_exporter.kernels.config import KernelsConfig, WindowsConfig
from argus_exporter.place.config import TopologyConfig
from argus_exporter.place.topology import DIMENSIONS
from argus_exporter.publish.config import DiscoveryConfig, RemoteWriteConfig, WebConfig
from argus_exporter.py_spy.config import StacksConfig
from argus_exporter.ranks.config import RanksConfig
from argus_exporter.ras.config import RasConfig
from argus_exporter.traces.config import TracesConfig


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
    ras: RasConfig = section(RasConfig, "NCCL's own word on a job that stands still")
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
