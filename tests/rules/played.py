"""Histories of jobs, and what the shipped rules tell of them, in virtual time."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_simulator.fast_play.evaluate import Evaluator, Late
from argus_simulator.fast_play.rules import aligned, read_rules
from argus_simulator.fast_play.storage import Storage
from rules.jobs import BEGIN_MS, Series

RULES: Final = sorted((Path(__file__).resolve().parents[2] / "rules").glob("argus.*.yaml"))


@dataclass(frozen=True)
class Told:
    """An alert that fired, and when: seconds after the onset."""

    labels: Mapping[str, str]
    begin_s: float
    end_s: float

    def __getattr__(self, name: str) -> str:
        return self.labels.get(name, "")


def played(
    jobs: Sequence[Series],
    lasting_s: float,
    onset_s: float = 0.0,
    rules: Sequence[Path] = RULES,
    late: Late = "none",
) -> list[Told]:
    with tempfile.TemporaryDirectory() as folder, Storage(Path(folder)) as storage:
        for series in jobs:
            storage.write(series)
        # Engines that are late evaluate at multiples of the interval.
        evaluator = Evaluator(storage, read_rules(rules, offset_ms=aligned if late != "none" else None), late)
        evaluator.advance(BEGIN_MS, BEGIN_MS + round(1000 * lasting_s))
        assert not evaluator.failures
        spells = [spell for spell in evaluator.spells() if spell.state == "firing"]

    def after_onset_s(at_ms: int) -> float:
        return (at_ms - BEGIN_MS) / 1000 - onset_s

    return [Told(dict(one.labels), *map(after_onset_s, (one.begin_ms, one.end_ms))) for one in spells]


def of(told: Sequence[Told], job: str) -> list[Told]:
    """Findings of a job, without what is said of ARGUS itself or of lost ranks."""
    about_argus = ("ArgusRankMissing", "ArgusL3WorkerBehind", "ArgusRulesBehind")
    return [one for one in told if one.training_job == job and one.alertname not in about_argus]
