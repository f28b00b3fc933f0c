"""Every series of a fleet: the catalogue's families with the labels that exporters give them.

`job` and `instance` are those that Prometheus would have added when it scraped one exporter a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import catalogue
from argus_core.catalogue import Family
from argus_simulator.fleet import program
from argus_simulator.fleet.blocks import Block, Row
from argus_simulator.fleet.faults import CHANNELS
from argus_simulator.fleet.kernel_windows import KernelWindows
from argus_simulator.fleet.ranks import Dimension, Floats, Layout
from argus_simulator.fleet.steps import Steps

_TOKENS_A_STEP: Final = 8 * 4096
_STACK_HERTZ: Final = 4.0
_FRAMES: Final = {  # thread, innermost frame: share of a healthy rank's samples, and the phase it is seen in
    ("MainThread", "backward (torch.autograd)"): (0.38, "backward"),
    ("MainThread", "forward (model)"): (0.23, "forward"),
    ("MainThread", "all_reduce (torch.distributed)"): (0.20, "dp-all-reduce"),
    ("MainThread", "step (torch.optim.adamw)"): (0.08, "optimizer"),
    ("MainThread", "_next_data (torch.utils.data)"): (0.06, "data"),
    ("loader", "read (tarfile)"): (0.5, ""),
    ("loader", "decode (PIL.Image)"): (0.3, ""),
    ("MainThread", "other"): (0.05, ""),
}
_ALONE: Final = (Row(),)
_BLIND_REASON: Final = "cupti_taken"
_COLLECTORS: Final = (
    "rank",
    "iteration",
    "phase",
    "kernel",
    "live",
    "channel",
    "activity",
    "garbage",
    "compilation",
    "issue_latency",
    "void",
    "stack",
    "work",
)


@dataclass
class Exposition:
    """What exporters would publish of a fleet now.

    Args:
        now: seconds since the first sample; set before the values are read.
        began: Unix time of the first sample.
        channels: those that are on: phases, kernels, stacks.
        target_labels: further labels, such as a cluster, that a scrape would add.
    """

    training_job: str
    layout: Layout
    steps: Steps
    kernels: KernelWindows
    began: float
    channels: Sequence[str] = CHANNELS
    target_labels: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0
    samples_a_rank: float = 0.0
    """Series of one rank at the sample before, which is what a scrape would have counted."""

    def blocks(self) -> list[Block]:
        """All series; which of them exist may differ from sample to sample."""
        made = [
            *self._identity(),
            *self._iterations(),
            *self._phases(),
            *self._host_work(),
            *self._channels(),
        ]
        if "kernels" in self.channels:
            made += [*self._kernel_modes(), *self._kernel_totals(), *self._gpu_idle()]
        if "stacks" in self.channels:
            made += self._stacks()
        return [*made, *self._exporters()]

    # Bases

    def _ranks(self) -> list[dict[str, str]]:
        hosts = self._hosts()
        return [
            {**hosts[host], "training_job": self.training_job, "rank": str(rank)}
            for rank, host in enumerate(self.layout.host.tolist())
        ]

    def _hosts(self) -> list[dict[str, str]]:
        return [
            {"job": "argus", "instance": f"{self.layout.host_name(host)}:9877", **self.target_labels}
            for host in range(self.layout.hosts)
        ]

    def _of_rank(
        self, family: Family, values: Callable[[], Floats], rows: Sequence[Row] = _ALONE, suffix: str = ""
    ) -> Block:
        """A block by rank; ranks whose exporter is silent have no series."""

        def heard() -> Floats:
            now = np.array(values(), float).reshape(len(rows), self.layout.ranks)
            now[:, self.steps.faults.ranks_with("silent", self.now)] = np.nan
            return now

        return Block(family.name + suffix, family.name, family.type, self._rank_base, rows, heard)

    def _summary(
        self, family: Family, count: Callable[[], Floats], total: Callable[[], Floats], rows: Sequence[Row]
    ) -> Iterator[Block]:
        yield self._of_rank(family, count, rows, "_count")
        yield self._of_rank(family, total, rows, "_sum")

    def __post_init__(self) -> None:
        self._rank_base = self._ranks()
        self._host_base = self._hosts()
        self._ones = np.ones(self.layout.ranks)

    # Families

    def _identity(self) -> Iterator[Block]:
        layout = self.layout
        places = {name: list(map(str, at.tolist())) for name, at in layout.coordinates.items()}
        places |= {
            "node": [layout.host_name(host) for host in layout.host.tolist()],
            "gpu_uuid": [f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}" for rank in range(layout.ranks)],
            "role": layout.roles,
        }
        yield self._of_rank(catalogue.RANK_INFO, lambda: self._ones, [Row(each=places)])
        yield self._of_rank(catalogue.RANK_UP, lambda: self._ones)
        yield self._job_info()
        dimensions = dict.fromkeys(_dimension(phase) for phase in self.steps.phases)
        rows = [Row(each={"group": layout.groups(dimension)}) for dimension in dimensions]
        sizes = np.array([[layout.size(dimension)] for dimension in dimensions], float)
        yield self._of_rank(catalogue.GROUP_EXPECTED_RANKS, lambda: sizes * self._ones, rows)
        yield self._of_rank(catalogue.ACTIVITY, lambda: self._ones, [Row({"activity": "train"})])
        yield self._of_rank(
            catalogue.WORK_UNITS,
            lambda: self.steps.totals.steps * _TOKENS_A_STEP * self._ones,
            [Row({"unit": "tokens"})],
        )

    def _job_info(self) -> Block:
        """Once from every exporter, not by rank."""
        family, hosts = catalogue.JOB_INFO, np.ones(self.layout.hosts)
        said = Row(
            {
                "training_job": self.training_job,
                "model": "dense-transformer",
                "backend": "simulated",
                "world_size": str(self.layout.ranks),
            }
        )
        return Block(family.name, family.name, family.type, self._host_base, [said], lambda: hosts)

    def _iterations(self) -> Iterator[Block]:
        steps = self.steps
        yield from self._summary(
            catalogue.ITERATION_DURATION,
            lambda: steps.totals.steps * self._ones,
            lambda: steps.totals.iteration_seconds,
            [Row()],
        )
        yield self._of_rank(catalogue.ITERATION_DURATION_SQUARED, lambda: steps.totals.iteration_squared)
        yield self._of_rank(catalogue.ITERATION_WINDOW_MIN, lambda: self._extreme(0))
        yield self._of_rank(catalogue.ITERATION_WINDOW_MAX, lambda: self._extreme(1))
        yield self._of_rank(catalogue.ITERATION_LAST_STEP, lambda: (steps.totals.steps - 1) * self._ones)
        yield self._of_rank(catalogue.ITERATION_LAST_TIMESTAMP, lambda: self.began + steps.totals.last_end)

    def _extreme(self, which: int) -> Floats:
        found = self.steps.extremes(self.now)
        return np.full(self.layout.ranks, np.nan) if found is None else found[which]

    def _phases(self) -> Iterator[Block]:
        steps = self.steps
        groups = {dimension: self.layout.groups(dimension) for dimension in map(_dimension, steps.phases)}
        rows = [
            Row({"phase": phase.name, "kind": phase.kind}, {"group": groups[_dimension(phase)]})
            for phase in steps.phases
        ]
        with_source = [
            Row({**row.same, "source": phase.source}, row.each)
            for row, phase in zip(rows, steps.phases, strict=True)
        ]
        yield from self._summary(
            catalogue.PHASE_DURATION,
            lambda: steps.totals.phase_count[:, None] * self._ones,
            lambda: steps.totals.phase_seconds,
            with_source,
        )
        nothing = np.full((len(rows), self.layout.ranks), np.nan)

        def longest() -> Floats:
            found = steps.extremes(self.now)
            return nothing if found is None else found[2]

        yield self._of_rank(catalogue.PHASE_WINDOW_MAX, longest, rows)
        open_rows = [Row({"phase": phase.name, "kind": phase.kind}) for phase in steps.phases]
        yield self._of_rank(catalogue.PHASE_OPEN, self._open_since, open_rows)
        along = [phase for phase in steps.phases if phase.along is not None]
        group_rows = [Row(each={"group": groups[_dimension(phase)]}) for phase in along]
        yield self._of_rank(catalogue.COLLECTIVE_SEQUENCE, lambda: self._entered(along), group_rows)

    def _open_since(self) -> Floats:
        place, since = self.steps.open_operation(self.now)
        found = np.full((len(self.steps.phases), self.layout.ranks), np.nan)
        for number, operation in enumerate(self.steps.operations):
            if operation is not program.GAP:
                row = found[self.steps.phases.index(operation)]
                row[place == number] = self.began + since[place == number]
        return found

    def _entered(self, along: Sequence[program.FleetPhase]) -> Floats:
        """Collectives entered by now: those of finished steps, and of this one up to the open operation."""
        place, _ = self.steps.open_operation(self.now)
        entered = np.empty((len(along), self.layout.ranks))
        for row, phase in enumerate(along):
            numbers = [n for n, operation in enumerate(self.steps.operations) if operation is phase]
            entered[row] = len(numbers) * self.steps.totals.steps + sum(place >= n for n in numbers)
        return entered

    def _host_work(self) -> Iterator[Block]:
        totals = self.steps.totals
        yield from self._summary(
            catalogue.GC_PAUSE, lambda: totals.gc_count, lambda: totals.gc_seconds, [Row({"generation": "2"})]
        )
        compiler = [Row({"compiler": "dynamo"})]
        yield from self._summary(
            catalogue.COMPILE, lambda: 4 * self._ones, lambda: 38.0 * self._ones, compiler
        )

    def _channels(self) -> Iterator[Block]:
        rows = [Row({"channel": channel}) for channel in CHANNELS]
        yield self._of_rank(catalogue.CHANNEL_UP, lambda: np.where(self._blind(), 0.0, 1.0), rows)

        def reasons() -> Floats:
            return np.where(self._blind(), 1.0, np.nan)

        why = [
            Row({"channel": channel, "reason": _BLIND_REASON if channel in self.channels else "disabled"})
            for channel in CHANNELS
        ]
        yield self._of_rank(catalogue.CHANNEL_INFO, reasons, why)
        a_step = {"phases": 30.0, "kernels": float(sum(pair.launches for pair in self.kernels.pairs))}

        def records() -> Floats:
            stacks = self.now * _STACK_HERTZ
            return np.array(
                [
                    (self.steps.totals.steps * a_step[channel] if channel in a_step else stacks) * self._ones
                    for channel in CHANNELS
                ]
            )

        yield self._of_rank(catalogue.RECORDS, records, rows)
        dropped = [Row({"channel": "kernels", "reason": "full"})]
        yield self._of_rank(catalogue.RECORDS_DROPPED, lambda: 0 * self._ones, dropped)
        cpu = np.array([[0.004], [0.0012], [0.0]]) / self.steps.step_seconds
        yield self._of_rank(
            catalogue.PRODUCER_CPU, lambda: cpu * self.steps.totals.last_end * self.steps.chips, rows
        )

    def _blind(self) -> NDArray[np.bool_]:
        """Shape (channels, ranks)."""
        faults = self.steps.faults
        return np.array(
            [
                faults.ranks_with("blind", self.now, channel) | (channel not in self.channels)
                for channel in CHANNELS
            ]
        )

    def _seen_kernels(self, values: Floats) -> Floats:
        """`values` (..., ranks) without ranks whose kernel channel is blind."""
        seen = np.array(values, float)
        seen[..., self.steps.faults.ranks_with("blind", self.now, "kernels")] = np.nan
        return seen

    def _kernel_modes(self) -> Iterator[Block]:
        windows = self.kernels
        pairs = [Row({"kernel": pair.id, "stream": pair.stream}) for pair in windows.pairs]
        places = [
            (index, mode)
            for index, pair in enumerate(windows.pairs)
            for mode in range(pair.modes.shape[1])
            if pair.modes[:, mode, 0].any()
        ]
        modes = [Row({**pairs[index].same, "mode": str(mode)}) for index, mode in places]
        index, mode = np.array(places).T
        for family, values in (
            (catalogue.KERNEL_MODE_EVENTS, windows.events),
            (catalogue.KERNEL_MODE_P50, windows.p50),
            (catalogue.KERNEL_MODE_P99, windows.p99),
        ):
            yield self._of_rank(
                family,
                lambda values=values: self._seen_kernels(values[index, mode]),  # type: ignore[misc]
                modes,
            )
        yield self._of_rank(catalogue.KERNEL_TAIL_EVENTS, lambda: self._seen_kernels(windows.tail), pairs)
        unknown = np.full(self.layout.ranks, np.nan)
        for family, value in (
            (catalogue.KERNEL_WINDOW_LAST_STEP, lambda: windows.last_step * self._ones),
            (catalogue.KERNEL_WINDOW_STEPS, lambda: windows.window_steps * self._ones),
            (catalogue.KERNEL_CUTOFF, lambda: windows.cutoff),
            (catalogue.KERNEL_COVERAGE, lambda: windows.coverage),
        ):
            yield self._of_rank(
                family,
                lambda value=value: self._seen_kernels(value() if windows.last_step > 0 else unknown),  # type: ignore[misc]
            )

    def _kernel_totals(self) -> Iterator[Block]:
        windows = self.kernels

        def where_published(values: Floats) -> Floats:
            return self._seen_kernels(np.where(windows.published, values, np.nan))

        pairs = [Row({"kernel": pair.id, "stream": pair.stream}) for pair in windows.pairs]
        yield self._of_rank(catalogue.KERNEL_LAUNCHES, lambda: where_published(windows.launches), pairs)
        yield self._of_rank(catalogue.KERNEL_DURATION_TOTAL, lambda: where_published(windows.seconds), pairs)
        # One kernel may run on two streams: it is named where either pair is published.
        named = list(dict.fromkeys((pair.id, pair.name[:256]) for pair in windows.pairs))
        places = [[i for i, pair in enumerate(windows.pairs) if pair.id == kernel] for kernel, _ in named]

        def known() -> Floats:
            found = np.array([windows.published[place].any(axis=0) for place in places])
            return self._seen_kernels(np.where(found, 1.0, np.nan))

        names = [Row({"kernel": kernel, "name": name}) for kernel, name in named]
        yield self._of_rank(catalogue.KERNEL_INFO, known, names)

    def _gpu_idle(self) -> Iterator[Block]:
        steps, step = self.steps, self.steps.step_seconds
        classes = {"compute": 0.02 * step, "comm": 0.01 * step, "copy": 0.002 * step}
        latency = catalogue.ISSUE_LATENCY
        rows = [Row({"kernel_class": name}) for name in classes]
        typical = np.array(list(classes.values()))[:, None]
        launched = np.array([[90.0], [4.0], [4.0]])
        yield from self._summary(
            latency,
            lambda: self._seen_kernels(steps.totals.steps * launched * self._ones),
            lambda: self._seen_kernels(steps.totals.steps * launched * typical * self._ones),
            rows,
        )
        for quantile, factor in (("0.1", 0.4), ("0.5", 1.0), ("0.9", 1.8)):
            yield self._of_rank(
                latency,
                lambda factor=factor: self._seen_kernels(typical * factor * steps.chips),  # type: ignore[misc]
                [Row({**row.same, "quantile": quantile}) for row in rows],
            )
        voids = [Row({"void": "inter_step"}), Row({"void": "minority"})]
        data = steps.phases.index(program.DATA)

        def idle() -> Floats:
            seconds = steps.totals.phase_seconds[data]
            return self._seen_kernels(np.array([seconds, 0.06 * steps.totals.iteration_seconds]))

        yield self._of_rank(catalogue.VOID, idle, voids)

    def _stacks(self) -> Iterator[Block]:
        steps = self.steps
        rows = [Row({"thread": thread, "frame": frame}) for thread, frame in _FRAMES]

        def samples() -> Floats:
            found = []
            for share, phase in _FRAMES.values():
                index = next((n for n, p in enumerate(steps.phases) if p.name == phase), None)
                seconds = (
                    share * steps.totals.iteration_seconds
                    if index is None
                    else steps.totals.phase_seconds[index]
                )
                found.append(np.floor(seconds * _STACK_HERTZ))
            return np.array(found)

        yield self._of_rank(catalogue.STACK_SAMPLES, samples, rows)
        yield self._of_rank(catalogue.STACK_SAMPLING, lambda: _STACK_HERTZ * self._ones)
        yield self._of_rank(catalogue.STACK_SAMPLER_CPU, lambda: 0.006 * steps.totals.last_end * self._ones)

    def _exporters(self) -> Iterator[Block]:
        """What each exporter says of itself, and what Prometheus would note of its scrape."""
        hosts = np.ones(self.layout.hosts)
        local = np.bincount(self.layout.host, minlength=self.layout.hosts).astype(float)

        def of_host(name: str, type_: str, values: Callable[[], Floats], *rows: Row) -> Block:
            return Block(name, name, type_, self._host_base, rows or _ALONE, values)

        states = [
            Row({"collector": collector, "state": state})
            for collector in _COLLECTORS
            for state in ("ok", "no_data", "error")
        ]
        ok = np.array([[float(row.same["state"] == "ok")] for row in states])
        collectors = [Row({"collector": collector}) for collector in _COLLECTORS]
        yield of_host(catalogue.EXPORTER_COLLECTOR_STATE.name, "gauge", lambda: ok * hosts, *states)
        yield of_host(
            catalogue.EXPORTER_COLLECTOR_SECONDS.name,
            "gauge",
            lambda: np.full((len(collectors), self.layout.hosts), 0.0004),
            *collectors,
        )
        yield of_host(catalogue.EXPORTER_CONNECTIONS.name, "gauge", lambda: 2 * local)
        yield of_host(
            catalogue.EXPORTER_REJECTED.name, "counter", lambda: 0 * hosts, Row({"reason": "bad_magic"})
        )
        yield of_host(catalogue.EXPORTER_RELOAD.name, "gauge", lambda: hosts)
        yield of_host(catalogue.EXPORTER_BUILD_INFO.name, "gauge", lambda: hosts, Row({"version": "fleet"}))
        yield of_host(catalogue.TRACE_RING_BYTES.name, "gauge", lambda: 1e9 * hosts)
        yield of_host(
            catalogue.TRACE_RING_OLDEST.name, "gauge", lambda: (self.began + self.now - 1800) * hosts
        )
        yield of_host("process_cpu_seconds_total", "counter", lambda: 0.008 * self.now * hosts)
        yield of_host("process_resident_memory_bytes", "gauge", lambda: 170e6 * hosts)
        yield of_host("up", "gauge", lambda: hosts)
        yield of_host("scrape_duration_seconds", "gauge", lambda: 0.012 * hosts)
        yield of_host("scrape_samples_scraped", "gauge", lambda: self.samples_a_rank * local)


def _dimension(phase: program.FleetPhase) -> Dimension:
    """What a phase is compared along: its own group, or data-parallel peers."""
    return phase.along or "dp"
