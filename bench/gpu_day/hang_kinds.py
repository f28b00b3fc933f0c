"""Hangs of two ranks on one GPU in which nobody is behind: what else tells who it is."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any, Final

from argus_core.shared_page import CollectiveSequence
from argus_exporter.ranks.process_state import is_stopped
from bench.gpu_day.collector import Collector
from bench.gpu_day.hang import hanging, last_of
from bench.gpu_day.step import Day

_PATIENCE_S: Final = 40.0
"""An iteration of milliseconds is overdue after 3 s, and looked at about once a second."""


def run(day: Day) -> dict[str, Any]:
    how = str(day.step.options["how"])
    with hanging(day, how) as (collector, ranks):
        before = _number(collector, 0)
        if how == "inside":
            _stop_inside(day, collector, ranks[1])
        told = collector.wait(lambda: _all_told(collector), _PATIENCE_S)
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


def _stop_inside(day: Day, collector: Collector, rank: subprocess.Popen[str]) -> None:
    """The second rank is in its last collective, and is stopped; then the first comes.

    Once its page tells the operation its number is that of torch: what C++ calls is counted with a delay.
    """
    if not collector.wait(lambda: _is_told(last_of(collector, 1)), _PATIENCE_S):
        raise RuntimeError("the second rank did not call its last collective")
    os.kill(rank.pid, signal.SIGSTOP)
    (day.work / "go").touch()


def _all_told(collector: Collector) -> bool:
    """Both pages tell an operation, under one number: who comes later has told of its last one before."""
    found = [last_of(collector, rank) for rank in range(2)]
    return all(map(_is_told, found)) and _number(collector, 0) == _number(collector, 1)


def _is_told(one: CollectiveSequence | None) -> bool:
    return one is not None and one.operation != ""


def _number(collector: Collector, rank: int) -> int:
    found = last_of(collector, rank)
    return found.number if found is not None else 0
