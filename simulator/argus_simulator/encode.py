"""One step of one rank as packed wire records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from argus_core import wire
from argus_core.kernel_records import KERNEL_DTYPE
from argus_core.link import Link
from argus_simulator import kernels
from argus_simulator.job import RankStep

_KERNELS_A_MESSAGE = wire.records_per_message(wire.Kernel)


@dataclass
class Totals:
    """The running totals that a producer keeps over its iterations."""

    count: int = 0
    seconds: float = 0.0
    squared: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.squared += seconds * seconds


def send_step(link: Link, done: RankStep, step: int, epoch_ns: int, totals: Totals) -> None:
    """Queue the records of a step on a link; the caller flushes.

    Args:
        link: the rank's connection.
        done: what the rank did; its times count from the start of the job.
        step: index of the step.
        epoch_ns: Unix time at which the job started.
        totals: of the rank; advanced by this step.
    """
    for span in done.spans:
        link.add(
            wire.Span(
                start_ns=epoch_ns + span.start_ns,
                duration_ns=span.duration_ns,
                step=step,
                phase_id=link.name_id(span.phase.name),
                group_id=0,  # the exporter routes it
                kind=span.phase.kind,
                source=span.phase.source,
                microbatch=0,
            )
        )
    records = kernel_records(done, epoch_ns, link.name_id)
    for start in range(0, len(records), _KERNELS_A_MESSAGE * KERNEL_DTYPE.itemsize):
        link.add_packed(
            wire.MessageType.KERNELS,
            records[start : start + _KERNELS_A_MESSAGE * KERNEL_DTYPE.itemsize],
        )
    duration_ns = done.end_ns - done.start_ns
    totals.add(duration_ns / 1e9)
    link.add(
        wire.Iteration(
            step, epoch_ns + done.end_ns, duration_ns, totals.count, totals.seconds, totals.squared
        )
    )


def kernel_records(done: RankStep, epoch_ns: int, name_id: Callable[[str], int]) -> bytes:
    """`wire.Kernel` records of a step, packed."""
    records = done.kernels.copy()
    records["start_ns"] += epoch_ns
    ids = [name_id(name) for name in kernels.all_names()]
    records["name_id"] = [ids[index] for index in done.kernels["name_id"]]
    return records.tobytes()
