"""What every rank of a played job did, operation by operation, as a trace shows it.

The job is the fault lab's own; here its steps become lists of operations with the names of a trace. Times are
true times in seconds; clocks are skewed only when a trace is written.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import Job, JobShape, JobStep
from argus_simulator.engine.schedule import Extras, Node, RankSchedule
from argus_simulator.engine.settings import HostSettings, ModelSettings, NoiseSettings
from argus_simulator.topology import Topology
from argus_simulator.traces.layout import Layout

OperationKind = Literal["compute", "comm", "memory"]

UNIT_S: Final = 2.2e-3
"""Forward pass of one attention block."""
_GC_CHANCE: Final = 0.2
_STREAMS: Final = {
    "compute": "compute0", "copy": "copy0", "dp": "nccl0", "tp": "nccl1", "forward-send": "nccl2",
    "forward-recv": "nccl3", "edp": "nccl4", "ep": "nccl5", "world": "nccl6", "backward-send": "nccl7",
    "backward-recv": "nccl8",
}  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One kernel or copy.

    Attributes:
        group: process group of a communication.
        exchange: equal on all members of one collective within a step; None: no collective.
        peers: how many take part.
    """

    name: str
    stream: str
    kind: OperationKind
    phase: str
    microbatch: int
    group: str = ""
    exchange: tuple[str, str, int] | None = None
    peers: int = 1


@dataclass(frozen=True)
class Done:
    """One operation that took place: `launch` to `start` is its issue latency."""

    operation: Operation
    step: int
    launch: float
    start: float
    end: float


@dataclass(frozen=True)
class HostSpan:
    """Something the host did: category `data`, `gc`, `compile` or `iteration`."""

    category: str
    start: float
    end: float
    step: int


@dataclass
class RankTimeline:
    """Everything that happened on one rank, in order of launch."""

    rank: int
    done: list[Done] = field(default_factory=list)
    host: list[HostSpan] = field(default_factory=list)


def usual_shape(
    layout: Layout, microbatches: int = 4, layers: int = 2, unit_s: float = UNIT_S,
    noise: NoiseSettings | None = None,
) -> JobShape:  # fmt: skip
    """A job whose attention blocks take about `unit_s`."""
    passes = 6.6 * (microbatches + layout.pp - 1) + 5.0
    return JobShape(
        layout.topology,
        unit_s * layers * passes,
        ModelSettings(microbatches=microbatches, layers=layers),
        HostSettings(gc_chance=_GC_CHANCE),
        noise or NoiseSettings(),
    )


def play(shape: JobShape, faults: Sequence[Fault], steps: int, seed: int) -> list[RankTimeline]:
    """All timelines, by rank."""
    job = Job(shape, faults, seed)
    timelines = [RankTimeline(rank) for rank in range(shape.topology.ranks)]
    for _ in range(steps):
        done = job.next_step()
        for timeline in timelines:
            _add(timeline, done, _operations(shape.topology, timeline.rank, shape.model))
    return timelines


def _add(timeline: RankTimeline, done: JobStep, operations: Sequence[Operation]) -> None:
    rank = timeline.rank
    start = int(done.start_ns[rank]) / 1e9
    timeline.host.append(HostSpan("iteration", start, int(done.end_ns[rank]) / 1e9, done.step))
    timeline.host.append(HostSpan("data", start, int(done.data_end_ns[rank]) / 1e9, done.step))
    for pause in done.pauses:
        if pause.rank == rank and pause.kind != "silent":
            begin = pause.start_ns / 1e9
            timeline.host.append(HostSpan(pause.kind, begin, begin + pause.duration_ns / 1e9, done.step))
    records = done.kernels_of(rank)
    columns = (records[name].tolist() for name in ("start_ns", "duration_ns", "issue_ns"))
    for operation, begin_ns, length_ns, issue_ns in zip(operations, *columns, strict=True):
        timeline.done.append(
            Done(
                operation,
                done.step,
                (begin_ns - issue_ns) / 1e9,
                begin_ns / 1e9,
                (begin_ns + length_ns) / 1e9,
            )
        )


@functools.lru_cache(maxsize=512)
def _operations(topology: Topology, rank: int, model: ModelSettings) -> tuple[Operation, ...]:
    """Operations of a step of one rank, in order of launch, one a kernel."""
    nodes = RankSchedule(topology, rank, model, Extras()).nodes
    return tuple(_operation(topology, rank, node, name) for node in nodes for name, _ in node.kernels)


def _operation(topology: Topology, rank: int, node: Node, name: str) -> Operation:
    stream, phase = _STREAMS[node.stream], _phase(node.phase)
    if node.role in ("compute", "copy"):
        kind: OperationKind = "compute" if node.role == "compute" else "memory"
        return Operation(name, stream, kind, phase, node.microbatch)
    group = topology.group(rank, node.dimension)
    if node.role == "collective":
        peers = len(topology.members(rank, node.dimension))
        return Operation(name, stream, "comm", phase, node.microbatch, group, node.exchange, peers)
    return Operation(name, stream, "comm", phase, node.microbatch, group)


def _phase(phase: str) -> str:
    """What a framework calls it: passes and not their parts, transfers by what they do."""
    if phase == "copy":
        return "forward"
    part, _, rest = phase.partition("-")
    if part == "pp":
        direction, _, half = rest.partition("-")
        return f"{half}_{direction}"
    if rest in ("forward", "backward"):
        return rest
    return f"{part}-{rest.replace('-', '_')}" if rest else phase
