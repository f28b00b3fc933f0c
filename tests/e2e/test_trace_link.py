"""From an alert to the timeline that explains it: the key on the alert, the page, and what the traces say."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_simulator.demo.plan import TRAINING_JOB, plan
from argus_simulator.demo.training import SimulatedTraining
from argus_simulator.stack import Stack

pytestmark = pytest.mark.servers

SEED = 7
WORKER = str(Path(sys.executable).with_name("argus-l3-worker"))


@pytest.fixture(scope="module")
def accused(stack: Stack) -> Iterator[str]:
    """The rank of a simulated job that was paged about."""
    job = SimulatedTraining(plan(SEED))
    job.start(stack)
    try:
        rank = str(job.truth.rank)
        paged = f'ALERTS{{training_job="{TRAINING_JOB}",rank="{rank}",severity="page",alertstate="firing"}}'
        stack.wait_for(lambda: job.check() or stack.query(paged), 120, "the page")
        yield rank
    finally:
        job.stop()


@pytest.fixture(scope="module")
def keys(stack: Stack, accused: str) -> dict[str, str]:
    """Key by rank, of the suspect and of its healthy peer."""

    def both() -> dict[str, str]:
        found = stack.query(f'argus_l3_trace_info{{training_job="{TRAINING_JOB}"}}')
        known = {labels["rank"]: labels["trace_key"] for labels, _ in found}
        return known if accused in known and len(known) >= 2 else {}

    return stack.wait_for(both, 60, "the keys of traces")


def fetch(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def test_the_alert_carries_the_key_of_the_trace_that_explains_it(
    stack: Stack, accused: str, keys: dict[str, str]
) -> None:
    """Not the prefix of the day: the very window."""

    def told() -> set[str]:
        return {
            alert.annotations["trace_key"]
            for alert in stack.alerts()
            if alert.labels.get("rank") == accused and alert.state == "firing"
        } & {keys[accused]}

    assert stack.wait_for(told, 30, "the key on the alert")


def test_the_worker_serves_the_trace_and_a_page_that_opens_it(
    stack: Stack, accused: str, keys: dict[str, str]
) -> None:
    """Once the exporter has put it into the store; ranges work, as the Perfetto UI and curl use them."""
    assert stack.l3_worker is not None
    url = f"{stack.l3_worker.url}/traces/{keys[accused]}"
    status, body = stack.wait_for(lambda: (a := fetch(url))[0] == 200 and a, 60, "the trace in the store")
    assert fetch(url, Range="bytes=10-19") == (206, body[10:20])
    status, page = fetch(f"{url}?ui=1")
    assert status == 200
    assert b"ui.perfetto.dev" in page


def test_the_traces_name_the_rank(stack: Stack, accused: str, keys: dict[str, str]) -> None:
    """`argus-l3-worker trace` over suspect and peers comes to the same culprit as the rules."""
    store = stack.trace_store
    stack.wait_for(lambda: all((store / key).is_file() for key in keys.values()), 60, "all traces")
    command = [WORKER, "trace", f"--config={stack.worker_config}", "--json", *keys.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert findings, done.stdout
    assert {str(rank) for rank in findings[0]["ranks"]} == {accused}
