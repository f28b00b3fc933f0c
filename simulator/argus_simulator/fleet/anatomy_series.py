"""Series of the anatomy of phases: compute phases in fixed shares, and steps as the sum of their phases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from argus_core import catalogue
from argus_simulator.fleet.gpu_series import where_kernels_are_seen
from argus_simulator.fleet.ranks import Floats
from argus_simulator.fleet.series_blocks import Block, Row

if TYPE_CHECKING:
    from argus_simulator.fleet.exposition import Exposition

_SHARES: Final = {"compute": 0.94, "exposed": 0.01, "copy": 0.01, "idle": 0.04}
"""Of a phase of kind compute. Collectives are phases of their own here."""
_PARTS: Final = tuple(_SHARES)


def anatomy(fleet: Exposition) -> Iterator[Block]:
    totals = fleet.steps.totals
    kinds = np.array([phase.kind for phase in fleet.steps.phases])
    compute = np.flatnonzero(kinds == "compute")
    names = [fleet.steps.phases[place].name for place in compute]
    shares = np.array(list(_SHARES.values()))

    def parts() -> Floats:
        return where_kernels_are_seen(fleet, totals.phase_seconds[compute][:, None] * shares[:, None])

    def iterations() -> Floats:
        own = totals.phase_seconds[compute].sum(axis=0)
        waits = totals.phase_seconds[kinds == "comm"].sum(axis=0)
        of_parts = shares[:, None] * own
        of_parts[_PARTS.index("exposed")] += waits
        of_parts[_PARTS.index("idle")] += np.maximum(totals.iteration_seconds - own - waits, 0)
        return where_kernels_are_seen(fleet, of_parts)

    of_phase = [Row({"phase": name, "part": part}) for name in names for part in _PARTS]
    yield fleet.of_rank(catalogue.PHASE_GPU, parts, of_phase)
    yield fleet.of_rank(
        catalogue.PHASE_GPU_SPANS,
        lambda: where_kernels_are_seen(fleet, totals.phase_count[compute][:, None] * fleet.ones),
        [Row({"phase": name}) for name in names],
    )
    yield fleet.of_rank(
        catalogue.PHASE_EXPOSED,
        lambda: where_kernels_are_seen(fleet, totals.phase_seconds[compute] * _SHARES["exposed"]),
        [Row({"phase": name}, {"group": fleet.layout.groups("dp")}) for name in names],
    )
    yield fleet.of_rank(catalogue.ITERATION_GPU, iterations, [Row({"part": part}) for part in _PARTS])
