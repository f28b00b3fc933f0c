"""The report on a job, from what rules and worker have written to a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from bench.servers import PrometheusServer, VictoriaMetricsServer

from argus_core.causes import HANGS
from argus_l3_worker.cli import main
from argus_l3_worker.commands.explain import RUNBOOK_URL
from argus_l3_worker.reports.costs import STALLED
from argus_l3_worker.reports.questions import page_of, table
from l3_worker.backends import Backend
from l3_worker.stories import DAY, HOUR, Story

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.servers


Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def story(prometheus: PrometheusServer) -> Story:
    return Story(prometheus)


def a_slow_gpu(story: Story) -> None:
    """Half an hour ago rank 3 on host1 became 20 % slower, and with it the job."""
    for rank in range(8):
        story.tell("argus_rank_info", 1.0, rank=str(rank), node=f"host{rank // 2}", role="pp0")
    story.tell(
        "argus_iteration_duration_seconds_sum",
        lambda back: 5000.0 + back + 0.2 * max(back + 1800, 0),
        rank="0",
    )
    story.tell("argus_iteration_duration_seconds_count", lambda back: 5000.0 + back, rank="0")
    story.tell("job:argus_iteration:class", 1.0, -HOUR, -1800, **{"class": "stable"})
    story.tell("job:argus_iteration:class", 1.0, -1700, 0, **{"class": "regression"})
    story.tell("job:argus_iteration:regression_ratio", 1.2, -1695, 0, rank="0")
    story.tell("rank:argus_evidence:lost_ratio", 1 / 6, -1695, 0, cause="regression", detector="change")
    finding = {"rank": "3", "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
    story.tell("rank:argus_finding:lost_ratio", 0.17, -1605, 0, **finding)
    for phase, share in (("forward", 0.12), ("backward", 0.05)):
        part = {**finding, "row": "gpu-compute", "phase": phase, "group": "dp", "verdict": "culprit"}
        story.tell("rank:argus_verdict:lost_ratio", share, -1605, 0, **part)
    story.tell("rank:argus_verdict:active", 1.0, -1605, 0, **{**finding, "verdict": "culprit"})
    story.tell("rank:argus_decision:lost_ratio", 0.17, -1605, -1455, severity="info", **finding)
    story.tell("rank:argus_decision:lost_ratio", 0.17, -1440, 0, severity="page", **finding)
    excused = {"cause": "collective-late", "by": "gpu-compute", "by_rank": "3", "at": "job", "rule": "2"}
    for rank, end in (("4", -600), ("6", 0), ("7", 0)):
        story.tell("rank:argus_exclusion:lost_ratio", 0.17, -1605, end, rank=rank, phase="dp-sync", **excused)
    abstains = {"cause": "coverage", "verdict": "abstain", "team": "none", "level": "L2"}
    story.tell("rank:argus_verdict:active", 1.0, -300, 0, phase="optimizer", group="dp", **abstains)
    anomaly = {"rank": "3", "cause": "gpu-compute", "team": "operations", "verdict": "culprit"}
    story.tell("argus_l3_anomaly", 0.2, -1500, 0, kernel="all", stream="all", worker="a", **anomaly)
    story.tell("argus_l3_anomaly", 0.21, -1400, 0, kernel="all", stream="all", worker="b", **anomaly)
    for rank in range(8):
        w1, kernel = (2e-4 if rank == 3 else 3e-5), {"kernel": "gemm 64x64", "stream": "compute0"}
        story.tell("argus_l3_kernel_w1_seconds", w1, -300, 0, rank=str(rank), worker="a", **kernel)
    story.tell(
        "argus_l3_trace_info",
        1.0,
        -900,
        0,
        rank="3",
        trace_key="llm/2026-11-21/3/w.perfetto-trace",
        suspect="true",
    )
    story.tell("job:argus_ranks:count", 8.0)
    story.tell("ALERTS", 1.0, -1500, 0, alertname="ArgusStragglerRank", alertstate="firing")
    story.write()


def report(story: Story, capsys: Capsys, *arguments: str) -> str:
    common = ["--prometheus.url", story.server.url, "--training-job", "llm", "--time", str(story.end)]
    assert main(["diagnose", *common, "--since", "1h", *arguments]) == 0
    return capsys.readouterr().out


def test_a_slow_gpu_from_the_iteration_to_the_trace(story: Story, tmp_path: Path, capsys: Capsys) -> None:
    """Class and beginning of the slowdown, who, where, what it cost, what to do, and where to look."""
    a_slow_gpu(story)
    page = tmp_path / "report.html"
    traces = ("--traces-url", "http://l3:9878/")
    found = json.loads(report(story, capsys, "--json", "--html", str(page), *traces))
    assert found["iteration_class"] == "regression"
    assert found["farthest"] == ["3", "gemm 64x64", 2e-4]
    (accused,) = found["subjects"]
    l2, l3 = accused["accusations"]
    assert (l2["rank"], l2["level"], l2["lost"], l2["active"]) == ("3", "L2", 0.17, True)
    assert (l3["rank"], l3["level"], l3["lost"], l3["active"]) == ("3", "L3", None, True)
    hours = pytest.approx(0.17 * 8 * 1605 / HOUR, rel=0.02)
    assert (found["costs"]["gpu_hours"], found["costs"]["by_cause"]) == (hours, {"gpu-compute": hours})
    (card,) = found["cards"]
    assert card["cost"] == {
        "lost_ratio": 0.17,
        "lost_gpus": pytest.approx(0.17 * 8),
        "gpus": 8.0,
        "gpu_hours": hours,
    }
    assert card["subject"]["nodes"] == ["host1"]
    assert [(one["who"], one["by"]) for one in card["excluded"]] == [
        ("rank 6", "gpu-compute of rank 3"),
        ("rank 7", "gpu-compute of rank 3"),
    ]
    assert [one["value"] for one in card["evidence"] if one["id"] == "more.kernels"] == [0.21]
    assert found["alerts"] == ["ArgusStragglerRank"]
    assert card["links"]["runbook"].endswith("ArgusStragglerRank.md")
    assert card["links"]["trace"] == "http://l3:9878/traces/llm/2026-11-21/3/w.perfetto-trace?ui=1"
    html = page.read_text()
    assert html.count("<polyline") == 2
    assert "<script" not in html and 'ArgusStragglerRank.md">' in html
    assert '<a href="http://l3:9878/traces/llm/2026-11-21/3/w.perfetto-trace?ui=1">' in html


def test_the_text_can_be_read_to_somebody(story: Story, capsys: Capsys) -> None:
    """The same story in sentences."""
    a_slow_gpu(story)
    said = report(story, capsys)
    for part in (
        "8 ranks", "iteration: regression",
        "[page] llm: rank 3 on host1 computes slowly; 17% of the time lost",
        "cost     17% of the time, 1.4 of 8 GPUs, so far 0.61 GPU-hours", "its kernels +21%",
        "also seen: rank 6 comes late to collectives (explained by gpu-compute of rank 3) and 1 more",
        "not judged now: too few ranks are heard: optimizer of dp",
        "cost: 0.61 GPU-hours of the whole job; by cause gpu-compute 0.61",
        "look     https://", "argus-l3-worker trace llm/",
    ):  # fmt: skip
        assert part in said, said


def test_a_slow_link_is_one_subject_of_rules_and_worker(story: Story, capsys: Capsys) -> None:
    """A group that loses in two phases, and in a kernel: it stands there once, both levels below."""
    for rank in range(16):
        labels = {"rank": str(rank), "node": f"host{rank // 4}", "role": "pp0.tp0", "pp": "0", "tp": "0"}
        story.tell("argus_rank_info", 1.0, dp=str(rank), ep=str(rank % 8), **labels)
    link = {"cause": "link-slow", "team": "operations"}
    finding = {**link, "level": "L2", "group": "edp:pp0.tp0.ep7"}
    story.tell("rank:argus_finding:lost_ratio", 0.12, -600, 0, most="page", **finding)
    for phase, share in (("reduce_scatter", 0.08), ("all_gather", 0.04)):
        part = {**finding, "row": "link-slow", "phase": phase, "verdict": "culprit"}
        story.tell("rank:argus_verdict:lost_ratio", share, -600, 0, **part)
    where = {"role": "pp0.tp0", "coordinate": "ep", "value": "7", "stream": "nccl:edp"}
    story.tell("argus_l3_group_shift", 1.4, -300, 0, kernel="ncclDevKernel_ReduceScatter", **where, **link)
    story.tell("job:argus_ranks:count", 16.0)
    story.write()
    said = report(story, capsys)
    for part in (
        "group edp:pp0.tp0.ep7 has a slow link; 12% of the time lost",
        "who      ranks 7 (host1), 15 (host3)",
        "cost     12% of the time, 1.9 of 16 GPUs, so far 0.33 GPU-hours",
        "ArgusCollectiveSlowLink.md",
    ):
        assert part in said, said
    assert said.count("\nid ") == 1


def test_of_a_set_one_rank_is_meant(story: Story, capsys: Capsys) -> None:
    """Ranks that wait for one another within a phase: all are listed, and what they cost together once."""
    for rank in range(8):
        labels = {"rank": str(rank), "node": f"host{rank // 4}", "role": f"tp{rank % 4}"}
        story.tell("argus_rank_info", 1.0, dp=str(rank // 4), tp=str(rank % 4), **labels)
    finding = {"set": "tp:dp1", "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
    story.tell("rank:argus_finding:lost_ratio", 0.25, -600, 0, **finding)
    for rank in ("4", "5", "6", "7"):
        part = {**finding, "row": "suspect-set", "rank": rank, "phase": "forward", "group": "stage:0"}
        story.tell("rank:argus_verdict:lost_ratio", 0.2 + int(rank) / 140, -600, 0, **part)
    story.tell("job:argus_ranks:count", 8.0)
    story.write()
    said = report(story, capsys)
    for part in (
        "one rank of tp:dp1 computes slowly", "who      ranks 4 (host1), 5 (host1), 6 (host1), 7 (host1)",
        "cost     25% of the time, 2.0 of 8 GPUs",
    ):  # fmt: skip
        assert part in said, said


def test_ranks_that_hold_up_the_same_step_do_so_at_the_same_time(story: Story, capsys: Capsys) -> None:
    """Rank 1 costs 10 % by two causes, rank 2 8 %: the job loses 10 %. While it stands still, everything."""
    for rank in range(4):
        story.tell("argus_rank_info", 1.0, rank=str(rank), node="host0")
    for rank, cause, share in (
        ("1", "host-gc", 0.06),
        ("1", "gpu-compute", 0.04),
        ("2", "gpu-compute", 0.08),
    ):
        labels = {"rank": rank, "cause": cause, "team": "operations", "level": "L2", "most": "page"}
        story.tell("rank:argus_finding:lost_ratio", share, -1800, -915, **labels)
    story.tell("job:argus_stalled:seconds", lambda back: 1000.0 + back, -900, 0)
    hang = {"cause": "hang-host", "team": "operations", "level": "L1", "phase": "forward"}
    story.tell("rank:argus_verdict:active", 1.0, -900, 0, rank="3", verdict="culprit", **hang)
    story.tell("job:argus_ranks:count", 4.0)
    story.write()
    costs = json.loads(report(story, capsys, "--json"))["costs"]
    shares = {time - story.end: share for time, share in costs["shares"]}
    assert (shares[-1200], shares[0]) == (pytest.approx(0.1), 1.0)
    assert costs["by_cause"]["stalled"] == pytest.approx(4 * 900 / HOUR, rel=0.03)
    said = report(story, capsys)
    for part in (
        "rank 3 on host0 hangs; 100% of the time lost",
        "cost     100% of the time, 4.0 of 4 GPUs",
        "[over] llm: rank 1 on host0",
        "ArgusTrainingStalled.md",
    ):
        assert part in said, said


def card(story: Story, capsys: Capsys) -> dict[str, Any]:
    """The only one of a story."""
    (found,) = json.loads(report(story, capsys, "--json"))["cards"]
    assert isinstance(found, dict)
    return found


def test_what_the_worker_alone_says_is_a_suspect(story: Story, capsys: Capsys) -> None:
    """Slow kernels that cost too little for the rules: no severity, no cost, the page on kernels."""
    story.tell("job:argus_ranks:count", 4.0)
    for rank in range(4):
        story.tell("argus_rank_info", 1.0, rank=str(rank), node="host0", role="pp0")
    anomaly = {"rank": "3", "cause": "gpu-compute", "team": "operations", "verdict": "culprit"}
    story.tell("argus_l3_anomaly", 0.2, -1500, 0, kernel="all", stream="all", **anomaly)
    story.tell("argus_l3_anomaly", 0.4, -1500, 0, kernel="gemm", stream="7", **anomaly)
    story.write()
    found = card(story, capsys)
    assert (found["state"], found["severity"], found["kind"]) == ("suspect", None, "slow_rank")
    assert (found["cost"], found["cause"]["level"]) == ({}, "L3")
    assert found["text"].startswith("[suspect] llm: rank 3 on host0 computes slowly\n")
    assert "its kernels +20%" in found["text"] and "ArgusKernelDegraded" in found["links"]["runbook"]


def test_a_host_of_slow_ranks_is_one_subject(story: Story, capsys: Capsys) -> None:
    """Named by the coordinate that its ranks share."""
    story.tell("job:argus_ranks:count", 8.0)
    for rank in range(8):
        story.tell("argus_rank_info", 1.0, rank=str(rank), node=f"host{rank // 4}", role="pp0")
    shift = {"role": "pp0", "coordinate": "node", "value": "host1", "cause": "gpu-compute"}
    story.tell("argus_l3_group_shift", 0.3, -600, 0, kernel="all", team="operations", **shift)
    story.write()
    found = card(story, capsys)
    assert (found["kind"], found["subject"]["ranks"]) == ("slow_group", ["4", "5", "6", "7"])
    assert found["text"].startswith("[suspect] llm: node host1 of pp0 computes slowly\n")
    assert "ArgusKernelGroupShift" in found["links"]["runbook"]


def test_each_cause_has_its_own_reasons(story: Story, capsys: Capsys) -> None:
    """Pauses, what the history knows, and work; two causes of the job are one card."""
    story.tell("job:argus_ranks:count", 4.0)
    for rank, work in enumerate((1.0, 1.0, 1.4, 1.0)):
        story.tell("argus_rank_info", 1.0, rank=str(rank), node="host0")
        story.tell("rank:argus_work:rate", work, -600, 0, rank=str(rank), unit="tokens")
    for cause, row, level, most, lost, of in (
        ("host-gc", "host-gc", "L2", "page", 0.2, {"rank": "1"}),
        ("host-sync", "history", "L1", "ticket", 0.1, {}),
        ("jitter", "jitter", "L1", "ticket", 0.05, {}),
        ("workload", "workload", "L2", "ticket", 0.04, {"rank": "2"}),
    ):
        finding = {"cause": cause, "level": level, "team": "algorithm", "most": most, **of}
        story.tell("rank:argus_finding:lost_ratio", lost, -600, 0, **finding)
        story.tell("rank:argus_verdict:lost_ratio", lost, -600, 0, **finding, row=row, phase="all")
        story.tell("rank:argus_decision:lost_ratio", lost, -600, 0, **finding, severity=most)
    story.tell("rank:argus_pause:ratio", 0.21, -600, 0, rank="1", pause="host-gc")
    story.tell("job:argus_history:slowdown_ratio", 1.11, -600, 0)
    story.write()
    said = report(story, capsys)
    for part in (
        "[page] llm: rank 1 on host0 pauses to collect garbage; 20% of the time lost",
        "why      it pauses for 21%",
        "[ticket] llm: the job waits for its GPUs where earlier runs of its model did not; 15% of the time",
        "1.11x against the best run of its model", "also: jitter of the job",
        "[ticket] llm: rank 2 on host0 has more to do than the others, 1.40x; 4% of the time lost",
        "why      its work is 1.40x the average of the job", "ArgusGroupImbalance.md",
    ):  # fmt: skip
        assert part in said, said


def test_a_name_is_data(story: Story, capsys: Capsys) -> None:
    """Users choose names of phases and groups: no line, no query and no length is theirs."""
    story.tell("job:argus_ranks:count", 2.0)
    for rank in range(2):
        story.tell("argus_rank_info", 1.0, rank=str(rank), node="host0")
    phase, group = 'x"} or vector(1)\nid       <job>' + "y" * 200, "g<rank>\n[page] other"
    finding = {"rank": "1", "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
    story.tell("rank:argus_finding:lost_ratio", 0.1, -600, 0, **finding)
    part = {**finding, "row": "gpu-compute", "phase": phase, "group": group}
    story.tell("rank:argus_verdict:lost_ratio", 0.1, -600, 0, **part)
    where = {"phase": phase, "group": group, "kind": "compute"}
    story.tell("rank:argus_phase_duration_seconds:mean", 3.0, -600, 0, rank="1", **where)
    story.tell("group:argus_phase_duration_seconds:median", 2.0, -600, 0, **where)
    story.write()
    found = card(story, capsys)
    assert found["size"] == {"observed_s": 3.0, "baseline_s": 2.0, "ratio": 1.5}
    lines = found["text"].splitlines()
    assert len(lines) <= 12 and max(map(len, lines[:-2])) <= 160, "shortened"
    heads = [line.split()[0] for line in lines]
    assert heads == ["[suspect]", "who", "since", "cost", "why", "wrong", "do", "look", "id"]


def test_a_healthy_job_has_a_short_report(story: Story, tmp_path: Path, capsys: Capsys) -> None:
    """Nobody accused, nothing to do, no plot without data."""
    for rank in range(4):
        story.tell("argus_rank_info", 1.0, rank=str(rank))
    story.tell("job:argus_iteration:class", 1.0, **{"class": "stable"})
    story.tell("job:argus_ranks:count", 4.0)
    story.write()
    page = tmp_path / "report.html"
    said = report(story, capsys, "--html", str(page))
    assert "iteration: stable" in said and "none of 4 ranks stands out" in said
    assert "runbooks" not in said
    assert page.read_text().count("Nothing recorded.") == 2


def test_a_long_time_hides_nothing_and_keeps_nothing_up(story: Story, capsys: Capsys) -> None:
    """Of a week: twenty minutes are found, and what ended half an hour ago is over."""
    story.tell("argus_rank_info", 1.0, -DAY, rank="1", node="host0")
    story.tell("argus_rank_info", 1.0, -DAY, rank="2", node="host1")
    for rank, begin, end in (("1", -10_000, -8_800), ("2", -3600, -1800)):
        finding = {"rank": rank, "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
        story.tell("rank:argus_finding:lost_ratio", 0.1, begin, end, **finding)
        story.tell("rank:argus_decision:lost_ratio", 0.1, begin, end, severity="page", **finding)
    story.tell("job:argus_ranks:count", 2.0, -DAY)
    story.write()
    common = ["--prometheus.url", story.server.url, "--job", "llm", "--time", str(story.end)]
    assert main(["diagnose", *common, "--since", "7d", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["accusations"][0]["active"]) for one in found["subjects"]] == [
        ("rank 2", False),
        ("rank 1", False),
    ]
    lasted = 1200 + 1800 + 2 * 300  # nothing marks an end here, so Prometheus looks back for five minutes
    assert found["costs"]["gpu_hours"] == pytest.approx(0.1 * 2 * lasted / HOUR, rel=0.1)
    assert main(["explain", *common, "--since", "7d"]) == 0
    assert capsys.readouterr().out.startswith("[over] llm: rank 2 on host1")


@pytest.mark.skipif(
    not shutil.which("victoria-metrics"), reason="no victoria-metrics on PATH: run tools/setup.sh"
)
def test_what_holds_now_holds_in_a_week_of_victoria_metrics(tmp_path: Path, capsys: Capsys) -> None:
    """The steps of a week do not end where it does, and nothing has been written after it."""
    server = VictoriaMetricsServer(tmp_path).start()
    try:
        story = Story(server)
        story.tell("argus_rank_info", 1.0, rank="1", node="host0")
        finding = {"rank": "1", "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
        story.tell("rank:argus_finding:lost_ratio", 0.1, -600, 0, **finding)
        story.write()
        server.flush()
        for back in (0, 45, 90):
            at = ["--time", str(story.end - back), "--since", "7d", "--json"]
            assert main(["diagnose", "--prometheus.url", server.url, "--job", "llm", *at]) == 0
            (accused,) = json.loads(capsys.readouterr().out)["subjects"]
            assert accused["accusations"][0]["active"]
    finally:
        server.stop()


@pytest.mark.parametrize("since", ["5m", "3h", "7d"])
def test_what_is_asked_over_time_is_at_multiples_of_the_step(since: str, capsys: Capsys) -> None:
    """Of whatever moment it is asked: results caches move other times, and each its own way."""
    with Backend() as backend:
        options = ["--job", "llm", "--time", "1700001793.7", "--since", since]
        assert main(["diagnose", "--prometheus.url", backend.url, *options]) == 1
        asked = [parse_qs(one.body.decode()) for one in backend.requests if one.path.endswith("_range")]
    assert "no argus_rank_info of job llm" in capsys.readouterr().err
    times = [[round(float(one[name][0]) * 1e3) for name in ("start", "end", "step")] for one in asked]
    assert times and all(start % step == end % step == 0 for start, end, step in times)


def test_a_rank_is_where_it_was_when_it_was_slow(story: Story, capsys: Capsys) -> None:
    """Rank 1 was drained from one host and is slow on another: neither card names the other's host."""
    story.tell("job:argus_ranks:count", 2.0)
    story.tell("argus_rank_info", 1.0, rank="0", node="host0")
    places = (("1", "host9", -HOUR, -2400), ("1", "host1", -1800, 0), ("2", "host1", -HOUR, -2400))
    for rank, node, begin, end in (*places, ("2", "host9", -1800, 0)):
        story.tell("argus_rank_info", 1.0, begin, end, rank=rank, node=node)
    finding = {"cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
    story.tell("rank:argus_finding:lost_ratio", 0.2, -600, 0, rank="1", **finding)
    story.tell("rank:argus_finding:lost_ratio", 0.1, -3000, -2700, rank="2", **finding)
    story.write()
    now, before = json.loads(report(story, capsys, "--json"))["cards"]
    assert (now["subject"]["name"], now["subject"]["nodes"]) == ("rank 1", ["host1"])
    assert (before["subject"]["name"], before["subject"]["nodes"]) == ("rank 2", ["host1"])


def test_an_unknown_job_is_an_error(story: Story, capsys: Capsys) -> None:
    """Exit 1 and what to check."""
    assert main(["diagnose", "--prometheus.url", story.server.url, "--training-job", "none"]) == 1
    assert "no argus_rank_info of job none" in capsys.readouterr().err


def test_jobs_of_one_name_are_not_one(story: Story, capsys: Capsys) -> None:
    """Twice as many ranks, half of them of another job: say which cluster."""
    for cluster in ("x", "y"):
        for rank in range(4):
            story.tell("argus_rank_info", 1.0, -60, rank=str(rank), node=f"{cluster}{rank}", cluster=cluster)
    story.write()
    common = ["diagnose", "--prometheus.url", story.server.url, "--job", "llm", "--time", str(story.end)]
    assert main(common) == 2
    assert "jobs of several clusters are called llm (x, y); say which by --cluster" in capsys.readouterr().err
    assert main([*common, "--cluster", "x"]) == 0
    assert ", 4 ranks" in capsys.readouterr().out


def test_links_lead_to_runbooks_that_exist() -> None:
    """Each alert that the report sends people to has a page, under the URL that alerts use."""
    for section in ("runbooks", "runbooks_of_jobs", "runbooks_of_worker"):
        for name in table()[section].values():
            assert (ROOT / "docs" / "runbooks" / f"{name}.md").is_file()
    for alert in alerts():
        assert alert["annotations"]["runbook_url"] == RUNBOOK_URL % alert["alert"]


def test_a_cause_leads_to_the_page_of_its_alert() -> None:
    """By the causes that alerts select, of the whole job (L1) or of others: one alert tells each of them."""
    of_alert = r'rank:argus_(?:decision|verdict):\w+\{[^}]*cause=~"([a-z|-]+)"(?:, level(!?=)"L1")?'
    told: dict[tuple[str, str], set[str]] = {}
    for alert in alerts():
        for causes, level in re.findall(of_alert, alert["expr"]):
            for cause in causes.split("|"):
                for of_job in {"=": [True], "!=": [False]}.get(level, [True, False]):
                    told.setdefault((cause, "L1" if of_job else "L2"), set()).add(alert["alert"])
    known = table()["runbooks"].keys() | table()["runbooks_of_jobs"].keys()
    assert {cause for cause, _ in told} >= known - {"other", STALLED}
    alerts_by_cause = {(cause, level): name for (cause, level), (name,) in told.items()}
    of_either = {"workload": "L2", **dict.fromkeys(("work-uneven", *HANGS), "L1")}
    for (cause, level), name in alerts_by_cause.items():
        assert page_of(cause, of_either.get(cause, level)) == name, cause


def alerts() -> list[dict[str, Any]]:
    return [
        rule
        for file in (ROOT / "rules").glob("*.yaml")
        for group in yaml.load(file.read_text(), yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
