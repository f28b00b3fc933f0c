"""A real Prometheus that holds an hour of two training jobs, for whatever looks at dashboards.

Fleets of the fault lab are written as history, the rules are played over it, and the real L3 worker judges
its kernel windows; beside them lies what else a cluster has: GPU metrics of dcgm-exporter. So every series
that a dashboard asks for is made by the part that makes it in production, but for the clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import aiohttp
import numpy as np

from argus_core import remote_write
from argus_core.kernel_names import kernel_id
from argus_l3_worker.config import Config, PrometheusConfig, WriteConfig
from argus_l3_worker.cycle import Worker
from argus_l3_worker.delivery import Delivery
from argus_l3_worker.prometheus import Prometheus
from argus_l3_worker.spool import Spool
from argus_l3_worker.telemetry import Telemetry
from argus_simulator.fleet.bank import kernel_names
from argus_simulator.fleet.blocks import Block, Row
from argus_simulator.fleet.faults import FleetFault
from argus_simulator.fleet.play import Fleet, FleetPlan, history
from argus_simulator.fleet.ranks import Floats, Layout
from argus_simulator.fleet.remote import RemoteWrite
from bench.rule_history import RuleHistory
from bench.servers import PrometheusServer

RULES = Path(__file__).resolve().parents[1] / "rules"
LARGE, SMALL = "pretrain-70b", "finetune-vlm"
SLOW_RANK = 77
SLOW_KERNEL = "*256x128_32x3_tn*"


@dataclass(frozen=True)
class Size:
    """How much is on the stage.

    Attributes:
        every: seconds between samples; rules look back 119 s and need two.
        kernel_pairs: of each rank.
        cycle_every: seconds between cycles of the worker.
    """

    ranks: int = 1024
    seconds: float = 3600.0
    every: float = 30.0
    kernel_pairs: int = 20
    channels: tuple[str, ...] = ("phases", "kernels", "stacks")
    cycle_every: float = 60.0


def scenario(size: Size, layout: Layout) -> tuple[FleetFault, ...]:
    """A bad afternoon: a slow GPU, experts with a slow kernel, a slow link, and ARGUS half blind."""
    half = size.seconds / 2
    last = layout.ranks - 1
    return (
        FleetFault(str(SLOW_RANK % layout.ranks), phase="backward", factor=1.5, onset=half),
        FleetFault("ep3", kernels=SLOW_KERNEL, factor=1.15, onset=half / 2),
        FleetFault(f"dp{layout.dp - 2}", phase="tp-all-reduce", factor=4.0, onset=0.7 * size.seconds),
        FleetFault(str(last - 9), gc=1.2, onset=0.6 * size.seconds),
        FleetFault(str(last - 17), blind="kernels", onset=0.3 * size.seconds),
        FleetFault(str(last - 33), silent=True, onset=0.9 * size.seconds),
    )


class Stage:
    """Plays everything, in the order of time. `server` stays up until the caller stops it."""

    def __init__(self, server: PrometheusServer, size: Size, end: float | None = None) -> None:
        self.server, self.size = server, size
        self.end = float(int(time.time())) if end is None else end
        self._times = history(self.end, size.seconds, size.every)
        experts = min(8, max(1, size.ranks // 16))
        self.layout = Layout.of_ranks(size.ranks, tp=4, pp=4, ep=experts, ranks_per_host=8)
        small = Layout(dp=16, tp=2, host_prefix="vlm-host")
        self._fleets = [
            self._fleet(self.layout, LARGE, 4.0, 1, scenario(size, self.layout)),
            self._fleet(small, SMALL, 1.5, 2, ()),
        ]
        self._slow = False
        self._rules = RuleHistory(server, list(RULES.glob("*.yaml")))

    def _fleet(
        self, layout: Layout, job: str, step: float, seed: int, faults: tuple[FleetFault, ...]
    ) -> Fleet:
        size = self.size
        plan = FleetPlan(layout, job, step, seed, faults, size.channels, size.kernel_pairs)
        return Fleet(plan, self._times[0])

    async def play(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Write the history."""
        blocks = [block for fleet in self._fleets for block in fleet.blocks]
        gpus = list(_gpu_metrics(self.layout, lambda: self._slow))
        sink = RemoteWrite(f"{self.server.url}/api/v1/write")
        sink.open([*blocks, *gpus])
        async with aiohttp.ClientSession() as session:
            worker, telemetry = _worker(session, self.server.url)
            judged = self._times[0]
            for number, at in enumerate(self._times, 1):
                self._slow = at >= self._times[0] + self.size.seconds / 2
                values = [value for fleet in self._fleets for value in fleet.sample(at)]
                series = sink.write(at, [*values, *(np.atleast_2d(block.values()) for block in gpus)])
                if "kernels" in self.size.channels and at - judged >= self.size.cycle_every:
                    judged = at
                    await worker.cycle(at, at)
                self.server.write(_told_by(telemetry, at))
                recorded = await asyncio.to_thread(self._rules.evaluate, at)
                self.server.write(self._of_prometheus(at, series + recorded))
                say(f"sample {number} of {len(self._times)}: {series} series, {recorded} recorded")

    def _of_prometheus(self, at: float, series: int) -> list[bytes]:
        """What Prometheus would have scraped of itself."""
        stamp = round(at * 1000)
        said = {"prometheus_tsdb_head_series": float(series), "process_resident_memory_bytes": 3e3 * series}
        return [
            remote_write.encode_series(
                remote_write.labels_of(name, job="prometheus", instance="prometheus:9090"), value, stamp
            )
            for name, value in said.items()
        ]


def _worker(session: aiohttp.ClientSession, url: str) -> tuple[Worker, Telemetry]:
    config = Config(
        prometheus=PrometheusConfig(url=url, timeout_seconds=300.0),
        write=WriteConfig(url=f"{url}/api/v1/write", timeout_seconds=60.0),
    )
    telemetry = Telemetry()
    spool = Spool(None, 64 << 20, 3_600_000)
    delivery = Delivery(session, config.write.url, config.write, spool, telemetry)
    prometheus = Prometheus(session, config.prometheus, telemetry)
    return Worker(prometheus, delivery, config, telemetry), telemetry


def _told_by(telemetry: Telemetry, at: float) -> list[bytes]:
    """The worker's own page, as a scrape would store it."""
    return [
        remote_write.encode_series(
            remote_write.labels_of(
                sample.name, **sample.labels, job="argus-l3-worker", instance="worker:9878"
            ),
            sample.value,
            round(at * 1000),
        )
        for family in telemetry.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def _gpu_metrics(layout: Layout, slow: Callable[[], bool]) -> Iterator[Block]:
    """dcgm-exporter's view of the GPUs near the slow one, which is throttled by heat while it is slow."""
    ranks = [
        rank
        for rank in range(layout.ranks)
        if layout.host[rank] in layout.host[[0, SLOW_RANK % layout.ranks]]
    ]
    base = [
        {
            "job": "dcgm-exporter",
            "instance": f"{layout.host_name(int(layout.host[rank]))}:9400",
            "Hostname": layout.host_name(int(layout.host[rank])),
            "UUID": f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}",
            "gpu": str(rank % 8),
        }
        for rank in ranks
    ]
    hot = np.array([rank == SLOW_RANK % layout.ranks for rank in ranks])
    for name, usual, sick in (
        ("DCGM_FI_DEV_SM_CLOCK", 1980.0, 1290.0),
        ("DCGM_FI_DEV_GPU_TEMP", 62.0, 87.0),
        ("DCGM_FI_DEV_POWER_USAGE", 640.0, 410.0),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 0.0, 64.0),
        ("DCGM_FI_DEV_XID_ERRORS", 0.0, 0.0),
    ):

        def values(usual: float = usual, sick: float = sick) -> Floats:
            now: Floats = np.where(hot & slow(), sick, usual)
            return now

        yield Block(name, name, "gauge", base, [Row()], values)


def build(folder: Path, size: Size, say: Callable[[str], None] = lambda _: None) -> Stage:
    """A Prometheus with everything in it.

    Raises:
        AssertionError: Prometheus does not start.
    """
    server = PrometheusServer(folder).start()
    try:
        stage = Stage(server, size)
        asyncio.run(stage.play(say))
    except BaseException:
        server.stop()
        raise
    return stage


def variables(size: Size) -> dict[str, dict[str, str]]:
    """What a reader would choose on a stage of this size: by dashboard, '' for all."""
    sick = kernel_id(next(name for name in kernel_names() if fnmatchcase(name, SLOW_KERNEL)))
    return {
        "": {"training_job": LARGE},
        "argus-rank": {"rank": str(SLOW_RANK % size.ranks)},
        "argus-kernel": {"kernel": sick, "role": "pp0.tp0", "coordinate": "ep"},
    }
