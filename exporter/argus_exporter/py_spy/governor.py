"""How often to sample a rank, so that watching it costs no more than its budget."""

from __future__ import annotations

from typing import Final, NamedTuple

_SLOWER_HERTZ: Final = (5, 2, 1)
_RESTS: Final = (1, 3, 9)
"""At 1 Hz what is left is py-spy's start, which only a pause makes cheaper."""
_CALM_WINDOWS: Final = 6
_HEADROOM: Final = 0.8
"""Faster again only where the cost would stay below this share of the budget."""


class Level(NamedTuple):
    """Samples a second within a window, and the windows of pause after each."""

    hertz: int
    rest: int

    @property
    def mean_hertz(self) -> float:
        """Samples a second, pauses counted in."""
        return self.hertz / (1 + self.rest)


class Governor:
    """Lowers the rate at once when a window was too dear, and raises it with patience.

    Args:
        rate: samples a second to begin with.
        budget: share of a core.
    """

    def __init__(self, rate: int, budget: float) -> None:
        slower = [hertz for hertz in _SLOWER_HERTZ if hertz < rate]
        lowest = slower[-1] if slower else rate
        self._levels = [Level(hertz, 0) for hertz in (rate, *slower)]
        self._levels += [Level(lowest, rest) for rest in _RESTS]
        self._budget = budget
        self._at = 0
        self._calm = 0

    @property
    def level(self) -> Level:
        return self._levels[self._at]

    def measured(self, cpu_seconds: float, wall_seconds: float) -> None:
        """A window at the current level cost so much CPU; `wall_seconds` includes the pause after it."""
        share = cpu_seconds / wall_seconds
        if share > self._budget:
            self._at = min(self._at + 1, len(self._levels) - 1)
            self._calm = 0
            return
        # As if all of the cost were in the samples: an upper bound, so that the rate does not swing.
        faster = self._levels[max(self._at - 1, 0)]
        bound = share * faster.mean_hertz / self.level.mean_hertz
        self._calm = self._calm + 1 if self._at and bound <= _HEADROOM * self._budget else 0
        if self._calm >= _CALM_WINDOWS:
            self._at -= 1
            self._calm = 0
