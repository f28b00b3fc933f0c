"""A collective that breaks ends for nobody."""

from __future__ import annotations

import numpy as np
import pytest

from argus_simulator.lab import load_scenario


@pytest.mark.parametrize("topology", ["dense", "pipeline"])
def test_all_members_of_a_broken_collective_hang_in_it(topology: str):
    """All of them have entered it, none has left it, and none has entered the next: nobody is behind."""
    scenario = load_scenario("faults/hang-comm", seed=0, topology=topology)
    job = scenario.job()
    job.jump(scenario.faults["broken"].onset_step)
    done = job.next_step()
    plan, times = done.plan, done.times
    (culprit,) = scenario.faults["broken"].ranks
    for rank in scenario.topology.build().members(culprit, "dp"):
        nodes = plan.comm[(plan.rank[plan.comm] == rank) & (plan.exchange[plan.comm] >= 0)]
        entered = [node for node in nodes if plan.phases[plan.phase[node]].startswith("dp-")]
        assert np.isfinite(times.arrival[entered]).tolist() == [True] + [False] * (len(entered) - 1)
        assert not np.isfinite(times.end[entered]).any()
