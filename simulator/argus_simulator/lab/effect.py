"""What the faults of a scenario cost: the same seed with and without them."""

from __future__ import annotations

import dataclasses

from argus_simulator.engine.job import NEVER
from argus_simulator.lab.scenario import Scenario

SUB_THRESHOLD = 0.01
"""Nobody looks for what costs less of the step; such rows are scored apart."""


def measure_effect(scenario: Scenario, steps: int = 40) -> float | None:
    """How much longer the steps from the onset on take than without the faults, as a ratio less 1.

    None where the job hangs, or ends before.
    """
    healthy, faulty = dataclasses.replace(scenario, faults={}), scenario
    onset = min((fault.onset_step for fault in scenario.faults.values()), default=0)
    lengths = []
    for one in (healthy, faulty):
        job = one.job()
        job.jump(onset)
        first = last = 0
        for number in range(steps):
            done = job.next_step()
            first = int(done.start_ns.max()) if number == 0 else first
            last = int(done.end_ns.max())
            if last == NEVER:
                return None
        lengths.append(last - first)
    return lengths[1] / lengths[0] - 1
