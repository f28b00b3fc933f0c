"""A scenario as the score plays it: how fast, how long, and what is true of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from argus_simulator.lab import Scenario, Truth, load_scenario
from argus_simulator.score.held_out import held_out_scenario
from argus_simulator.score.suites import Playable
from argus_simulator.stack.pace import SECOND_S

FAULTY_STEPS: Final = 240
"""After the onset: 16 minutes of healthy steps of 4 s. The slowest verdicts need half of it."""
STEPS: Final = 300
"""Where there is no healthy part, and in a control."""


@dataclass(frozen=True)
class Pace:
    """How fast jobs are played, and what follows from it for the judge.

    Attributes:
        step_s: of a healthy step.
        history_s: of the healthy run before: so long as the rules need to learn from it.
        settle_s: from the last step to the judgement: an alert of the last moment has been delivered then.
        grace_s: for so long after the end of a fault its traces are in the windows: an alert is about it.
    """

    step_s: float
    history_s: float
    settle_s: float
    grace_s: float

    def times(self, factor: float) -> Pace:
        """The same where a second lasts so long."""
        return Pace(
            self.step_s * factor, self.history_s * factor, self.settle_s * factor, self.grace_s * factor
        )


SHIPPED: Final = Pace(step_s=4, history_s=8400, settle_s=75, grace_s=120 + 15)
"""For the rules as they are shipped: four steps in a scrape of 15 s. They learn from thirty samples, 4
minutes apart; their shortest window is 2 minutes."""
COMPRESSED: Final = SHIPPED.times(SECOND_S)
"""For the real stack, on which everything is a tenth as long."""


@dataclass(frozen=True)
class Scene:
    """What is played, how, and the truth for the judge."""

    playable: Playable
    pace: Pace = COMPRESSED

    @property
    def name(self) -> str:
        return self.playable.title

    @property
    def key(self) -> tuple[str, int]:
        """What is played once in a score."""
        return self.name, self.seed

    @property
    def seed(self) -> int:
        return self.playable.seed

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario at its pace."""
        chosen = self.playable
        load = held_out_scenario if chosen.held_out else load_scenario
        scenario = load(chosen.name, seed=chosen.seed, magnitude=chosen.magnitude, topology=chosen.topology)
        model = dataclasses.replace(scenario.model, signals=chosen.signals)
        return dataclasses.replace(scenario, model=model).compressed(scenario.step_seconds / self.pace.step_s)

    @property
    def truth(self) -> Truth:
        return self.scenario.truth

    @property
    def ranks(self) -> int:
        return self.scenario.topology.build().ranks

    @property
    def onset_step(self) -> int:
        """First faulty step; of a control, where it is whatever happens in it."""
        return min((fault.onset_step for fault in self.scenario.faults.values()), default=0)

    def unscraped(self, step: int) -> bool:
        """Whether Prometheus must not reach the job's exporter in this step."""
        gaps = self.scenario.scrape_gaps
        return any(first <= step and (end is None or step < end) for first, end in gaps)

    @property
    def steps(self) -> int:
        """How many steps the job has at most."""
        whole = max(STEPS, self.onset_step + FAULTY_STEPS)
        return whole - FAULTY_STEPS // 2 if self.playable.brief else whole

    @property
    def seconds(self) -> float:
        """How long the job lasts at most: what makes its steps longer is watched no longer."""
        return self.steps * self.pace.step_s

    @property
    def has_history(self) -> bool:
        """Whether an earlier, healthy run of the same model is played first.

        What is wrong with the whole job from its first step shows in no comparison but with its past. Whether
        a past accuses falsely shows in controls to which nothing happens.
        """
        if self.truth.control:
            return not self.scenario.faults and not self.playable.brief
        findings = self.truth.findings
        whole = bool(findings) and all(finding.scope == "job" for finding in findings)
        return whole and self.onset_step == 0

    @property
    def history_steps(self) -> int:
        return round(self.pace.history_s / self.pace.step_s)

    def history(self) -> Scenario:
        """The earlier run: other noise, no fault."""
        return dataclasses.replace(self.scenario, faults={}, seed=self.scenario.seed + 1)

    @property
    def all_seconds(self) -> float:
        """How long it takes to play, the history too."""
        return self.seconds + (self.pace.history_s if self.has_history else 0.0)
