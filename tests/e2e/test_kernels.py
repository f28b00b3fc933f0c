"""GPU kernels of real traces, from the wire to L3's verdict back in Prometheus and the alert it raises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_simulator.stack import Stack
from argus_simulator.stack.ports import free_port
from argus_simulator.stack.processes import Child
from e2e.conftest import accusations, delivered

pytestmark = [pytest.mark.servers, pytest.mark.traces]

SLOW_RANK = "5"
EXPORTER = str(Path(sys.executable).with_name("argus-exporter"))


def replay(stack: Stack, job: str, files: list[Path], *options: str):
    """Play the files to the stack's exporter until stopped."""
    command = [EXPORTER, "replay", "--serve", "--to-socket", str(stack.socket), "--job", job, "--loop"]
    return stack.start_child(job, [*command, *options, *map(str, files)])


def resnet(traces: Path) -> list[Path]:
    return sorted((traces / "resnet50_kineto").glob("worker0.16231*.json.gz"))[:1]


def anomalies(stack: Stack, job: str) -> set[str]:
    """Ranks that L3 ever called a culprit."""
    query = f'max_over_time(argus_l3_anomaly{{training_job="{job}",verdict="culprit"}}[1h])'
    return {labels["rank"] for labels, _ in stack.query(query)}


def judged_windows(stack: Stack, job: str) -> float:
    """How many windows rank 0 has published while the worker was scoring the job."""
    scored = stack.query(f'argus_l3_rank_shift_ratio{{training_job="{job}",rank="0"}}')
    step = f'argus_kernel_window_last_step{{training_job="{job}",rank="0"}}'
    return sum(value for _, value in stack.query(f"changes({step}[1h])")) if scored else 0


@pytest.fixture(scope="module")
def replays(stack: Stack, traces: Path) -> Iterator[dict[str, Child]]:
    """Two jobs beside each other, of eight ranks whose windows are drawn anew from the real kernels."""
    often = ("--resample-ranks", "8", "--seed")
    slow = (*often, "2", "--stretch", f"{SLOW_RANK}=1.2")
    running = {
        "healthy": replay(stack, "healthy", resnet(traces), *often, "1"),
        "degraded": replay(stack, "degraded", resnet(traces), *slow),
    }
    yield running
    for job in running.values():
        job.stop()


def test_a_rank_whose_compute_kernels_last_longer_is_flagged_alone(stack: Stack, replays: dict[str, Child]):
    """Stretched by 1.2 (injected into a real trace): verdict by remote write, finding, page, route."""
    stack.wait_for(
        lambda: (
            ("/operations/page", SLOW_RANK) in delivered(stack, "degraded", "ArgusStragglerRank")
            or replays["degraded"].check()
        ),
        150,
        "the page",
    )
    assert anomalies(stack, "degraded") == {SLOW_RANK}
    assert accusations(stack, "degraded") == {("ArgusStragglerRank", SLOW_RANK, "gpu-compute")}
    assert {path for path, _ in delivered(stack, "degraded", "ArgusStragglerRank")} <= {
        "/operations/ticket",
        "/operations/page",
    }
    ratios = stack.query(f'argus_l3_rank_shift_ratio{{training_job="degraded",rank="{SLOW_RANK}"}}')
    assert [value for _, value in ratios] == [pytest.approx(0.2, abs=0.03)]


def test_a_healthy_fleet_resampled_from_a_real_trace_is_not_flagged(stack: Stack, replays: dict[str, Child]):
    """Every rank is scored, none is named; nor was any while that of the other job was paged."""
    stack.wait_for(
        lambda: judged_windows(stack, "healthy") >= 6 or replays["healthy"].check(), 150, "six judged windows"
    )
    scores = stack.query('count(count by (rank) (argus_l3_rank_shift_ratio{training_job="healthy"}))')
    assert [value for _, value in scores] == [8]
    assert anomalies(stack, "healthy") == set()
    assert accusations(stack, "healthy") == set()


def test_one_short_step_of_eight_real_ranks_is_too_little_to_judge(stack: Stack, traces: Path):
    """DLRM, imported whole: every rank's window is there; the worker abstains, says why, and names nobody."""
    address = f"127.0.0.1:{free_port()}"
    files = sorted((traces / "dlrm_kineto").glob("*.json.gz"))
    options = ("--serve", "--speed", "0", "--job", "dlrm", "--web.listen-address", address)
    job = stack.start_child("dlrm", [EXPORTER, "replay", *options, *map(str, files)])
    try:
        stack.scrape(address)
        published = 'count(count by (rank) (argus_kernel_mode_events{training_job="dlrm"}))'
        stack.wait_for(
            lambda: [v for _, v in stack.query(published)] == [8] or job.check(), 60, "eight windows"
        )
        why = 'argus_l3_abstain{training_job="dlrm",reason="too-few-events"}'
        stack.wait_for(lambda: stack.query(why) or job.check(), 60, "an abstention")
        assert anomalies(stack, "dlrm") == set()
    finally:
        job.stop()
