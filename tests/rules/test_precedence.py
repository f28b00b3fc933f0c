"""The table of causes decides who is named, whatever came first: rules against a plain reading of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import rjsonnet

from rules.promtool import complaints, needs_promtool, rules_of
from rules.scenario import Scenario, at

pytestmark = needs_promtool
ROOT = Path(__file__).resolve().parents[2]
TABLE: list[dict[str, Any]] = json.loads(rjsonnet.evaluate_file(str(ROOT / "jsonnet" / "causes.libsonnet")))
ROWS = [row for row in TABLE if row["as"] in ("context", "culprit")]
"""What evidence goes through."""
PHASES = {
    "gpu-compute": ("backward", "forward"),
    "collective-late": ("all_gather", "all_reduce"),
    "data-input": ("data",),
}
VIEWS = {"collective-late": ("", "kernel"), "kept-waiting": ("", "kernel")}
"""A collective is there as its span and as its kernel, and costs what the larger says."""
ASKED_MINUTES = 20
ONSETS = 40
"""Samples within which evidence begins: ten minutes."""


class About(NamedTuple):
    """What evidence speaks of; of a job as a whole all but the cause are empty."""

    cause: str
    rank: str = ""
    phase: str = ""
    group: str = ""
    set: str = ""
    view: str = ""


Evidence = Mapping[About, float]


def some_evidence(generator: random.Random) -> Evidence:
    """Two to seven kinds of evidence on four ranks; each costs between 1 and 40 %."""
    found: dict[About, float] = {}
    families: dict[str, float] = {}
    # What is told while nothing else is asks what is told: tests/rules/test_alerts.py.
    rows = [row for row in ROWS if row["as"] not in ("hang", "program") and not row.get("info")]
    for row in generator.choices(rows, k=generator.randint(2, 7)):
        cause, rank = row["id"], str(generator.randrange(4))
        cost = round(generator.uniform(0.01, 0.4), 4)
        if "family" in row:  # explanations of one loss
            found[About(cause)] = families.setdefault(row["family"], cost)
        elif row.get("level") == "L1" or cause == "host-alloc":
            found[About(cause)] = cost
        elif cause == "link-slow":
            for group in generator.sample(("dp", "dp:1", "dp:2"), generator.randint(1, 3)):
                found[About(cause, phase="all_reduce", group=group, view=f"/{group}")] = round(
                    generator.uniform(0.01, 0.4), 4
                )
        elif cause == "suspect-set":
            for member in "23":
                found[About(cause, member, "forward", "dp", "tp:dp1")] = round(cost * 0.9 ** int(member), 4)
        else:
            choice = PHASES.get(cause, ("forward",))
            for phase in generator.sample(choice, generator.randint(1, len(choice))):
                for view in VIEWS.get(cause, ("",)):
                    found[About(cause, rank, phase, "dp", view=view)] = round(generator.uniform(0.01, 0.4), 4)
    return found


def named(evidence: Evidence) -> dict[About, float]:
    """What the table leaves of the evidence, row after row."""
    left: dict[About, float] = {}
    for row in ROWS:
        for about, cost in evidence.items():
            if about.cause == row["id"] and not any(
                cost <= yields["factor"] * _largest(_of(yields, evidence, left), about, yields) * (1 + 1e-9)
                for yields in row["yields"]
            ):
                left[about] = cost
    contexts = {row["id"] for row in ROWS if row["as"] == "context"}
    return {about: cost for about, cost in left.items() if about.cause not in contexts}


def _of(yields: Mapping[str, Any], evidence: Evidence, left: Evidence) -> Evidence:
    """At the same rank evidence excuses, in the rest of the job who stands."""
    by = yields.get("by", "evidence" if yields["at"] == "rank" else "verdict")
    return evidence if by == "evidence" else left


def _largest(left: Evidence, about: About, yields: Mapping[str, Any]) -> float:
    """What the costliest of those to whom a row yields costs: the sum over a rank's phases, of one view."""
    costs: dict[tuple[str, ...], float] = {}
    for other, cost in left.items():
        if other.cause in yields["to"] and (yields["at"] == "job" or other.rank == about.rank):
            whose = other.cause, other.rank, other.set, other.view
            costs[whose] = costs.get(whose, 0.0) + cost
    return max(costs.values(), default=0.0)


def _labels(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in values.items() if value) + "}"


def _series(job: str, evidence: Evidence, generator: random.Random | None) -> Iterator[dict[str, str]]:
    for about, cost in evidence.items():
        absent = generator.randrange(ONSETS) if generator else 0
        labels = {"cluster": "c", "training_job": job, "detector": "d", **about._asdict()}
        before = f"_x{absent} " if absent else ""
        values = f"{before}{cost}x{ASKED_MINUTES * 4 + 20 - absent}"
        yield {"series": "rank:argus_evidence:lost_ratio" + _labels(labels), "values": values}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_evidence_appears_changes_no_verdict(seed: int) -> None:
    """Twenty sets of evidence, each in four orders: the same verdicts, and those of the table."""
    generator = random.Random(seed)
    series: list[dict[str, str]] = []
    expected: list[dict[str, Any]] = []
    for story in range(20):
        evidence = some_evidence(generator)
        for order in range(4):
            job = f"story{story}-{order}"
            series += _series(job, evidence, generator if order else None)
            expected += [
                {"labels": _labels({"cluster": "c", "training_job": job, **about._asdict()}), "value": cost}
                for about, cost in named(evidence).items()
            ]
    rules = ROOT / "rules"
    files = rules_of(rules / f"argus.{name}.rules.yaml" for name in ("decision", "history"))
    # The label `cause` of a verdict is what people read; the row is the cause of its evidence. Of a family it
    # is what the names of its rows begin with.
    asked = (
        'label_join(rank:argus_verdict:lost_ratio{row="history"}, "cause", "-", "row", "cause") '
        'or label_replace(rank:argus_verdict:lost_ratio{row!="history"}, "cause", "$1", "row", "(.+)")'
    )
    query = f"sum by (cluster, training_job, rank, phase, group, set, view, cause) ({asked})"
    moments = [f"{ASKED_MINUTES}m", f"{ASKED_MINUTES}m15s"]
    test = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [
            {"expr": query, "eval_time": moment, "exp_samples": expected} for moment in moments
        ],
    }
    assert not complaints(files | {"evaluation_interval": "5s", "tests": [test]})


@pytest.mark.parametrize(
    ("first", "samples", "stands", "is_explained"),
    [
        (8, 5, range(1, 36), ()),
        (8, 32, range(1, 15), range(16, 36)),
        (0, 40, (), range(1, 36)),  # who comes with it explains it at once
    ],
    ids=["for 75 s", "two minutes and more", "from the beginning"],
)
def test_what_a_job_loses_is_explained_later_only_by_what_lasts(
    first: int, samples: int, stands: Sequence[int], is_explained: Sequence[int]
) -> None:
    """Where the whole fabric is slow, a group is slower than the others for a minute by chance."""
    job = Scenario(("decision",), evaluation=5)
    job.add("rank:argus_evidence:lost_ratio", "0.1x40", cause="fabric", detector="transfer")
    link = (f"_x{first} " if first else "") + f"0.2x{samples - 1} stale"
    group = {"phase": "all_reduce", "group": "dp:1"}
    job.add("rank:argus_evidence:lost_ratio", link, cause="link-slow", detector="transfer", **group)
    fabric = 'max by (cause) (rank:argus_verdict:lost_ratio{cause="fabric"}) ^ 0'
    for sample in stands:
        job.expect(fabric, at(sample), {'{cause="fabric"}': 1.0})
    for sample in is_explained:
        job.expect(fabric, at(sample), {})
    job.run()
