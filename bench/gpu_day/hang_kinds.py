"""Hangs of two ranks on one GPU in which nobody is behind: what else tells who it is."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from argus_exporter.ranks.process_state import is_stopped
from bench.gpu_day.collector import Collector
from bench.gpu_day.hang import Pair, hanging, last_of
from bench.gpu_day.step import Day

_PATIENCE_S: Final = 40.0
"""An iteration of milliseconds is overdue after 3 s, and looked at about once a second."""


def run(day: Day) -> dict[str, Any]:
    how = str(day.step.options["how"])
    with hanging(day, how) as pair:
        collector, ranks, _ = pair
        before = _number(collector, 0)
        if how == "inside":
            _stop_inside(day, pair)
        told = collector.wait(lambda: all(_is_told(pair, rank) for rank in range(2)), _PATIENCE_S)
        found = [last_of(collector, rank) for rank in range(2)]
        day.reach(f"the pages say {found}")
        return {
            "before": before,
            "told": told,
            "numbers_apart": abs(_number(collector, 0) - _number(collector, 1)),
            "operations": len({one.operation for one in found if one is not None and one.operation}),
            "ended_it": sum(one is not None and one.completed == one.number for one in found),
            "stopped": sum(is_stopped(one.pid) for one in ranks),
            "ended": sum(one.poll() is not None for one in ranks),
        }


def _stop_inside(day: Day, pair: Pair) -> None:
    """The second rank is in its last collective, and is stopped; then the first comes."""
    if not pair.collector.wait(lambda: _is_told(pair, 1), _PATIENCE_S):
        raise RuntimeError("the second rank did not call its last collective")
    os.kill(pair.ranks[1].pid, signal.SIGSTOP)
    (day.work / "go").touch()


def _is_told(pair: Pair, rank: int) -> bool:
    """Whether a rank's page has the operation of its last collective, and with it torch's number of it.

    One of the training may be there before: on a busy machine an iteration of milliseconds is overdue soon.
    """
    one = last_of(pair.collector, rank)
    return one is not None and one.operation != "" and one.entered_monotonic_ns > pair.trained_ns[rank]


def _number(collector: Collector, rank: int) -> int:
    found = last_of(collector, rank)
    return found.number if found is not None else 0
