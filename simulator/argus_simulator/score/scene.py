"""A scenario as the score plays it: how fast, how long, and what is true of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from argus_simulator.lab import Scenario, Truth, load_scenario
from argus_simulator.score.held_out import held_out_scenario
from argus_simulator.score.suites import Playable

STEP_S: Final = 0.25
"""Healthy steps are compressed to this: four in a scrape of the test profile, as 4 s in one of 15 s."""
FAULTY_STEPS: Final = 240
"""After the onset: a minute of healthy steps. The slowest verdicts of the test profile need half of it."""
FAULTY_MOST_S: Final = 60.0
"""A fault that makes steps many times as long is watched for so long at most."""
HISTORY_STEPS: Final = 300
"""Of the healthy run before: the test profile learns from second 44 on, and needs ten samples in 20 s."""
STEPS: Final = 300
"""Where there is no healthy part, and in a control."""


@dataclass(frozen=True)
class Scene:
    """What is played, how, and the truth for the judge."""

    playable: Playable

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
        """The scenario in compressed time."""
        chosen = self.playable
        load = held_out_scenario if chosen.held_out else load_scenario
        scenario = load(chosen.name, seed=chosen.seed, magnitude=chosen.magnitude, topology=chosen.topology)
        model = dataclasses.replace(scenario.model, signals=chosen.signals)
        return dataclasses.replace(scenario, model=model).compressed(scenario.step_seconds / STEP_S)

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
        """How long the job lasts at most."""
        most = FAULTY_MOST_S / 2 if self.playable.brief else FAULTY_MOST_S
        return self.onset_step * STEP_S + max(most, (self.steps - self.onset_step) * STEP_S)

    @property
    def has_history(self) -> bool:
        """Whether an earlier, healthy run of the same model is played first.

        What is wrong with the whole job from its first step shows in no comparison but with its past.
        """
        findings = self.truth.findings
        whole = bool(findings) and all(finding.scope == "job" for finding in findings)
        return whole and self.onset_step == 0

    def history(self) -> Scenario:
        """The earlier run: other noise, no fault."""
        return dataclasses.replace(self.scenario, faults={}, seed=self.scenario.seed + 1)

    @property
    def all_seconds(self) -> float:
        """How long it takes to play, the history too."""
        return self.seconds + (HISTORY_STEPS * STEP_S if self.has_history else 0.0)
