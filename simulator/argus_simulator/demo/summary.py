"""What a demo found, in a few lines for a person."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from argus_simulator.demo.story import Outcome
from argus_simulator.demo.training import Training
from argus_simulator.demo.truth import Accusation
from argus_simulator.demo.verdict import accusation
from argus_simulator.stack import Stack
from argus_simulator.stack.prometheus import PrometheusApi
from argus_simulator.stack.repository import program

_EXACT: Final = 1e-6
_SETTLED_S: Final = 2.0
"""What was evaluated up to now may be stored a moment later."""


def lines(outcome: Outcome, stack: Stack, training: Training) -> Iterator[str]:
    """The result, the truth, and where to look further."""
    expected = training.truth.expected
    yield ""
    if outcome.page is None:
        yield f"Not found: no page named rank {expected.rank}."
    else:
        yield f"Found: rank {expected.rank} is slow in phase {training.truth.phase}."
        yield f"  who mends it  team {expected.team}, paged by {expected.alert} on {outcome.page.path}"
        yield f"  how fast      {_how_fast(outcome, training)}"
        yield ""
        yield from _card(stack, outcome.page.labels["training_job"])
        yield ""
    wrong = {*outcome.early, *outcome.verdict.found} - {expected}
    yield from _wrong(wrong, stack, training) if wrong else ("  nobody else was accused",)
    yield f"Truth: {training.truth_text}."
    yield ""
    yield f"Prometheus    {stack.prometheus.url}/alerts"
    yield f"Alertmanager  {stack.alertmanager.url}"
    yield f"exporter      {stack.exporter.url}/metrics"


def _card(stack: Stack, training_job: str) -> Iterator[str]:
    """What whoever is paged would ask."""
    traces = [f"--traces-url={stack.l3_worker.url}"] if stack.l3_worker is not None else []
    asked = [f"--prometheus.url={stack.prometheus.url}", f"--job={training_job}", *traces]
    told = subprocess.run(
        [program("argus-l3-worker"), "explain", *asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    yield f"$ argus-l3-worker explain {' '.join(asked)}"
    yield from (told.stdout or told.stderr).splitlines()
    yield _evidence(stack, asked)


def _evidence(stack: Stack, asked: Sequence[str]) -> str:
    """How many numbers of a card its own queries give again, to 1e-6: nobody need believe it."""
    settled = f"--time={time.time() - _SETTLED_S:.0f}"
    told = subprocess.run(
        [program("argus-l3-worker"), "explain", "--json", settled, *asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    evidence = json.loads(told.stdout)["evidence"] if told.stdout else []
    right, prometheus = 0, PrometheusApi(stack.prometheus.url)
    for one in evidence:
        again = [value for _, value in prometheus.query(one["query"], at=one["time"])]
        right += len(again) == 1 and abs(again[0] - one["value"]) <= _EXACT * max(1.0, abs(one["value"]))
    return f"evidence: {right} of {len(evidence)} numbers are given again by their queries"


def _how_fast(outcome: Outcome, training: Training) -> str:
    onset = training.onset() or 0.0
    return ", ".join(
        f"{severity} delivered {notification.received - onset:.1f} s "
        f"({training.steps_since_onset(notification.received)} steps) after the fault began"
        for severity, notification in (("info", outcome.info), ("page", outcome.page))
        if notification is not None
    )


def _wrong(wrong: Collection[Accusation], stack: Stack, training: Training) -> Iterator[str]:
    onset = training.onset() or 0.0
    for made in sorted(wrong, key=str):
        who = " ".join(part for part in (made.alert, made.rank and f"rank {made.rank}", made.cause) if part)
        delivered = ", ".join(
            f"{one.labels.get('severity')} {one.status} at {one.received - onset:+.1f} s"
            for one in stack.notifications()
            if accusation(one) == made
        )
        yield f"  accused wrongly: {who} ({delivered or 'not delivered'})"
