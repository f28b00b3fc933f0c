"""Stable ids for modes: a mode must keep one series from window to window."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from argus_core.modes import Mode

_MATCH_LOG_RATIO = math.log(1.25)
"""A mode keeps its id while its median moves by less than this from window to window."""
_RETIRE_AFTER_WINDOWS = 10


@dataclass
class _Known:
    log_p50: float
    idle: int = 0


@dataclass
class ModeTracker:
    """Ids of one (kernel, stream) pair, matched by median, nearest first."""

    _known: dict[int, _Known] = field(default_factory=dict)

    def assign(self, modes: tuple[Mode, ...]) -> dict[int, Mode]:
        """Id to mode for this window. Ids of modes idle for ten windows become free again."""
        nearest = sorted(
            (abs(math.log(mode.p50) - known.log_p50), index, id_)
            for index, mode in enumerate(modes)
            for id_, known in self._known.items()
        )
        by_index: dict[int, int] = {}
        for distance, index, id_ in nearest:
            if distance > _MATCH_LOG_RATIO:
                break
            if index not in by_index and id_ not in by_index.values():
                by_index[index] = id_
        assigned: dict[int, Mode] = {}
        for index, mode in enumerate(modes):
            if index in by_index:
                assigned[by_index[index]] = mode
            else:
                taken = self._known.keys() | assigned.keys()
                assigned[next(number for number in range(len(taken) + 1) if number not in taken)] = mode
        for id_, known in list(self._known.items()):
            known.idle += 1
            if id_ not in assigned and known.idle >= _RETIRE_AFTER_WINDOWS:
                del self._known[id_]
        for id_, mode in assigned.items():
            self._known[id_] = _Known(math.log(mode.p50))
        return assigned
