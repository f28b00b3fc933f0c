"""A real Prometheus that holds an hour of two training jobs, for whatever looks at dashboards.

Fleets of the fault lab are written as history, the rules are played over it, and the real L3 worker judges
its kernel windows; beside them lies what else a cluster has: GPU metrics of dcgm-exporter. So every series
that a dashboard asks for is made by the part that makes it in production, but for the clock.

Rules and worker are asked less often than there are samples, and in between what they said is repeated. A
small stage asks the rules of whole jobs as often as production does and all others every three minutes; a
large one all of them three times an hour: it has a fleet's series in the right number and density, but they
are not to be believed.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np

from argus_core import remote_write
from argus_core.catalogue import SAMPLE_NAMES
from argus_core.kernel_names import kernel_id
from argus_l3_worker.config import Config
from argus_l3_worker.cycle import Worker
from argus_l3_worker.judge.config import CrossCheckConfig
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.read.prometheus import Prometheus
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.write.config import WriteConfig
from argus_l3_worker.write.delivery import Delivery
from argus_l3_worker.write.spool import Spool
from argus_simulator.fast_play.storage import Floats
from argus_simulator.fleet.play import Fleet, FleetPlan, history, layout
from argus_simulator.fleet.series_blocks import Block, Row
from argus_simulator.kernel_symbols import EXPERTS
from argus_simulator.producers import gpu_uuid
from argus_simulator.topology import Topology
from bench.bulk_write import BulkWrite
from bench.rule_history import RuleHistory, samples_around
from bench.servers import PrometheusServer

RULES = Path(__file__).resolve().parents[1] / "rules"
LARGE, SMALL = "pretrain-70b", "finetune-vlm"
SLOW_RANK = 77

_SLOW_GPU_SINCE = 0.55
"""Share of the time before it: of an hour, so that a window of 30 minutes still holds healthy ones."""
_STEP_SECONDS = {LARGE: 15.0, SMALL: 6.0}
"""70e9 parameters and 4e6 tokens a step are 1.7e18 operations: 256 GPUs take some 16 s. Each step of an hour
is played, and costs a few milliseconds a rank."""
_OF_JOBS = ("job", "regression")
"""Files of rules of whole jobs."""
_WORKER = "argus-l3-worker"
_SEEN_SECONDS = 240.0
"""Prometheus shows a sample for five minutes: what is written so often needs no repetition."""
_BATCH = 2000
"""Series a request."""


@dataclass(frozen=True)
class Size:
    """How much is on the stage.

    Attributes:
        every: seconds between samples; rules look back 119 s and need two.
        kernel_pairs: of each rank.
        job_every: seconds between evaluations of the rules of whole jobs (L1), which cost little.
        evaluate_every: seconds between evaluations of all rules.
        cycle_every: seconds between cycles of the worker, rounded up to those of all rules.
    """

    ranks: int = 1024
    seconds: float = 3600.0
    every: float = 30.0
    kernel_pairs: int = 20
    channels: tuple[str, ...] = ("phases", "kernels", "stacks")
    job_every: float = 15.0
    evaluate_every: float = 180.0
    cycle_every: float = 180.0


def topology_of(ranks: int) -> Topology:
    """Of the large job: a quarter of its ranks has the same experts, so that a slow one is an anomaly."""
    return layout(ranks, tp=2, pp=2, ep=4, ranks_per_host=8)


def scenario(size: Size, topology: Topology) -> tuple[str, ...]:
    """A bad afternoon: a slow GPU, experts with a slow kernel, a slow link, and ARGUS half blind.

    All ranks compile now and then, which is nobody's fault. What hits single ranks, but for the slow GPU,
    hits ranks that share their experts: of such blocks, each that differs from the others is played. Onsets
    are steps of healthy length: slow ones make an onset at three quarters one of the last minutes.
    """
    last = topology.ranks - 1
    faults = (
        (SLOW_RANK % topology.ranks, _SLOW_GPU_SINCE, "kernels,factor=1.5"),
        ("ep1", 0.25, f"kernels,kernels={EXPERTS.partition('<')[0]}*,factor=1.15"),
        (f"dp{topology.dp - 2}", 0.7, "link,dimension=tp,factor=4"),
        (f"0-{last}", 0.0, "pause,kind=compile,seconds=0.5,period_steps=25"),
        (last - 1, 0.6, "pause,kind=gc,seconds=1.2,period_steps=3,staggered=yes"),
        (last - 5, 0.3, "channel,channel=kernels,reason=cupti_taken"),
        (last - 7, 0.75, "leave"),
    )
    return tuple(
        f"ranks={ranks},onset={since * size.seconds:.0f}s,mechanism={what}" for ranks, since, what in faults
    )


class Stage:
    """Plays everything, in the order of time. `server` stays up until the caller stops it."""

    def __init__(self, server: PrometheusServer, size: Size, end: float | None = None) -> None:
        self.server, self.size = server, size
        self.end = float(int(time.time())) if end is None else end
        self._times = history(self.end, size.seconds, size.every)
        self.topology = topology_of(size.ranks)
        small = Topology(dp=16, tp=2)
        faults = scenario(size, self.topology)
        self._fleets = [
            self._fleet(self.topology, LARGE, _STEP_SECONDS[LARGE], 1, faults, "sim-host"),
            self._fleet(small, SMALL, _STEP_SECONDS[SMALL], 2, (), "vlm-host"),
        ]
        self._slow = False
        self._rules = RuleHistory(server, list(RULES.glob("*.yaml")))

    def _fleet(
        self, topology: Topology, job: str, step: float, seed: int, faults: tuple[str, ...], hosts: str
    ) -> Fleet:
        size = self.size
        plan = FleetPlan(
            topology, job, step, seed, faults, size.channels, size.kernel_pairs, host_prefix=hosts
        )
        return Fleet(plan, self._times)

    async def play(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Write the history."""
        began = time.monotonic()
        blocks = [block for fleet in self._fleets for block in fleet.blocks]
        gpus = list(_gpu_metrics(self.topology, lambda: self._slow))
        raw = BulkWrite(self.server, (labels for block in (*blocks, *gpus) for labels in block.labels()))
        async with aiohttp.ClientSession() as session:
            worker, telemetry = _worker(session, self.server.url)
            judged = of_jobs = self._times[0]
            held: list[tuple[bytes, bytes]] = []
            dense = self.size.job_every < self.size.evaluate_every
            often = self._rules.names_in(*_OF_JOBS) if dense else ()
            for run in self._runs():
                series = raw.write(run, self._sampled(run, gpus))
                *between, at = run
                self._rules.repeat(between, at, but=often)
                self._repeat(held, between)
                for moment in between:
                    self.server.write(_told_by(telemetry, moment))
                while often and of_jobs + self.size.job_every < at:
                    of_jobs += self.size.job_every
                    await asyncio.to_thread(self._rules.evaluate, of_jobs, often)
                if "kernels" in self.size.channels and at - judged >= self.size.cycle_every:
                    judged = at
                    await worker.cycle(at, at)
                    if self.size.cycle_every > _SEEN_SECONDS:
                        held = self._of_worker(at)
                self.server.write(_told_by(telemetry, at))
                of_jobs, recorded = at, await asyncio.to_thread(self._rules.evaluate, at)
                for moment in run:
                    self.server.write(self._of_prometheus(moment, series + recorded))
                done = (at - self._times[0]) / max(self.size.seconds, 1.0)
                spent = time.monotonic() - began
                say(f"{done:4.0%} of history, {spent:4.0f} s: {series} series, {recorded} recorded")

    def _runs(self) -> Iterator[Sequence[float]]:
        """Times of samples up to and with each evaluation of the rules, the last one at the end."""
        length = max(1, round(self.size.evaluate_every / self.size.every))
        first = len(self._times) % length or length
        for begin in (0, *range(first, len(self._times), length)):
            yield self._times[begin : first if begin == 0 else begin + length]

    def _sampled(self, times: Sequence[float], gpus: Sequence[Block]) -> Floats:
        """Of every series, shape (series, times)."""
        columns = []
        for at in times:
            self._slow = at >= self._fleets[0].onsets[0]
            values = [value for fleet in self._fleets for value in fleet.sample(at)]
            values += [block.values() for block in gpus]
            columns.append(np.concatenate([value.reshape(-1) for value in values]))
        return np.column_stack(columns)

    def _of_worker(self, at: float) -> list[tuple[bytes, bytes]]:
        """What the worker has written: encoded labels and value of each series."""
        empty = len(remote_write.encode_series((), 0.0, 0))
        return [
            (
                remote_write.encode_series(remote_write.labels_of(name, **labels), 0.0, 0)[:-empty],
                struct.pack("<d", value),
            )
            for name in sorted(SAMPLE_NAMES)
            if name.startswith("argus_l3_")
            for labels, value in self.server.query(name, at)
            if labels.get("job") != _WORKER  # scraped, not written by it
        ]

    def _repeat(self, held: Sequence[tuple[bytes, bytes]], times: Sequence[float]) -> None:
        around = samples_around(times)
        body = [labels + value.join(around) for labels, value in held if times]
        for batch in remote_write.batches(body, _BATCH):
            self.server.write(batch)

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
        witness=CrossCheckConfig(enabled=True),
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
            remote_write.labels_of(sample.name, **sample.labels, job=_WORKER, instance="worker:9878"),
            sample.value,
            round(at * 1000),
        )
        for family in telemetry.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def _gpu_metrics(topology: Topology, slow: Callable[[], bool]) -> Iterator[Block]:
    """dcgm-exporter's view of the GPUs near the slow one, which is throttled by heat while it is slow."""
    near = {topology.host(0), topology.host(SLOW_RANK % topology.ranks)}
    ranks = [rank for rank in range(topology.ranks) if topology.host(rank) in near]
    base = [
        {
            "job": "dcgm-exporter",
            "instance": f"{topology.host(rank)}:9400",
            "Hostname": topology.host(rank),
            "UUID": gpu_uuid(rank),
            "gpu": str(rank % 8),
        }
        for rank in ranks
    ]
    hot = np.array([rank == SLOW_RANK % topology.ranks for rank in ranks])
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
    many = size.ranks > 4 * 32  # data-parallel replicas of 4 ranks: more than a map has room for
    return {
        "": {"training_job": LARGE},
        "argus-job": {"map_step": "[0-9]"} if many else {},
        "argus-rank": {"rank": str(SLOW_RANK % size.ranks)},
        "argus-kernel": {"kernel": kernel_id(EXPERTS), "role": "pp0.tp0", "coordinate": "ep"},
    }
