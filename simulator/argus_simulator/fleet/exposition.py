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
from argus_simulator.fleet.anatomy_series import anatomy
from argus_simulator.fleet.collective_series import collectives
from argus_simulator.fleet.exporter_series import exporters
from argus_simulator.fleet.faults import CHANNELS
from argus_simulator.fleet.gpu_series import gpu_idle, kernel_modes, kernel_totals
from argus_simulator.fleet.kernel_windows import KernelWindows
from argus_simulator.fleet.layer_series import layers
from argus_simulator.fleet.ranks import Dimension, Floats, Layout
from argus_simulator.fleet.series_blocks import Block, Row
from argus_simulator.fleet.stack_series import STACK_HERTZ, stacks
from argus_simulator.fleet.steps import Steps

_TOKENS_A_STEP: Final = 8 * 4096
_ALONE: Final = (Row(),)
_BLIND_REASON: Final = "cupti_taken"


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
            *collectives(self),
            *layers(self),
            *self._host_work(),
            *self._channels(),
        ]
        if "kernels" in self.channels:
            made += [*kernel_modes(self), *kernel_totals(self), *gpu_idle(self), *anatomy(self)]
        if "stacks" in self.channels:
            made += stacks(self)
        return [*made, *exporters(self)]

    # Bases

    def _rank_labels(self) -> list[dict[str, str]]:
        hosts = self._host_labels()
        return [
            {**hosts[host], "training_job": self.training_job, "rank": str(rank)}
            for rank, host in enumerate(self.layout.host.tolist())
        ]

    def _host_labels(self) -> list[dict[str, str]]:
        return [
            {"job": "argus", "instance": f"{self.layout.host_name(host)}:9877", **self.target_labels}
            for host in range(self.layout.hosts)
        ]

    def of_rank(
        self, family: Family, values: Callable[[], Floats], rows: Sequence[Row] = _ALONE, suffix: str = ""
    ) -> Block:
        """A block by rank; ranks whose exporter is silent have no series."""

        def heard() -> Floats:
            now = np.array(values(), float).reshape(len(rows), self.layout.ranks)
            now[:, self.steps.faults.ranks_with("silent", self.now)] = np.nan
            return now

        return Block(family.name + suffix, family.name, family.type, self._rank_base, rows, heard)

    def summary(
        self, family: Family, count: Callable[[], Floats], total: Callable[[], Floats], rows: Sequence[Row]
    ) -> Iterator[Block]:
        yield self.of_rank(family, count, rows, "_count")
        yield self.of_rank(family, total, rows, "_sum")

    def __post_init__(self) -> None:
        self._rank_base = self._rank_labels()
        self.hosts = self._host_labels()
        self.ones = np.ones(self.layout.ranks)

    # Families

    def _identity(self) -> Iterator[Block]:
        layout = self.layout
        places = {name: list(map(str, at.tolist())) for name, at in layout.coordinates.items()}
        places |= {
            "node": [layout.host_name(host) for host in layout.host.tolist()],
            "gpu_uuid": [f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}" for rank in range(layout.ranks)],
            "role": layout.roles,
        }
        yield self.of_rank(catalogue.RANK_INFO, lambda: self.ones, [Row(each=places)])
        yield self.of_rank(catalogue.RANK_UP, lambda: self.ones)
        yield self.of_rank(catalogue.RANK_NUMBER, lambda: np.arange(layout.ranks, dtype=float))
        yield self._job_info()
        dimensions = dict.fromkeys(_dimension(phase) for phase in self.steps.phases)
        rows = [Row(each={"group": layout.groups(dimension)}) for dimension in dimensions]
        sizes = np.array([[layout.size(dimension)] for dimension in dimensions], float)
        yield self.of_rank(catalogue.GROUP_EXPECTED_RANKS, lambda: sizes * self.ones, rows)
        yield self.of_rank(catalogue.ACTIVITY, lambda: self.ones, [Row({"activity": "train"})])
        yield self.of_rank(
            catalogue.WORK_UNITS,
            lambda: self.steps.totals.steps * _TOKENS_A_STEP * self.ones,
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
        return Block(family.name, family.name, family.type, self.hosts, [said], lambda: hosts)

    def _iterations(self) -> Iterator[Block]:
        steps = self.steps
        yield from self.summary(
            catalogue.ITERATION_DURATION,
            lambda: steps.totals.steps * self.ones,
            lambda: steps.totals.iteration_seconds,
            [Row()],
        )
        yield self.of_rank(catalogue.ITERATION_DURATION_SQUARED, lambda: steps.totals.iteration_squared)
        yield self.of_rank(catalogue.ITERATION_WINDOW_MIN, lambda: self._extreme(0))
        yield self.of_rank(catalogue.ITERATION_WINDOW_MAX, lambda: self._extreme(1))
        yield self.of_rank(catalogue.ITERATION_LAST_STEP, lambda: (steps.totals.steps - 1) * self.ones)
        yield self.of_rank(catalogue.ITERATION_LAST_TIMESTAMP, lambda: self.began + steps.totals.last_end)

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
        yield from self.summary(
            catalogue.PHASE_DURATION,
            lambda: steps.totals.phase_count[:, None] * self.ones,
            lambda: steps.totals.phase_seconds,
            with_source,
        )
        nothing = np.full((len(rows), self.layout.ranks), np.nan)

        def longest() -> Floats:
            found = steps.extremes(self.now)
            return nothing if found is None else found[2]

        yield self.of_rank(catalogue.PHASE_WINDOW_MAX, longest, rows)
        # Here ranks wait for one another in collectives alone.
        waits = ["none" if phase.along is None else _dimension(phase) for phase in steps.phases]
        info = [
            Row({"phase": phase.name, "kind": phase.kind, "waits": whom})
            for phase, whom in zip(steps.phases, waits, strict=True)
        ]
        yield self.of_rank(catalogue.PHASE_INFO, lambda: np.ones((len(info), self.layout.ranks)), info)
        open_rows = [Row({"phase": phase.name, "kind": phase.kind}) for phase in steps.phases]
        yield self.of_rank(catalogue.PHASE_OPEN, self._open_since, open_rows)

    def _open_since(self) -> Floats:
        place, since = self.steps.open_operation(self.now)
        found = np.full((len(self.steps.phases), self.layout.ranks), np.nan)
        for number, operation in enumerate(self.steps.operations):
            if operation is not program.GAP:
                row = found[self.steps.phases.index(operation)]
                row[place == number] = self.began + since[place == number]
        return found

    def _host_work(self) -> Iterator[Block]:
        totals = self.steps.totals
        yield from self.summary(
            catalogue.GC_PAUSE, lambda: totals.gc_count, lambda: totals.gc_seconds, [Row({"generation": "2"})]
        )
        compiler = [Row({"compiler": "dynamo"})]
        yield from self.summary(catalogue.COMPILE, lambda: 4 * self.ones, lambda: 38.0 * self.ones, compiler)

    def _channels(self) -> Iterator[Block]:
        rows = [Row({"channel": channel}) for channel in CHANNELS]
        yield self.of_rank(catalogue.CHANNEL_UP, lambda: np.where(self._blind(), 0.0, 1.0), rows)

        def reasons() -> Floats:
            return np.where(self._blind(), 1.0, np.nan)

        why = [
            Row({"channel": channel, "reason": _BLIND_REASON if channel in self.channels else "disabled"})
            for channel in CHANNELS
        ]
        yield self.of_rank(catalogue.CHANNEL_INFO, reasons, why)
        a_step = {"phases": 38.0, "kernels": float(sum(pair.launches for pair in self.kernels.pairs))}

        def records() -> Floats:
            stacks = self.now * STACK_HERTZ
            return np.array(
                [
                    (self.steps.totals.steps * a_step[channel] if channel in a_step else stacks) * self.ones
                    for channel in CHANNELS
                ]
            )

        yield self.of_rank(catalogue.RECORDS, records, rows)
        dropped = [Row({"channel": "kernels", "reason": "full"})]
        yield self.of_rank(catalogue.RECORDS_DROPPED, lambda: 0 * self.ones, dropped)
        cpu = np.array([[0.004], [0.0012], [0.0]]) / self.steps.step_seconds
        yield self.of_rank(
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


def _dimension(phase: program.FleetPhase) -> Dimension:
    """What a phase is compared along: its own group, or data-parallel peers."""
    return phase.along or "dp"
