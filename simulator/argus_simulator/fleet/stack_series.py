"""Series of the stack channel: innermost frames, in proportion to the phases that they are seen in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from argus_core import catalogue
from argus_simulator.fleet.ranks import Floats
from argus_simulator.fleet.series_blocks import Block, Row

if TYPE_CHECKING:
    from argus_simulator.fleet.exposition import Exposition

STACK_HERTZ: Final = 4.0
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


def stacks(fleet: Exposition) -> Iterator[Block]:
    steps = fleet.steps
    rows = [Row({"thread": thread, "frame": frame}) for thread, frame in _FRAMES]

    def samples() -> Floats:
        found = []
        for share, phase in _FRAMES.values():
            index = next((n for n, p in enumerate(steps.phases) if p.name == phase), None)
            seconds = (
                share * steps.totals.iteration_seconds if index is None else steps.totals.phase_seconds[index]
            )
            found.append(np.floor(seconds * STACK_HERTZ))
        return np.array(found)

    yield fleet.of_rank(catalogue.STACK_SAMPLES, samples, rows)
    yield fleet.of_rank(catalogue.STACK_SAMPLING, lambda: STACK_HERTZ * fleet.ones)
    yield fleet.of_rank(catalogue.STACK_SAMPLER_CPU, lambda: 0.006 * steps.totals.last_end * fleet.ones)
