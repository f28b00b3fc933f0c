"""What goes wrong in a demo: the seed chooses the rank, the phase and the factor."""

from __future__ import annotations

import random
from dataclasses import dataclass

from argus_simulator.faults import FAULT_PHASES, Fault
from argus_simulator.scenario import Scenario, TopologySettings
from argus_simulator.truth import Truth, truth_of

RANKS = 8
ONSET_STEP = 80
"""20 s of health first: the rules' 10 s windows and three kernel windows of 4 s are full by then."""
TRAINING_JOB = "demo"

# A finding pages when it costs the job 5 % of its time: a short phase must be slower for that.
_FACTORS = {"forward": (1.6, 2.5), "backward": (1.6, 2.2), "optimizer": (1.9, 2.5), "data": (1.9, 2.5)}


@dataclass(frozen=True)
class Plan:
    """The story and its truth. Only the judge at the end reads `truth`."""

    scenario: Scenario
    truth: Truth


def plan(seed: int) -> Plan:
    """The same seed gives the same story."""
    choose = random.Random(seed)
    phase = choose.choice(FAULT_PHASES)
    fault = Fault(
        rank=choose.randrange(RANKS),
        phase=phase,
        factor=round(choose.uniform(*_FACTORS[phase]), 2),
        onset_step=ONSET_STEP,
    )
    scenario = Scenario(
        training_job=TRAINING_JOB, seed=seed, topology=TopologySettings(dp=RANKS), faults={"slow-rank": fault}
    )
    return Plan(scenario, truth_of("slow-rank", fault))
