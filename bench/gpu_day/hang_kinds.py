"""Hangs of two ranks on one GPU in which nobody is behind: what else tells who it is."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from argus_exporter.ranks.process_state import is_stopped
from bench.gpu_day.collector import Collector
from bench.gpu_day.hang import counted, hanging, last_of
from bench.gpu_day.step import Day

_PATIENCE_S: Final = 40.0
"""An iteration of milliseconds is overdue after 3 s, and looked at about once a second."""


def run(day: Day) -> dict[str, Any]:
    how = str(day.step.options["how"])
    with hanging(day, how) as (collector, ranks):
        before = counted(collector)
        (day.work / "call").touch()
        if how == "inside":
            if not collector.wait(lambda: _is_told(collector, 1, before[1] + 1), _PATIENCE_S):
                raise RuntimeError("the second rank did not call its last collective")
            os.kill(ranks[1].pid, signal.SIGSTOP)
            (day.work / "go").touch()
        told = collector.wait(
            lambda: all(_is_told(collector, rank, before[rank] + 1) for rank in range(2)), _PATIENCE_S
        )
        found = [last_of(collector, rank) for rank in range(2)]
        day.reach(f"the pages say {found}")
        last = counted(collector)
        return {
            "before": before,
            "told": told,
            "numbers_apart": abs(last[0] - last[1]),
            "operations": len({one.operation for one in found if one is not None and one.operation}),
            "ended_it": sum(one is not None and one.completed == one.number for one in found),
            "stopped": sum(is_stopped(one.pid) for one in ranks),
            "ended": sum(one.poll() is not None for one in ranks),
        }


def _is_told(collector: Collector, rank: int, least: int) -> bool:
    """Whether a rank's page has the operation of its last collective, of this number or a later one."""
    one = last_of(collector, rank)
    return one is not None and one.operation != "" and one.number >= least
