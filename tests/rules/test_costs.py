"""What a finding costs: each loss once, of one rank one finding, and nothing that nobody knows."""

from __future__ import annotations

import pytest

from rules.promtool import complaints, rules_of
from rules.scenario import ROOT, STORIES, Scenario, at
from rules.test_history import RUN, SLOWER, TOLD, RunProfile, Runs

pytestmark = STORIES
SAMPLES = 80
PAGES = 'count by (severity) (ALERTS{alertname="ArgusStragglerRank", alertstate="firing"})'
EVIDENCE = "rank:argus_evidence:lost_ratio"


def a_job(*concerns: str, ranks: int = 8, evaluation: int = 5) -> Scenario:
    job = Scenario(concerns, evaluation=evaluation)
    job.ranks(range(ranks), SAMPLES)
    return job


def test_kernels_and_phases_of_a_rank_are_one_finding() -> None:
    """The worker sees it all the time; its phases stand out in 15 s of every minute."""
    job = a_job("job", "decision")
    job.add(EVIDENCE, f"0.1x{SAMPLES}", cause="kernel", rank=3, phase="all", detector="worker")
    now_and_then = " ".join("0.1 stale _ _" for _ in range(SAMPLES // 4))
    phase = {"phase": "forward", "group": "dp", "detector": "mean"}
    job.add(EVIDENCE, now_and_then, cause="gpu-compute", rank=3, **phase)
    job.expect(PAGES, "15m", {'{severity="page"}': 1})
    job.run()


def test_a_rank_that_is_seen_in_another_way_from_now_on_is_one_alert() -> None:
    job = a_job("job", "decision")
    job.add(EVIDENCE, "0.1x40 stale", cause="kernel", rank=3, phase="all", detector="worker")
    phase = {"phase": "forward", "group": "dp", "detector": "mean"}
    job.add(EVIDENCE, "_x20 0.1x40", cause="gpu-compute", rank=3, **phase)
    job.expect(PAGES, "7m", {'{severity="page"}': 1})
    job.run()


def test_uneven_work_costs_nothing_that_is_known() -> None:
    """How much less it would cost, spread evenly, nobody has measured."""
    job = a_job("job", "decision")
    job.add(EVIDENCE, f"0.4x{SAMPLES}", cause="work-uneven", detector="units")
    job.expect("job:argus_lost:ratio", "10m", {})
    job.expect("job:argus_lost_gpus:current", "10m", {})
    job.run()


def test_history_learns_from_jobs_whose_work_is_uneven() -> None:
    runs = Runs(evaluation_s=5)
    runs.model("m", RunProfile(), SLOWER)
    runs.add(EVIDENCE, f"0.06x{RUN} stale", training_job="m old", cause="work-uneven", detector="units")
    runs.expect('count(job:argus_signature:learned{signature="iteration"})', TOLD, {"{}": 1})
    names = ("job", "phases", "evidence", "regression", "history", "decision")
    rules = rules_of(ROOT / "rules" / f"argus.{name}.rules.yaml" for name in names)
    test = {"interval": "15s", "input_series": runs.inputs, "promql_expr_test": runs.expectations}
    said = complaints({**rules, "evaluation_interval": "5s", "tests": [test]})
    assert not said, said


@pytest.mark.parametrize("ranks", [2, 4])
def test_copies_cost_what_the_others_wait_for_them(ranks: int) -> None:
    """Also those of one of two, whose median is half-way between them."""
    job = a_job("job", "evidence", "decision", ranks=2 * ranks)
    for rank in range(2 * ranks):
        copies = 1.2 if rank == 0 else 0.0
        job.add("argus_rank_info", f"1x{SAMPLES}", rank=rank, role=f"pp{rank // ranks}", node=f"n{rank}")
        for part, seconds in (("copy", copies), ("compute", 15 - copies)):
            job.add("argus_iteration_gpu_seconds_total", f"0+{seconds}x{SAMPLES}", rank=rank, part=part)
    costs = "round(max by (rank, cause) (rank:argus_finding:lost_ratio), 0.001)"
    job.expect(costs, "10m", {'{rank="0", cause="gpu-transfer"}': 0.08})
    job.run()


def test_slow_kernels_of_one_stream_follow_one_another() -> None:
    """Six, each a quarter longer than it should be, in 5 % of the time."""
    job = a_job("job", "evidence", "decision", evaluation=15)
    found = {"cause": "gpu-compute", "verdict": "culprit", "team": "operations", "role": "all"}
    for number in range(6):
        kernel = {"rank": 3, "kernel": f"k{number}", "stream": "compute0"}
        job.add("argus_l3_anomaly", f"0.25x{SAMPLES}", **kernel, **found)
        job.add("argus_kernel_duration_seconds_total", f"0+0.75x{SAMPLES}", **kernel)
    costs = f"round(max by (rank, cause) ({EVIDENCE}), 0.001)"
    job.expect(costs, "10m", {'{rank="3", cause="kernel"}': 0.06})
    job.run()


@pytest.mark.parametrize(
    ("links", "each", "cause", "cost"), [(6, 0.03, "collective-late", 0.2), (30, 0.02, "regression", 0.4)]
)
def test_groups_with_slow_links_run_side_by_side(links: int, each: float, cause: str, cost: float) -> None:
    """Each explains what it costs; all of them do not explain the sum."""
    job = a_job("job", "decision")
    for number in range(links):
        group = f"dp:{number}"
        link = {"phase": "all_reduce", "group": group, "view": f"/{group}", "detector": "transfer"}
        job.add(EVIDENCE, f"{each}x{SAMPLES}", cause="link-slow", **link)
    who: dict[str, object] = {"rank": 3, "phase": "all_reduce", "group": "dp:7"}
    job.add(EVIDENCE, f"{cost}x{SAMPLES}", cause=cause, **(who if cause == "collective-late" else {}))
    job.expect(
        f'max by (row) (rank:argus_verdict:lost_ratio{{row="{cause}"}})', "10m", {f'{{row="{cause}"}}': cost}
    )
    job.run()


@pytest.mark.parametrize(("received", "lost"), [(0, 100), (1, 99)])
def test_lost_records_are_told_as_a_share_of_all(received: int, lost: int) -> None:
    """Also where none arrives."""
    job = Scenario(("health",))
    channel = {"rank": 0, "channel": "kernels"}
    job.add("argus_records_total", f"0+{15 * received}x{SAMPLES}", **channel)
    job.add("argus_records_dropped_total", f"0+{15 * lost}x{SAMPLES}", reason="source", **channel)
    job.expect(
        'ALERTS{alertname="ArgusRecordsDropped", alertstate="firing"} ^ 0',
        at(60),
        {
            '{alertname="ArgusRecordsDropped", alertstate="firing", training_job="a", channel="kernels", '
            'reason="source", severity="ticket", team="infrastructure", level="L1"}': 1,
        },
    )
    job.run()
