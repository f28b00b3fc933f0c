"""When an iteration is overdue: half-way to where the rules call its job stalled, so that what they ask for
of a stalled job has been scraped by then; and when they do. Standard library only: the training process loads
this file.
"""

from __future__ import annotations

from typing import Final

_FACTOR: Final = 2.5
_FLOOR_S: Final = 3.0
_MOST_S: Final = 900.0
"""Halves of stallFactor, of stallMinSeconds (at the tenth of rules/test: what is told meanwhile costs too
little to wait for more) and of stallOutsideTrainSeconds, in jsonnet/config.libsonnet."""


_STALLED_S: Final = 60.0
"""`stallMinSeconds` there."""


def overdue_after(usual_s: float) -> float:
    """Seconds from which an iteration is overdue, by how long they take; 0: not known."""
    return min(max(_FACTOR * usual_s, _FLOOR_S), _MOST_S) if usual_s else _MOST_S


def stalled_after(usual_s: float) -> float:
    """Seconds from which a job is called stalled, as the rules are where a site changes nothing."""
    return max(2 * overdue_after(usual_s), _STALLED_S)
