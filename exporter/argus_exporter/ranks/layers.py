"""Samples of a rank's layers: sums and counts by what kind of layer and which micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LAYERS_LIMIT: Final = 32
"""Distinct (layer, micro-batch) of one rank: 64 series. A producer of ours samples three micro-batches of at
most seven kinds; where the number of micro-batches changes from step to step there are others too."""


@dataclass
class LayerTotals:
    count: int = 0
    seconds: float = 0.0


class Layers(dict[tuple[str, int], LayerTotals]):
    """By kind and number of the micro-batch."""

    def sampled(self, layer: str, microbatch: int, seconds: float) -> bool:
        """Take one sample; False where the rank has too many layers and micro-batches."""
        totals = self.get((layer, microbatch))
        if totals is None:
            if len(self) >= _LAYERS_LIMIT:
                return False
            totals = self[layer, microbatch] = LayerTotals()
        totals.count += 1
        totals.seconds += seconds
        return True
