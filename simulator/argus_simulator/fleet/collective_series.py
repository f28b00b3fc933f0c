"""Series of collectives: the last one that each rank has entered, and what it is while a step is overdue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from argus_core import catalogue
from argus_simulator.fleet import program
from argus_simulator.fleet.ranks import Floats
from argus_simulator.fleet.series_blocks import Block, Row

if TYPE_CHECKING:
    from argus_simulator.fleet.exposition import Exposition

_OPERATIONS: Final = {
    program.TP_ALL_REDUCE: "all_reduce",
    program.EP_DISPATCH: "all_to_all",
    program.PP_RECEIVE: "coalesced",
    program.DP_ALL_REDUCE: "all_reduce",
}
"""As NCCL has them in torch's flight recorder."""
_OVERDUE_SECONDS: Final = 30.0
"""After so long a producer would look at it, at steps of some seconds (`argus_training/overdue.py`)."""


def collectives(fleet: Exposition) -> Iterator[Block]:
    phases = [(phase, phase.along) for phase in fleet.steps.phases if phase.along is not None]
    groups = [{"group": fleet.layout.groups(along)} for _, along in phases]
    rows = [Row(each=group) for group in groups]
    with_operation = [
        Row({"operation": _OPERATIONS[phase]}, group)
        for (phase, _), group in zip(phases, groups, strict=True)
    ]
    nothing = np.full((len(rows), fleet.layout.ranks), np.nan)

    def entered() -> Floats:
        """By now: those of finished steps, and of this one up to the open operation."""
        place, _ = fleet.steps.open_operation(fleet.now)
        found = np.empty_like(nothing)
        for row, (phase, _) in enumerate(phases):
            numbers = [n for n, operation in enumerate(fleet.steps.operations) if operation is phase]
            found[row] = len(numbers) * fleet.steps.totals.steps + sum(place >= n for n in numbers)
        return found

    def overdue() -> Floats:
        """The same, of ranks whose step takes far longer than usual."""
        age = fleet.now - fleet.steps.running.start
        return np.where(age > _OVERDUE_SECONDS, entered(), np.nan)

    def completed() -> Floats:
        place, _ = fleet.steps.open_operation(fleet.now)
        operations = (*fleet.steps.operations, None)
        within = np.array([[operation is phase for operation in operations] for phase, _ in phases], float)
        found: Floats = overdue() - within[:, place]
        return found

    yield fleet.of_rank(catalogue.COLLECTIVE_SEQUENCE, entered, rows)
    yield fleet.of_rank(catalogue.COLLECTIVE_OPERATION, overdue, with_operation)
    yield fleet.of_rank(catalogue.COLLECTIVE_STARTED, lambda: nothing, rows)  # NCCL's timing is off
    yield fleet.of_rank(catalogue.COLLECTIVE_COMPLETED, completed, rows)
