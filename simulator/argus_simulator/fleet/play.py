"""Plays a fleet into a sink: history as fast as it goes, then in real time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from argus_simulator.engine.settings import HostSettings, ModelSettings
from argus_simulator.fast_play.history import instance_of, record
from argus_simulator.fast_play.storage import Floats
from argus_simulator.fleet.cell import cell_of
from argus_simulator.fleet.exporter_series import exporters
from argus_simulator.fleet.faults import parse_fault
from argus_simulator.fleet.rank_series import RankSeries, Sampled
from argus_simulator.fleet.sinks import Sink
from argus_simulator.lab.scenario import Scenario, TopologySettings
from argus_simulator.topology import Topology

CHANNELS: Final = ("phases", "kernels", "stacks")
_RANKS_LIMIT: Final = 200_000
"""Ten times the largest jobs known; each rank costs some 10 kB here and some 300 series where they go."""
_WARM_SECONDS: Final = 180.0
"""Three kernel windows: a job that is watched has been running."""


def layout(ranks: int, *, tp: int, pp: int, ep: int, ranks_per_host: int) -> Topology:
    """Of so many ranks: what tp and pp leave is data parallel.

    Raises:
        ValueError: with the value and what is allowed.
    """
    if not 0 < ranks <= _RANKS_LIMIT:
        raise ValueError(f"{ranks} ranks; allowed: 1 to {_RANKS_LIMIT}")
    if tp < 1 or pp < 1 or ranks % (tp * pp):
        raise ValueError(
            f"{ranks} ranks do not divide into tp {tp} x pp {pp}; allowed: multiples of {max(1, tp * pp)}"
        )
    return Topology(ranks // (tp * pp), tp, pp, ranks_per_host, ep)


@dataclass(frozen=True)
class FleetPlan:
    """What is played. Raises ValueError with the value and what is allowed.

    Attributes:
        faults: as `parse_fault` reads them.
        target_labels: further labels, such as a cluster, that a scrape would add.
    """

    topology: Topology
    training_job: str = "fleet"
    step_seconds: float = 4.0
    seed: int = 0
    faults: tuple[str, ...] = ()
    channels: tuple[str, ...] = CHANNELS
    top_pairs: int = 20
    target_labels: Mapping[str, str] = field(default_factory=dict)
    host_prefix: str = "sim-host"

    def __post_init__(self) -> None:
        if not 0 < len(self.training_job.encode()) <= 64:
            raise ValueError(f"job is {self.training_job!r}; allowed: 1 to 64 bytes")
        if not 0.1 <= self.step_seconds <= 600:
            raise ValueError(f"step is {self.step_seconds:g} s; allowed: 0.1 to 600")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; allowed: 0 or more")
        if not 1 <= self.top_pairs <= 200:
            raise ValueError(f"pairs is {self.top_pairs}; allowed: 1 to 200")
        unknown = set(self.channels) - set(CHANNELS)
        if unknown or "phases" not in self.channels:
            raise ValueError(
                f"channels is {','.join(self.channels)!r}; allowed: phases, and of kernels and stacks any"
            )


class Fleet:
    """The series of a fleet at given times.

    A small job that has every kind of replica of the fleet's is played (`cell_of`), and each rank of the
    fleet has the series of one of its ranks.

    Args:
        times: Unix times of the samples, as `history` gives them.

    Raises:
        ArgusSimulatorError: a fault that cannot be, or more kinds of replicas than can be played.
    """

    def __init__(self, plan: FleetPlan, times: Sequence[float]) -> None:
        warm_steps = math.ceil(_WARM_SECONDS / plan.step_seconds)
        faults = [parse_fault(one, plan.topology, plan.step_seconds, warm_steps) for one in plan.faults]
        cell = cell_of(plan.topology, faults)
        small = cell.topology
        scenario = Scenario(
            plan.training_job,
            plan.seed,
            step_seconds=plan.step_seconds,
            topology=TopologySettings(small.dp, small.tp, small.pp, small.ep, small.ranks_per_host),
            model=ModelSettings(signals="kernels" if "kernels" in plan.channels else "hooks"),
            host=HostSettings() if "stacks" in plan.channels else HostSettings(stack_hertz=0.0),
            faults=cell.faults,
        )
        first_ms = round(times[0] * 1000)
        every_ms = round((times[1] - times[0]) * 1000) if len(times) > 1 else 15_000
        self._sampled = Sampled(first_ms, every_ms, len(times))
        begin_ms = first_ms - round(warm_steps * plan.step_seconds * 1000)
        last_host = small.host_index(small.ranks - 1)
        played = record(
            scenario,
            plan.training_job,
            begin_ms * 1_000_000,
            (first_ms - begin_ms) / 1000 + times[-1] - times[0] + every_ms / 1000,
            scrape_ms=every_ms,
            scrape_offsets_ms={
                instance_of(plan.training_job, host): first_ms for host in range(last_host + 1)
            },
            top_pairs=plan.top_pairs,
        )
        hosts = [
            {"job": "argus", "instance": f"{plan.host_prefix}-{host}:9877", **plan.target_labels}
            for host in range(plan.topology.host_index(plan.topology.ranks - 1) + 1)
        ]
        base = [
            {**hosts[plan.topology.host_index(rank)], "training_job": plan.training_job, "rank": str(rank)}
            for rank in range(plan.topology.ranks)
        ]
        ranks = RankSeries(played.series, cell, plan.topology, base, plan.host_prefix, self._sampled)
        self.blocks = [
            *ranks.blocks(), *exporters(played.series, plan.topology, plan.training_job, hosts, self._sampled)
        ]  # fmt: skip
        self.times = times
        ends = [begin_ms / 1000, *played.progress.step_ends]
        self.onsets = [ends[one.onset_step] if one.onset_step < len(ends) else math.inf for one in faults]
        """Unix time at which each fault begins: with a step, and slow steps come late."""

    def sample(self, at: float) -> list[Floats]:
        """Values of every block at one of the times."""
        self._sampled.look_at(at)
        return [
            np.asarray(block.values(), float).reshape(len(block.rows), len(block.base))
            for block in self.blocks
        ]


@dataclass(frozen=True)
class Written:
    """How far a run is: samples of all series at one time."""

    number: int
    of: int
    at: float
    series: int


def history(end: float, seconds: float, every: float, live: float = 0.0) -> Sequence[float]:
    """Times of the samples, `every` seconds, one of them at `end`, and those of `live` seconds after it."""
    before, after = int(seconds // every), int(live // every)
    return [end + every * number for number in range(-before, after + 1)]


def play(
    fleet: Fleet,
    sink: Sink,
    *,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Written]:
    """Write the fleet's samples, none before its time. The caller opens and closes the sink."""
    for number, at in enumerate(fleet.times, 1):
        if at > clock():
            wait(at - clock())
        yield Written(number, len(fleet.times), at, sink.write(at, fleet.sample(at)))
