"""Series of sampled layers: two kinds, in three micro-batches, whose time is a share of the forward's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from argus_core import catalogue
from argus_simulator.fleet.program import FORWARD
from argus_simulator.fleet.ranks import Floats
from argus_simulator.fleet.series_blocks import Block, Row

if TYPE_CHECKING:
    from argus_simulator.fleet.exposition import Exposition

_LAYERS_A_RANK: Final = 20
_SHARES: Final = {"core_attention": 0.3, "mlp": 0.5}
"""Of all layers of a kind in the forward."""
_MICROBATCHES: Final = ("0", "4", "7")
_SAMPLES_A_STEP: Final = 4 / len(_MICROBATCHES)
"""Four layers of a kind in each step, in one micro-batch by turns."""


def layers(fleet: Exposition) -> Iterator[Block]:
    totals, forward = fleet.steps.totals, fleet.steps.phases.index(FORWARD)
    pairs = [(kind, microbatch) for kind in _SHARES for microbatch in _MICROBATCHES]
    rows = [Row({"layer": kind, "microbatch": microbatch}) for kind, microbatch in pairs]
    of_all = np.array([[_SHARES[kind] / _LAYERS_A_RANK / 8] for kind, _ in pairs])

    def count() -> Floats:
        return np.full((len(rows), fleet.layout.ranks), np.floor(totals.steps * _SAMPLES_A_STEP))

    def seconds() -> Floats:
        found: Floats = of_all * totals.phase_seconds[forward] * _SAMPLES_A_STEP
        return found

    yield from fleet.summary(catalogue.LAYER_DURATION, count, seconds, rows)
