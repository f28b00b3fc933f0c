"""Stable ids for modes: a mode must keep one series from window to window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from argus_core.modes import Mode

_MATCH_LOG_RATIO: Final = math.log(1.25)
"""A mode keeps its id while its median moves by less than this from window to window."""
_RETIRE_AFTER_WINDOWS: Final = 10
_IDLE_COST: Final = 0.01
"""Log units a window of absence: of two modes about as near, the one that was seen last is it."""


@dataclass
class _Known:
    log_p50: float
    idle: int = 0


@dataclass
class ModeTracker:
    """Ids of one (kernel, stream) pair, matched by median.

    The matching keeps the order of the modes and moves them least in total, so that two close modes which
    drift together keep their ids, where the nearest one alone would be the other's.
    """

    _known: dict[int, _Known] = field(default_factory=dict)

    def assign(self, modes: Sequence[Mode]) -> dict[int, Mode]:
        """Id to mode for this window; `modes` ascend by median.

        A new mode gets the lowest free id. Ids of modes idle for ten windows become free again.
        """
        known = sorted(self._known.items(), key=lambda item: item[1].log_p50)
        matched = _align([math.log(mode.p50) for mode in modes], [state for _, state in known])
        assigned: dict[int, Mode] = {}
        for mode, place in zip(modes, matched, strict=True):
            if place is not None:
                assigned[known[place][0]] = mode
        for mode, place in zip(modes, matched, strict=True):
            if place is None:
                taken = self._known.keys() | assigned.keys()
                assigned[next(number for number in range(len(taken) + 1) if number not in taken)] = mode
        self.rest()
        for id_, mode in assigned.items():
            self._known[id_] = _Known(math.log(mode.p50))
        return dict(sorted(assigned.items()))

    def rest(self) -> bool:
        """A window without any mode of the pair. False once none is remembered."""
        for id_, known in list(self._known.items()):
            known.idle += 1
            if known.idle >= _RETIRE_AFTER_WINDOWS:
                del self._known[id_]
        return bool(self._known)


def _align(logs: Sequence[float], known: Sequence[_Known]) -> list[int | None]:
    """Place in `known` of each new mode, ascending; None where it is new.

    Least sum of the moves, a new mode counting as a move of the matching limit. O(new x known).
    """
    infinite = float("inf")
    # best[i][j]: of the first i new modes and the first j known ones.
    best = [[0.0] * (len(known) + 1)]
    for i, log in enumerate(logs, 1):
        row = [i * _MATCH_LOG_RATIO]
        for j, other in enumerate(known, 1):
            move = abs(log - other.log_p50)
            cost = move + _IDLE_COST * other.idle if move <= _MATCH_LOG_RATIO else infinite
            row.append(min(best[i - 1][j] + _MATCH_LOG_RATIO, row[j - 1], best[i - 1][j - 1] + cost))
        best.append(row)
    places: list[int | None] = [None] * len(logs)
    i, j = len(logs), len(known)
    while i and j:
        if best[i][j] == best[i][j - 1]:
            j -= 1
        elif best[i][j] == best[i - 1][j] + _MATCH_LOG_RATIO:
            i -= 1
        else:
            i, j = i - 1, j - 1
            places[i] = j
    return places
