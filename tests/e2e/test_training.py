"""Real training, watched from outside: an unmodified DDP script, and the page that names its slow rank."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest

from argus_simulator.stack import Stack
from argus_simulator.stack.pace import SECOND_S
from e2e.conftest import accusations, delivered

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed (make torch)"
    ),
]

SCRIPT = Path(__file__).resolve().parent.parent / "training" / "train.py"
RANKS = 4
SLOW_RANK = "2"
WATCHED_S = 45
"""So long a healthy job is watched: its first windows, and longer than what must last before a page."""


def train(stack: Stack, job: str, **environment: str):
    """Four processes under torchrun, each on one thread; `job` is what they are called in the metrics."""
    exporter = str(Path(sys.executable).with_name("argus-exporter"))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    return stack.start_child(
        job,
        [exporter, "run", "--socket", str(stack.socket), "--job", job, "--", *launcher, str(SCRIPT)],
        environment={"OMP_NUM_THREADS": "1", "ARGUS_FLUSH_MILLISECONDS": f"{1000 * SECOND_S:.0f}"}
        | environment,
        orderly_death=True,
    )


def steps(stack: Stack, job: str) -> float:
    """Iterations that every rank has finished."""
    values = [value for _, value in stack.query(f'argus_iteration_last_step{{training_job="{job}"}}')]
    return min(values) if len(values) == RANKS else 0


def test_a_healthy_run_accuses_nobody(stack: Stack):
    """All phases of all ranks are seen, for longer than it takes to name a rank, and none is named."""
    job = train(stack, "healthy")
    try:
        stack.wait_for(lambda: steps(stack, "healthy") > 0 or job.check(), 180, "the first step")
        until = time.monotonic() + WATCHED_S
        stack.wait_for(lambda: time.monotonic() > until or job.check(), 2 * WATCHED_S, "what would be said")
        phases = stack.query('count by (phase) (argus_phase_duration_seconds_count{training_job="healthy"})')
        seen = {labels["phase"]: value for labels, value in phases}
        assert {
            phase: seen.get(phase) for phase in ("data", "forward", "backward", "optimizer")
        } == dict.fromkeys(("data", "forward", "backward", "optimizer"), RANKS)
        assert accusations(stack, "healthy") == set()
    finally:
        job.stop()


def test_a_rank_slowed_in_forward_is_paged_to_operations_and_nobody_else_is(stack: Stack, tmp_path: Path):
    """From the step at which it slows down to the page: that rank, that cause, that team."""
    slow = tmp_path / "slow"
    job = train(stack, "degraded", SLOW_RANK=SLOW_RANK, SLOW_FACTOR="3", SLOW_FILE=str(slow))
    try:
        stack.wait_for(lambda: steps(stack, "degraded") >= 60 or job.check(), 180, "a healthy part")
        assert accusations(stack, "degraded") == set()
        slow.touch()
        page = ("/operations/page", SLOW_RANK)
        stack.wait_for(
            lambda: page in delivered(stack, "degraded", "ArgusStragglerRank") or job.check(), 90, "the page"
        )
        after = steps(stack, "degraded")
        stack.wait_for(lambda: steps(stack, "degraded") >= after + 40 or job.check(), 90, "later accusations")
        assert accusations(stack, "degraded") == {("ArgusStragglerRank", SLOW_RANK, "gpu-compute")}
    finally:
        job.stop()
