"""One collector a file: each turns the state of the ranks into metric families of the catalogue."""

from __future__ import annotations

from argus_exporter.publish.collectors.activity import ActivityCollector
from argus_exporter.publish.collectors.anatomy import AnatomyCollector
from argus_exporter.publish.collectors.base import Collector, NoData
from argus_exporter.publish.collectors.channel import ChannelCollector
from argus_exporter.publish.collectors.compilation import CompilationCollector
from argus_exporter.publish.collectors.garbage import GarbageCollector
from argus_exporter.publish.collectors.issue_latency import IssueLatencyCollector
from argus_exporter.publish.collectors.iteration import IterationCollector
from argus_exporter.publish.collectors.job import JobCollector
from argus_exporter.publish.collectors.kernel import KernelCollector
from argus_exporter.publish.collectors.layer import LayerCollector
from argus_exporter.publish.collectors.live import LiveCollector
from argus_exporter.publish.collectors.nccl import NcclCollector
from argus_exporter.publish.collectors.phase import PhaseCollector
from argus_exporter.publish.collectors.rank import RankCollector
from argus_exporter.publish.collectors.ras import RasCollector
from argus_exporter.publish.collectors.recent import RecentCollector
from argus_exporter.publish.collectors.runner import CollectorRunner
from argus_exporter.publish.collectors.stack import StackCollector
from argus_exporter.publish.collectors.stopped import StoppedCollector
from argus_exporter.publish.collectors.void import VoidCollector
from argus_exporter.publish.collectors.work import WorkCollector

ALL_COLLECTORS: tuple[Collector, ...] = (
    RankCollector(),
    ActivityCollector(),
    IterationCollector(),
    JobCollector(),
    PhaseCollector(),
    RecentCollector(),
    LayerCollector(),
    LiveCollector(),
    GarbageCollector(),
    CompilationCollector(),
    WorkCollector(),
    KernelCollector(),
    AnatomyCollector(),
    IssueLatencyCollector(),
    VoidCollector(),
    StackCollector(),
    RasCollector(),
    NcclCollector(),
    StoppedCollector(),
    ChannelCollector(),
)

__all__ = ["ALL_COLLECTORS", "Collector", "CollectorRunner", "NoData"]
