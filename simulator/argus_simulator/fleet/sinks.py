"""Where samples of a fleet go: what every destination must be able to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from argus_simulator.fast_play.storage import Floats
from argus_simulator.fleet.series_blocks import Block


class Sink(Protocol):
    """Takes the samples of one time after the other."""

    def open(self, blocks: Sequence[Block]) -> None:
        """Learn all series, before the first sample."""

    def write(self, at: float, values: Sequence[Floats]) -> int:
        """Take one sample of every series at Unix time `at`; how many there were.

        Args:
            values: of each block, shape (rows, columns); NaN where the series does not exist now.
        """

    def close(self) -> None:
        """No more samples come. Not called when the run failed."""
