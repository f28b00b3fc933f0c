"""The producers of a simulated job: each rank speaks on a connection of its own, by the clock of its host."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_core.link import Link
from argus_simulator.engine.compile import compile_plan
from argus_simulator.engine.framework_hooks import FrameworkHooks, framework_hooks, waits
from argus_simulator.engine.job import NEVER, TOKENS_A_MICROBATCH, HostPause, JobShape, JobStep
from argus_simulator.engine.network import Traffic
from argus_simulator.engine.noise import generator
from argus_simulator.engine.plan import SPAN_DTYPE, Plan
from argus_simulator.engine.schedule import STREAMS, Extras
from argus_simulator.engine.settings import ClockSettings
from argus_simulator.host_page import HostPage
from argus_simulator.kernel_symbols import MEMSET
from argus_simulator.nccl_memory import Memory, Waiting
from argus_simulator.stacks import MainThread
from argus_simulator.topology import Topology

_PATIENCE_S: Final = 2.0
"""How long a send may wait for the exporter; a job in simulation loses nothing by waiting."""
_GC_PHASE_NS: Final = 1_000_000
"""Shorter collections are no phase, as in the real producer."""
_MARK_NS: Final = 2_000
"""The memory set that marks a step comes so much after the last kernel, and takes as long."""
_GPU_SPAN: Final = np.dtype(
    [
        ("step", "<u8"), ("after_ns", "<i8"), ("duration_ns", "<u8"), ("phase_id", "<u4"), ("kind", "u1"),
        ("padding", "V3"),
    ]
)  # fmt: skip
"""`wire.GpuSpan`, field by field."""
_CLOCK_STREAM: Final = (1 << 29) - 1
_GENERATION: Final = 2

MakeLink = Callable[[int, Callable[[], wire.Hello], int, "int | None"], Link]
"""Connects a rank to its exporter: (rank, what its HELLO says, descriptors of its page, of NCCL's memory)."""


def link_to(socket: Path) -> MakeLink:
    """All ranks to one exporter."""
    return lambda _, hello, page, nccl: Link(
        socket, hello, patience_s=_PATIENCE_S, page_fd=page, nccl_fd=nccl
    )


@dataclass(frozen=True)
class HostClock:
    """What a host's clock shows: job time to Unix ns."""

    offset_ns: int
    drift: float

    def skew(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What to add to true times, ns."""
        skew: NDArray[np.int64] = self.offset_ns + np.rint(times_ns * self.drift).astype(np.int64)
        return skew


def host_clocks(topology: Topology, settings: ClockSettings, seed: int) -> list[HostClock]:
    """One a host, by its index."""
    clocks = []
    for host in range(-(-topology.ranks // topology.ranks_per_host)):
        random = generator(seed, _CLOCK_STREAM, host)
        offset = float(random.uniform(-1, 1)) * settings.offset_seconds
        clocks.append(HostClock(round(offset * 1e9), float(random.uniform(0, 1)) * settings.drift_ppm * 1e-6))
    return clocks


@dataclass
class _Totals:
    """Running totals that a producer keeps."""

    count: int = 0
    seconds: float = 0.0
    squared: float = 0.0
    tokens: float = 0.0
    paused: dict[str, tuple[int, float]] = field(default_factory=dict)

    def iteration(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.squared += seconds * seconds

    def pause(self, kind: str, seconds: float) -> tuple[int, float]:
        count, total = self.paused.get(kind, (0, 0.0))
        self.paused[kind] = count + 1, total + seconds
        return self.paused[kind]


def _work(totals: _Totals, microbatches: int, *, experts: bool) -> dict[str, float]:
    """By unit. Who has which expert changes what is routed to a rank, and not what it is given."""
    if not experts:
        return {"tokens": totals.tokens}
    given = totals.count * microbatches
    return {"routed_tokens": totals.tokens, "samples": given, "tokens": given * TOKENS_A_MICROBATCH}


def gpu_uuid(rank: int) -> str:
    """As the rank's producer tells it."""
    return f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}"


class Producer:
    """One rank's producer.

    Args:
        shape: of the job.
        link: connects it to its exporter.
        host_clock: what the rank's host takes for the time.
        clock: Unix time in ns.
        monotonic: CLOCK_MONOTONIC in ns.
        traffic: of the job, where NCCL's plugin is loaded.
    """

    def __init__(
        self, shape: JobShape, rank: int, training_job: str, link: MakeLink, host_clock: HostClock,
        clock: Callable[[], int], monotonic: Callable[[], int] = time.monotonic_ns,
        traffic: Traffic | None = None,
    ) -> None:  # fmt: skip
        self.rank = rank
        self.dark: set[wire.Channel] = set()
        """Channels that are lost."""
        self.dark_reason = ""
        self._clock, self._host_clock, self._topology = clock, host_clock, shape.topology
        self._microbatches = shape.model.microbatches
        self._monotonic = monotonic
        self._quantum_ns = shape.clocks.quantum_ns
        self.page = HostPage(rank, monotonic)
        usual = compile_plan(shape.topology, shape.model, shape.host, Extras())
        self._traffic = traffic
        self._nccl = Memory(rank, traffic.groups(usual, rank)) if traffic is not None else None
        memory = self._nccl.descriptor if self._nccl is not None else None
        self._link = link(rank, self._hello(training_job), self.page.fd, memory)
        self._totals = _Totals()
        self._marked = (-2, 0)
        """The last step that was marked, and when, in ns of the job."""
        self._bound: dict[Plan, tuple[NDArray[np.uint32], NDArray[np.uint32]]] = {}
        hertz = shape.host.stack_hertz
        self._stacks = MainThread(hertz) if hertz > 0 else None
        told = waits_of_phases(usual, framework_hooks(shape.topology, shape.model.framework))
        self._phases = b"".join(
            wire.PhaseInfo(self._link.name_id(phase), kind, mask).pack()
            for (phase, kind), mask in told.items()
        )
        self._channels = tuple(
            channel
            for channel in (wire.Channel.PHASES, wire.Channel.KERNELS)
            if channel is not wire.Channel.KERNELS or shape.model.signals != "hooks"
        )

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def dropped(self) -> int:
        return self._link.dropped

    def flush(self) -> None:
        self._link.flush()

    def close(self, exit_status: int | None) -> None:
        """Leave with a BYE, and the stacks that are left, or hang up without a word."""
        if exit_status is not None:
            self._queue_stacks(math.inf, self._now())
        self._link.close(exit_status)

    def free(self) -> None:
        """Give back what the producer holds of the system."""
        self.page.close()
        if self._nccl is not None:
            self._nccl.close()

    # -- what it says ------------------------------------------------------------------

    def say_states(self, activity: wire.Activity) -> None:
        """Activity and channels, which are repeated for an exporter that was restarted."""
        self._link.add(wire.ActivityChange(self._now(), activity))
        self._link.add_packed(wire.MessageType.PHASES, self._phases)
        for channel in wire.Channel:
            if channel is wire.Channel.STACKS and self._stacks is None:
                continue
            if channel is wire.Channel.KERNELS and channel not in self._channels:
                continue
            reason = self._link.name_id(self.dark_reason or "lost") if channel in self.dark else 0
            self._link.add(wire.ChannelState(0, 0, reason, channel, int(channel not in self.dark)))

    def send(self, done: JobStep, epoch_ns: int, *, finished: bool = True) -> None:
        """Queue the records of a step; the caller flushes. A step that is not `finished` has no iteration."""
        names, texts = self._bind(done.plan)
        quantum = self._quantum_ns
        if wire.Channel.PHASES not in self.dark:
            spans = done.spans_of(self.rank).copy()
            self._place(spans, epoch_ns, quantum)
            spans["phase_id"] = texts[spans["phase_id"]]
            spans["group_id"] = texts[spans["group_id"]]
            self._add(wire.MessageType.SPANS, spans, SPAN_DTYPE.itemsize)
        if wire.Channel.KERNELS in self._channels and wire.Channel.KERNELS not in self.dark:
            kernels = done.kernels_of(self.rank).copy()
            launches = kernels["start_ns"].astype(np.int64) - kernels["issue_ns"]
            self._place(kernels, epoch_ns, quantum)
            skew = self._host_clock.skew(launches)
            kernels["issue_ns"] = np.maximum(
                kernels["start_ns"].astype(np.int64) - (launches + epoch_ns + skew), 0
            )
            kernels["name_id"] = names[kernels["name_id"]]
            self._add(wire.MessageType.KERNELS, kernels, KERNEL_DTYPE.itemsize)
            if finished:
                self._mark(done, texts, epoch_ns)
        for pause in done.pauses:
            if pause.rank == self.rank:
                self._pause(pause, done.step, epoch_ns)
        self.sample(done, epoch_ns)
        if finished:
            self._iteration(done, epoch_ns)

    def counted(self, epoch_ns: int) -> None:
        """NCCL's plugin has counted a step."""
        if self._nccl is None or self._traffic is None:
            return
        shift_ns = epoch_ns + self._monotonic() - self._clock()
        self._traffic.write(self.rank, self._nccl, lambda seconds: max(1, shift_ns + round(seconds * 1e9)))

    def hangs(self, waits: Sequence[Waiting]) -> None:
        """What the oldest network steps wait for from now on."""
        if self._nccl is not None:
            self._nccl.stands(waits, self._monotonic())

    def sample(self, done: JobStep, epoch_ns: int) -> None:
        """Stacks of a step, of one without an end up to now; those of several seconds are queued together."""
        if self._stacks is None or wire.Channel.STACKS in self.dark:
            return
        end_ns = int(done.end_ns[self.rank])
        until_ns = end_ns if end_ns != NEVER else self._clock() - epoch_ns
        self._stacks.sample(done, self.rank, until_ns / 1e9)
        self._queue_stacks(until_ns / 1e9, epoch_ns + until_ns + self._host_clock.offset_ns)

    def _queue_stacks(self, now_s: float, unix_ns: int) -> None:
        if self._stacks is None or wire.Channel.STACKS in self.dark:
            return
        for record in self._stacks.take(self._link, now_s, unix_ns):
            self._link.add(record)

    # -- parts ------------------------------------------------------------------

    def step_clock(self, offset_ns: int) -> None:
        """The host's clock jumps."""
        self._host_clock = HostClock(self._host_clock.offset_ns + offset_ns, self._host_clock.drift)

    def _mark(self, done: JobStep, texts: NDArray[np.uint32], epoch_ns: int) -> None:
        """The memory set at the end of a step, and where the spans lay after that of the step before."""
        mark = np.zeros(1, KERNEL_DTYPE)
        mark["start_ns"], mark["duration_ns"] = done.device_end_ns[self.rank] + _MARK_NS, _MARK_NS
        mark["name_id"], mark["operation"] = self._link.name_id(MEMSET), wire.Operation.MEMSET
        mark["stream"], mark["mark"] = STREAMS["compute"], wire.step_mark(done.step)
        before, self._marked = self._marked, (done.step, int(mark["start_ns"][0]) + _MARK_NS)
        self._place(mark, epoch_ns, self._quantum_ns)
        self._add(wire.MessageType.KERNELS, mark, KERNEL_DTYPE.itemsize)
        if before[0] != done.step - 1 or wire.Channel.PHASES in self.dark:
            return
        spans = done.stream_spans_of(self.rank)
        found = np.zeros(len(spans), _GPU_SPAN)
        found["step"], found["duration_ns"] = done.step, spans["duration_ns"]
        found["after_ns"] = spans["start_ns"].astype(np.int64) - before[1]
        found["phase_id"], found["kind"] = texts[spans["phase_id"]], spans["kind"]
        order = np.argsort(found["after_ns"] + spans["duration_ns"].astype(np.int64), kind="stable")
        self._add(wire.MessageType.GPU_SPANS, found[order], _GPU_SPAN.itemsize)

    def _place(self, records: NDArray[np.void], epoch_ns: int, quantum: int) -> None:
        """Turn job time into what the host's clock shows; both ends are rounded to the clock's ticks."""
        times = np.empty((2, len(records)), np.int64)
        times[0] = records["start_ns"]
        np.add(times[0], records["duration_ns"], out=times[1], casting="unsafe")
        start, end = (times + self._host_clock.skew(times) + epoch_ns) // quantum * quantum
        records["start_ns"], records["duration_ns"] = start, end - start

    def _pause(self, pause: HostPause, step: int, epoch_ns: int) -> None:
        if pause.kind == "silent":
            return
        seconds = pause.duration_ns / 1e9
        start_ns = epoch_ns + pause.start_ns + self._host_clock.offset_ns
        count, total = self._totals.pause(pause.kind, seconds)
        if pause.kind == "gc":
            self._link.add(wire.GarbageCollection(start_ns, pause.duration_ns, count, total, _GENERATION))
            if pause.duration_ns >= _GC_PHASE_NS:
                self._link.add(
                    wire.Span(
                        start_ns, pause.duration_ns, step, self._link.name_id("gc"), 0, wire.Kind.HOST,
                        wire.Source.HOST, 0,
                    )
                )  # fmt: skip
        else:
            compiler = self._link.name_id("triton")
            self._link.add(wire.Compilation(start_ns, pause.duration_ns, count, total, compiler))

    def _iteration(self, done: JobStep, epoch_ns: int) -> None:
        start, end = int(done.start_ns[self.rank]), int(done.end_ns[self.rank])
        totals = self._totals
        totals.iteration((end - start) / 1e9)
        totals.tokens += float(done.tokens[self.rank])
        shown = epoch_ns + end + self._host_clock.offset_ns + round(end * self._host_clock.drift)
        for unit, amount in _work(totals, self._microbatches, experts=self._topology.ep > 1).items():
            self._link.add(wire.Work(amount, self._link.name_id(unit)))
        self._link.add(
            wire.Iteration(done.step, shown, end - start, totals.count, totals.seconds, totals.squared)
        )

    def _bind(self, plan: Plan) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Ids on this connection of a plan's kernel names and texts; 0 stays 0."""
        known = self._bound.get(plan)
        if known is None:
            names = np.array([0, *map(self._link.name_id, plan.names)], np.uint32)
            texts = np.array([0, *map(self._link.name_id, plan.span_texts)], np.uint32)
            known = self._bound[plan] = names, texts
        return known

    def _add(self, type_: wire.MessageType, records: NDArray[np.void], size: int) -> None:
        packed = records.tobytes()
        most = wire.records_per_message(wire.RECORDS[type_]) * size
        for start in range(0, len(packed), most):
            self._link.add_packed(type_, packed[start : start + most])

    def _now(self) -> int:
        return self._clock() + self._host_clock.offset_ns

    def _hello(self, training_job: str) -> Callable[[], wire.Hello]:
        topology, rank = self._topology, self.rank

        def hello() -> wire.Hello:
            return wire.hello(
                pid=os.getpid(),
                rank=rank,
                training_job=training_job,
                monotonic_ns=self._monotonic(),
                realtime_ns=self._now(),
                local_rank=rank % topology.ranks_per_host,
                world_size=topology.ranks,
                coordinates=topology.coordinates(rank),
                sizes=topology.sizes,
                node=topology.host(rank),
                gpu_uuid=gpu_uuid(rank),
                role=topology.role(rank),
                channels=self._channels,
                shares_page=True,
                shares_nccl=self._nccl is not None,
            )

        return hello


def waits_of_phases(plan: Plan, hooks: FrameworkHooks) -> dict[tuple[str, wire.Kind], int]:
    """Whom each phase may wait for; of a collective of several groups: of any of them."""
    told: dict[tuple[str, wire.Kind], int] = {}
    for span in np.unique(plan.spans[["phase_id", "group_id", "kind"]]):
        phase, kind = plan.span_texts[span["phase_id"] - 1], wire.Kind(int(span["kind"]))
        group = plan.span_texts[span["group_id"] - 1] if span["group_id"] else ""
        told[phase, kind] = told.get((phase, kind), 0) | waits(phase, kind, group, plan.topology, hooks)
    return told
