"""What goes wrong in a demo: the seed chooses the rank, the phase and the factor."""

from __future__ import annotations

import random
from dataclasses import dataclass

from argus_simulator.demo.truth import FAULT_PHASES, FaultPhase, Truth, truth_of
from argus_simulator.engine.faults import Fault
from argus_simulator.engine.settings import ModelSettings
from argus_simulator.lab.scenario import Scenario, TopologySettings

RANKS = 8
ONSET_STEP = 80
"""20 s of health first: the windows of the rules (12 s) and three of kernels (6 s) are full by then."""
TRAINING_JOB = "demo"
_STEP_S = 0.25
"""Of 2.5 s in production: everything here is a tenth as long."""
_LOADER_SHARE = 0.08

# A finding pages where it costs the job 5 % of its time: a short phase must be slower for that.
_FACTORS = {"forward": (1.6, 2.5), "backward": (1.6, 2.2), "optimizer": (2.6, 3.4), "data": (2.4, 3.2)}


@dataclass(frozen=True)
class Plan:
    """The story and its truth. Only the judge at the end reads `truth`."""

    scenario: Scenario
    truth: Truth


def plan(seed: int) -> Plan:
    """The same seed gives the same story."""
    choose = random.Random(seed)
    phase = choose.choice(FAULT_PHASES)
    rank = choose.randrange(RANKS)
    factor = round(choose.uniform(*_FACTORS[phase]), 2)
    scenario = Scenario(
        training_job=TRAINING_JOB,
        seed=seed,
        step_seconds=_STEP_S,
        topology=TopologySettings(dp=RANKS),
        model=ModelSettings(loader_share=_LOADER_SHARE),
        faults={"slow-rank": slow_phase(rank, phase, factor)},
    )
    return Plan(scenario, truth_of(rank, phase, factor, ONSET_STEP))


def slow_phase(rank: int, phase: FaultPhase, factor: float) -> Fault:
    """A rank whose phase takes `factor` times as long from the onset on."""
    if phase == "data":
        seconds = (factor - 1) * _LOADER_SHARE * _STEP_S
        return Fault("data", (rank,), seconds=seconds, onset_step=ONSET_STEP)
    phases = phase if phase == "optimizer" else f"*-{phase}"
    return Fault("kernels", (rank,), phases=phases, factor=factor, onset_step=ONSET_STEP)
