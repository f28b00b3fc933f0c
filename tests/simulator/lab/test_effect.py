"""What faults cost is measured, and what faults of the catalogue should cost, they do."""

from __future__ import annotations

import dataclasses

import pytest

from argus_simulator.engine.job import NEVER
from argus_simulator.lab import load_scenario
from argus_simulator.lab.scenario import Scenario
from argus_simulator.score.results import SUB_THRESHOLD


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


def effect(name: str, magnitude: str = "", topology: str = "") -> float:
    found = measure_effect(load_scenario(name, seed=4, magnitude=magnitude, topology=topology), steps=16)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name",
    ["gpu-throttle", "cpu-contention", "dataload-stall", "edp-pcie-link", "pp-bubble", "nvlink-degraded"],
)
def test_more_of_a_fault_costs_more(name: str):
    """Low, mid, high."""
    costs = [effect(f"faults/{name}", magnitude) for magnitude in ("low", "mid", "high")]
    assert costs == sorted(costs)
    assert costs[-1] > 5 * SUB_THRESHOLD


def test_what_nobody_feels_is_told_apart():
    """One shape of one kernel on three ranks costs less than a per cent."""
    assert effect("faults/kernel-mode-shift") < SUB_THRESHOLD < effect("faults/gpu-throttle")


def test_synchronisations_cost_little_and_a_hang_everything():
    """An added sync is seen in issue latency long before it is felt; a hang has no step to measure."""
    assert 0 < effect("faults/extra-sync") < 0.05
    assert measure_effect(load_scenario("faults/hang-comm", seed=1), steps=3) is None


def test_pipelines_hide_what_data_parallel_jobs_feel():
    """A slow GPU costs a pipeline less: the bubble takes part of it."""
    dense, pipeline = (effect("faults/gpu-throttle", "mid", topology) for topology in ("dense", "pipeline"))
    assert 0.1 < pipeline < 0.7 * dense


@pytest.mark.parametrize("name", ["late-join", "rank-missing", "scrape-gap", "clock-step", "profiler-on"])
def test_controls_that_only_look_like_faults_cost_nothing(name: str):
    """The training does not notice."""
    assert effect(f"controls/{name}") == 0
