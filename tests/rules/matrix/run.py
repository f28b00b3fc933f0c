"""Worlds and boundaries as promtool tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from long_forms import LONG
from rules.matrix.boundaries import Boundary
from rules.matrix.boundary_jobs import AT
from rules.matrix.jobs import STEP
from rules.matrix.world import Case, Row, Says, World, rows_of
from rules.promtool import rules_of
from rules.scenario import CHAIN, ROOT

DISTURBED = (Case.RESTART, Case.GAP, Case.TWO_SCRAPERS, Case.TWO_INSTANCES)
"""Whatever happens to the observation, no alert fires that the undisturbed job does not have."""


def rounded(value: float) -> float:
    """As PromQL's round(value, 1e-6)."""
    return math.floor(value * 1e6 + 0.5) / 1e6


def selected(says: Says, training_job: str) -> str:
    """Its series of one job."""
    name, matchers = says.selector[:-1].split("{", 1)
    return name + "{" + ", ".join(part for part in (f'training_job="{training_job}"', matchers) if part) + "}"


def expectation(says: Says, training_job: str, at: int, row: Row) -> dict[str, Any]:
    names = says.by.split()
    samples = []
    for key, value in row.items():
        pairs = zip(names, key.split() if key else [], strict=True)
        labels = ", ".join(f'{name}="{text}"' for name, text in pairs if text != "-")
        samples.append({"labels": f"{{{labels}}}", "value": rounded(value)})
    return {
        "expr": f"round(max by ({', '.join(names)}) ({selected(says, training_job)}), 1e-6)",
        "eval_time": f"{at * STEP}s",
        "exp_samples": samples,
    }


def silences(world: World) -> dict[str, str]:
    """By job, a query without an answer at any time: nobody is told of a disturbance, or of a healthy job."""

    def firing(training_job: str, matchers: str = "") -> str:
        return f'ALERTS{{alertstate="firing", training_job="{training_job}"{matchers}}}'

    quiet = list(world.quiet_jobs())
    if world.healthy:
        quiet += [Case.SILENT.value, Case.ZERO_DEVIATION.value]
    queries = {training_job: firing(training_job) for training_job in quiet}
    for case in DISTURBED:
        tolerated = "|".join(sorted(alert for disturbance, alert in world.tolerates if disturbance is case))
        added = firing(case.value, f', alertname!~"{tolerated}"' if tolerated else "")
        queries[case.value] = f"{added} unless ignoring (training_job) {firing(Case.FIRING.value)}"
    return queries


def silence(query: str, sample: int) -> dict[str, Any]:
    return {"expr": query, "eval_time": f"{sample * STEP}s", "exp_samples": []}


def rule_files(concerns: Sequence[str]) -> dict[str, Any]:
    """The files of these concerns, of the job and of the alerts, and the order of their groups."""
    names = [name for name in CHAIN if name in {"job", *concerns}]
    files = [f"argus.{name}.rules.yaml" for name in names] + ["argus.alerts.yaml"]
    return rules_of(ROOT / "rules" / file for file in files)


def document(world: World) -> dict[str, Any]:
    """The promtool test of a world."""
    series = {case.value: made for case, made in world.jobs().items()} | world.quiet_jobs()
    reference = Case.FIRING.value
    others = [name for name in series if name != reference]
    batches = [others[first : first + world.batch] for first in range(0, len(others), world.batch)]
    return {
        **rule_files(world.concerns),
        "short_scan": not (LONG or world.long_scan),
        "evaluation_interval": f"{world.evaluation}s",
        "tests": [
            {
                "interval": f"{STEP}s",
                "input_series": [one.text(name) for name in (reference, *batch) for one in series[name]],
                "promql_expr_test": asked_of(world, {reference, *batch}),
            }
            for batch in batches
        ],
    }


def asked_of(world: World, training_jobs: set[str]) -> list[dict[str, Any]]:
    """Expectations about some of the world's jobs."""
    asked = [
        expectation(says, case.value, world.at, row)
        for says in world.says
        for case in Case
        if case.value in training_jobs and (row := rows_of(says, case)) is not None
    ]
    minutes = range(0, world.at + 1, 60 // STEP)
    return asked + [
        silence(query, minute)
        for training_job, query in silences(world).items()
        if training_job in training_jobs
        for minute in minutes
    ]


def boundary_document(boundary: Boundary, concerns: Sequence[str]) -> dict[str, Any]:
    """Both sides of a boundary, as a promtool test."""
    series: list[dict[str, str]] = []
    asked: list[dict[str, Any]] = []
    for side, value in (("below", boundary.below), ("above", boundary.above)):
        series += [one.text(side) for one in boundary.build(value).series]
        asked += [
            {
                "expr": f"count({selected(says, side)}) ^ 0",
                "eval_time": f"{AT * STEP}s",
                "exp_samples": [{"labels": "{}", "value": 1}] if side == "above" else [],
            }
            for says in boundary.speaks
        ]
    test = {"interval": f"{STEP}s", "input_series": series, "promql_expr_test": asked}
    return {
        **rule_files(concerns),
        "short_scan": not LONG,
        "evaluation_interval": f"{STEP}s",
        "tests": [test],
    }
