"""A collective that breaks ends for nobody."""

from __future__ import annotations

import numpy as np
import pytest

from argus_simulator.engine.faults import Fault
from argus_simulator.engine.job import NEVER, Job, JobShape
from argus_simulator.lab import load_scenario
from argus_simulator.topology import Topology


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


PIPELINE = Topology(dp=2, pp=4, ranks_per_host=2)


@pytest.mark.parametrize("phase", ["pp-forward-recv", "pp-backward-recv", "pp-forward-send"])
def test_a_transfer_between_stages_that_breaks_ends_at_neither_end(phase: str):
    """Also where the fault names what the rank receives: its length is that of what its neighbour sends."""
    done = Job(JobShape(PIPELINE, 0.5), [Fault("hang", (2,), phases=phase)], 0).next_step()
    plan = done.plan
    own = plan.comm[(plan.rank[plan.comm] == 2) & (plan.phase[plan.comm] == plan.phases.index(phase))]
    assert not np.isfinite(done.times.end[own[0]])
    assert (done.hung, int(done.end_ns.max())) == (True, NEVER)


@pytest.mark.parametrize("inward", [False, True])
def test_a_slow_link_between_stages_has_a_direction(inward: bool):
    """What a rank sends takes longer, or what its neighbours send to it; nobody else's."""

    def sent(*faults: Fault) -> dict[tuple[int, str], float]:
        done = Job(JobShape(PIPELINE, 0.5), faults, 0).next_step()
        plan, times = done.plan, done.times
        sends = [node for node in plan.comm.tolist() if plan.phases[plan.phase[node]].endswith("-send")]
        return {
            (int(plan.rank[node]), plan.phases[plan.phase[node]]): times.end[node] - times.arrival[node]
            for node in sends
        }

    healthy, found = sent(), sent(Fault("link", (2,), dimension="pp", factor=9.0, inward=inward))
    slow = {key for key in found if found[key] > 5 * healthy[key]}
    outward = {(2, "pp-forward-send"), (2, "pp-backward-send")}
    assert slow == ({(0, "pp-forward-send"), (4, "pp-backward-send")} if inward else outward)
