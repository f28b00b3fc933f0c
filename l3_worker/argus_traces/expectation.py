"""What each thing should have taken: the median of the ranks that do the same work.

Operations compare by role, kernel, phase and number within the step; what a rank itself usually takes
stands in where no other rank does the same. The lower median of the others is taken, so that two equally slow
ranks of four do not become the norm.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_traces.operations import Fleet, Operations

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# A class whose counts differ between steps on more of the (rank, step) pairs is compared as a whole.
_IRREGULAR: Final = 0.3


def comparable(fleet: Fleet, operations: Operations) -> Ints:
    """Number of the class of each operation: members of one class should take equally long, shape (n,)."""
    roles: dict[str, int] = {}
    role_of = np.array(
        [roles.setdefault(_role(fleet, rank), len(roles)) for rank in range(len(fleet.traces))], np.int64
    )
    role = role_of[operations["rank"]]
    kinds = _number(role, operations["name"], operations["phase"])
    cells, counts = np.unique(
        np.stack([kinds, operations["rank"].astype(np.int64), operations["step"].astype(np.int64)]),
        axis=1, return_counts=True,
    )  # fmt: skip
    usual = expected_by(cells[0], np.zeros(len(counts), np.int64), counts.astype(np.float64))
    differs = np.bincount(cells[0], counts != usual) / np.maximum(np.bincount(cells[0]), 1)
    occurrence = np.where(differs[kinds] > _IRREGULAR, 0, operations["occurrence"])
    return _number(kinds, occurrence)


def _role(fleet: Fleet, rank: int) -> str:
    window = fleet.traces[rank].window
    at = window.coordinates
    return window.role or ".".join(f"{name}{at[name]}" for name in ("pp", "tp") if name in at)


def _number(*columns: NDArray[np.integer]) -> Ints:
    stacked = np.stack([column.astype(np.int64) for column in columns])
    return np.unique(stacked, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def expected_by(classes: Ints, who: Ints, values: Floats) -> Floats:
    """For each value: the lower median, over all others of its class, of each one's median.

    Args:
        classes, who: class and owner of each value, from 0 on, shape (n,).
        values: finite.

    Returns:
        Shape (n,). Where an owner is alone in its class: its own median.
    """
    if not len(values):
        return np.zeros(0)
    owners = int(who.max()) + 1
    cell = classes * owners + who
    order = np.lexsort((values, cell))
    ordered = cell[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.concatenate((begins, [len(ordered)])))
    medians = (values[order[begins + (counts - 1) // 2]] + values[order[begins + counts // 2]]) / 2
    cells = ordered[begins]
    # Per class the medians of its owners, ascending; from these each owner leaves itself out.
    of_class = cells // owners
    ranked = np.lexsort((medians, of_class))
    first = np.flatnonzero(np.concatenate(([True], of_class[1:] != of_class[:-1])))
    size = np.diff(np.concatenate((first, [len(of_class)])))
    run = np.repeat(np.arange(len(first)), size)
    place = np.empty(len(ranked), np.int64)
    place[ranked] = np.arange(len(ranked)) - first[run]
    middle = np.maximum((size[run] - 2) // 2, 0)
    chosen = np.where(size[run] > 1, np.where(place <= middle, middle + 1, middle), 0)
    of_cell = medians[ranked[first[run] + chosen]]
    result: Floats = of_cell[np.searchsorted(cells, cell)]
    return result


def peers_of(classes: Ints, who: Ints) -> NDArray[np.bool_]:
    """Whether somebody else has the class, for each element."""
    pairs = np.unique(np.stack([classes, who]), axis=1)
    owners = np.bincount(pairs[0], minlength=int(classes.max(initial=0)) + 1)
    result: NDArray[np.bool_] = owners[classes] > 1
    return result
