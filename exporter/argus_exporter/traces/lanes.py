"""Slices of one thread that cross each other, spread over several tracks.

A Perfetto track holds slices that nest. What the clock of a GPU says of two kernels of one stream may cross
by a little (programmatic dependent launch, clock steps), and spans of two Python threads may cross anyhow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

LANES: Final = 64
"""More than anybody looks at. What is beyond crosses others in the last: there a slice is cut off where
the next one begins, or where the one that it began in ends."""


def side_by_side(starts: Times, ends: Times) -> NDArray[np.intp]:
    """Lane of each slice so that no two of a lane overlap, but in the last one: the lowest that is free.

    Args:
        starts: ascending, shape (n,).
        ends: not before the starts, same shape.
    """
    lanes = np.zeros(len(starts), np.intp)
    if not len(starts) or bool(np.all(starts[1:] >= np.maximum.accumulate(ends)[:-1])):
        return lanes
    free_at: list[int] = []
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        lane = next((lane for lane, free in enumerate(free_at) if free <= start), len(free_at))
        if lane == len(free_at) < LANES:
            free_at.append(end)
        else:
            lane = min(lane, LANES - 1)
            free_at[lane] = max(end, free_at[lane])
        lanes[index] = lane
    return lanes


def nested(starts: Times, ends: Times) -> NDArray[np.intp]:
    """Lane of each slice so that two of a lane are apart or nested, but in the last one.

    Args:
        starts: ascending, and of equal starts the longest first, shape (n,).
        ends: not before the starts, same shape.
    """
    lanes = np.zeros(len(starts), np.intp)
    open_until: list[list[int]] = []
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        lane = 0
        while lane < len(open_until):
            stack = open_until[lane]
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or stack[-1] >= end or lane == LANES - 1:
                break
            lane += 1
        else:
            open_until.append([])
        open_until[lane].append(min((end, *open_until[lane][-1:])))
        lanes[index] = lane
    return lanes
