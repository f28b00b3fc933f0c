"""Series of the kernel channel: modes, totals, issue latency, voids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from argus_core import catalogue
from argus_simulator.fleet import program
from argus_simulator.fleet.ranks import Floats
from argus_simulator.fleet.series_blocks import Block, Row

if TYPE_CHECKING:
    from argus_simulator.fleet.exposition import Exposition


def kernel_modes(fleet: Exposition) -> Iterator[Block]:
    windows = fleet.kernels
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
        yield fleet.of_rank(
            family,
            lambda values=values: where_kernels_are_seen(fleet, values[index, mode]),  # type: ignore[misc]
            modes,
        )
    yield fleet.of_rank(
        catalogue.KERNEL_TAIL_EVENTS, lambda: where_kernels_are_seen(fleet, windows.tail), pairs
    )
    unknown = np.full(fleet.layout.ranks, np.nan)
    for family, value in (
        (catalogue.KERNEL_WINDOW_LAST_STEP, lambda: windows.last_step * fleet.ones),
        (catalogue.KERNEL_WINDOW_STEPS, lambda: windows.window_steps * fleet.ones),
        (catalogue.KERNEL_CUTOFF, lambda: windows.cutoff),
        (catalogue.KERNEL_COVERAGE, lambda: windows.coverage),
    ):
        yield fleet.of_rank(
            family,
            lambda value=value: where_kernels_are_seen(fleet, value() if windows.last_step > 0 else unknown),  # type: ignore[misc]
        )


def kernel_totals(fleet: Exposition) -> Iterator[Block]:
    windows = fleet.kernels

    def where_published(values: Floats) -> Floats:
        return where_kernels_are_seen(fleet, np.where(windows.published, values, np.nan))

    pairs = [Row({"kernel": pair.id, "stream": pair.stream}) for pair in windows.pairs]
    yield fleet.of_rank(catalogue.KERNEL_LAUNCHES, lambda: where_published(windows.launches), pairs)
    yield fleet.of_rank(catalogue.KERNEL_DURATION_TOTAL, lambda: where_published(windows.seconds), pairs)
    # One kernel may run on two streams: it is named where either pair is published.
    named = list(dict.fromkeys((pair.id, pair.name[:256]) for pair in windows.pairs))
    places = [[i for i, pair in enumerate(windows.pairs) if pair.id == kernel] for kernel, _ in named]

    def known() -> Floats:
        found = np.array([windows.published[place].any(axis=0) for place in places])
        return where_kernels_are_seen(fleet, np.where(found, 1.0, np.nan))

    names = [Row({"kernel": kernel, "name": name}) for kernel, name in named]
    yield fleet.of_rank(catalogue.KERNEL_INFO, known, names)


def gpu_idle(fleet: Exposition) -> Iterator[Block]:
    steps, step = fleet.steps, fleet.steps.step_seconds
    classes = {"compute": 0.02 * step, "comm": 0.01 * step, "copy": 0.002 * step}
    latency = catalogue.ISSUE_LATENCY
    rows = [Row({"kernel_class": name}) for name in classes]
    typical = np.array(list(classes.values()))[:, None]
    launched = np.array([[90.0], [4.0], [4.0]])
    yield from fleet.summary(
        latency,
        lambda: where_kernels_are_seen(fleet, steps.totals.steps * launched * fleet.ones),
        lambda: where_kernels_are_seen(fleet, steps.totals.steps * launched * typical * fleet.ones),
        rows,
    )
    for quantile, factor in (("0.1", 0.4), ("0.5", 1.0), ("0.9", 1.8)):
        yield fleet.of_rank(
            latency,
            lambda factor=factor: where_kernels_are_seen(fleet, typical * factor * steps.chips),  # type: ignore[misc]
            [Row({**row.same, "quantile": quantile}) for row in rows],
        )
    voids = [Row({"void": "inter_step"}), Row({"void": "minority"})]
    data = steps.phases.index(program.DATA)

    def idle() -> Floats:
        seconds = steps.totals.phase_seconds[data]
        return where_kernels_are_seen(fleet, np.array([seconds, 0.06 * steps.totals.iteration_seconds]))

    yield fleet.of_rank(catalogue.VOID, idle, voids)


def where_kernels_are_seen(fleet: Exposition, values: Floats) -> Floats:
    """`values` (..., ranks) without ranks whose kernel channel is blind."""
    seen = np.array(values, float)
    seen[..., fleet.steps.faults.ranks_with("blind", fleet.now, "kernels")] = np.nan
    return seen
