"""The L3 worker in virtual time: it judges what was scraped, and rules read what it wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from argus_simulator.fast_play import worker
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.history import History, record
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import Storage, labels_of_text
from argus_simulator.lab import load_scenario

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.servers, pytest.mark.slow]
BEGIN_MS = 1_700_000_000_000
_STEPS, _STEP_S = 240, 4.0


def played(row: str) -> tuple[History, Sequence[int]]:
    """With kernels, and whose fault it is."""
    scenario = load_scenario(f"faults/{row}", topology="dense", magnitude="high", seed=0)
    scenario = scenario.compressed(scenario.step_seconds / _STEP_S)
    [(name, fault)] = scenario.faults.items()
    scenario = dataclasses.replace(
        scenario,
        faults={name: dataclasses.replace(fault, onset_step=15)},
        model=dataclasses.replace(scenario.model, signals="kernels"),
    )
    return record(scenario, "a", BEGIN_MS * 1_000_000, 2000.0, steps=_STEPS), fault.ranks


def test_a_method_that_does_not_see_it_judges_the_same_job_healthy(tmp_path: Path):
    """EROICA's begins at +40 % of a share."""
    job, slow = played("kernel-mode-shift")
    with Storage(tmp_path) as storage:
        storage.write(job.series)
        assert worker.judge(storage.url, BEGIN_MS, job.end_ms, "eroica") == []
        assert storage.at('max_over_time(argus_l3_anomaly{verdict="culprit"}[1h])', job.end_ms) == {}
    assert slow


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        pytest.param("kernel-mode-shift", "gpu-compute", id="one shape of a kernel: the worker alone"),
        pytest.param("pcie-degraded", "gpu-transfer", id="copies: their anatomy, and the worker too"),
    ],
)
def test_the_slow_ranks_are_found_by_their_cause_and_nobody_else_is(row: str, cause: str, tmp_path: Path):
    job, ranks = played(row)
    with Storage(tmp_path) as storage:
        storage.write(job.series)
        assert worker.judge(storage.url, BEGIN_MS, job.end_ms) == []
        Evaluator(storage, read_rules(sorted((ROOT / "rules").glob("*.yaml")))).advance(BEGIN_MS, job.end_ms)

        last = storage.over("argus_l3_last_success_timestamp_seconds", range(BEGIN_MS, job.end_ms, 60_000))
        [(_, stamps)] = last.values()
        assert set(np.diff(stamps)) == {60.0}

        def found(series: str) -> set[tuple[str, str]]:
            """At any time of the last quarter of an hour."""
            query = f"max_over_time({series}[15m]) > 0"
            results = [labels_of_text(text) for text in storage.at(query, job.end_ms)]
            return {(one["rank"], one["cause"]) for one in results}

        slow = {(str(rank), cause) for rank in ranks}
        assert found('argus_l3_anomaly{verdict="culprit"}') == slow
        # What is told: a finding of 15 s, by chance, is nothing yet.
        assert found('rank:argus_decision:lost_ratio{level="L2"}') == slow
