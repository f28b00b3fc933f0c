"""Truths, courses and deliveries for the tests of the score."""

from __future__ import annotations

from argus_simulator.lab import Finding, Truth
from argus_simulator.score.claims import claims_of
from argus_simulator.score.job_timeline import JobTimeline
from argus_simulator.score.judging import Judgement, judge
from argus_simulator.score.results import Result
from argus_simulator.score.scene import COMPRESSED, Pace
from argus_simulator.stack import Notification

JOB = "job-1"
STEP_S = 0.25
ONSET_STEP = 200
STEPS = 400
TIMELINE = JobTimeline(
    1000.0, 1000.0 + STEPS * STEP_S, [1000.0 + STEP_S * (step + 1) for step in range(STEPS)]
)
ONSET = TIMELINE.begins(ONSET_STEP)

SLOW = {"alertname": "ArgusStragglerRank", "cause": "gpu-compute", "team": "operations", "phase": "forward"}


def finding(
    ranks: tuple[int, ...] = (3,),
    scope: str = "ranks",
    causes: tuple[str, ...] = ("gpu-compute",),
    team: str = "operations",
    end_step: int | None = None,
) -> Finding:
    return Finding(("f",), scope, ranks, (), causes, (team,), "L2", ONSET_STEP, end_step)  # type: ignore[arg-type]


def truth(*findings: Finding, control: bool = False, allowed: tuple[str, ...] = ()) -> Truth:
    return Truth("row", "", "high", control, allowed, "", findings)


def said(
    labels: dict[str, str],
    severity: str = "page",
    at: float = ONSET + 3,
    status: str = "firing",
    job: str = JOB,
) -> Notification:
    """A delivery of an alert that fires since `at`."""
    labels = {**labels, "severity": severity, "training_job": job}
    return Notification("/x", at + 1, status, labels, {}, at, at + 2 if status == "resolved" else None)


GROUPS = {"tp:dp0.pp0": frozenset({0, 1, 2, 3})}
SETS = {"dp.tp:pp0": frozenset({0, 1, 2, 3})}


def members(labels: dict[str, str]) -> frozenset[int]:
    """Sets and groups by their labels, the latter where the alert accuses its group."""
    if "set" in labels:
        return SETS[labels["set"]]
    link = labels.get("alertname") == "ArgusCollectiveSlowLink"
    return GROUPS[labels["group"]] if link else frozenset()


def judged(
    of: Truth, *delivered: Notification, timeline: JobTimeline = TIMELINE, pace: Pace = COMPRESSED
) -> Judgement:
    return judge(of, timeline, claims_of(JOB, delivered, members), pace)


def result(
    judgement: Judgement,
    *,
    row: str = "row",
    scenario: str = "row mid",
    kind: str = "high",
    expected: tuple[int, ...] = (3,),
    seed: int = 0,
) -> Result:
    """A line of the score."""
    return Result(
        row, scenario, seed, kind, "", expected, ("gpu-compute",), ("operations",), "L2",
        0.2, 0.03, 400, 0.1, 0, 0.01, 0.02, judgement, {"z > 3": (3,)},
    )  # type: ignore[arg-type]  # fmt: skip
