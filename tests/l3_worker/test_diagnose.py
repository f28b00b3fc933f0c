"""The report on a job, from what rules and worker have written to a real Prometheus."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.servers import PrometheusServer

from argus_core import remote_write
from argus_core.causes import HANGS
from argus_l3_worker.cli import main
from argus_l3_worker.commands.diagnose import RUNBOOK_URL
from argus_l3_worker.reports.diagnosis_report import (
    _NOBODY,
    _OF_GROUPS,
    _OF_JOBS,
    _OF_KERNELS,
    _RUNBOOK_OF_CAUSE,
    _RUNBOOK_OF_JOBS,
    page_of,
)

ROOT = Path(__file__).parents[2]
STEP = 15
HOUR = 3600

pytestmark = pytest.mark.servers


class Story:
    """Series of one job over the last hour, a sample each 15 s."""

    def __init__(self, server: PrometheusServer) -> None:
        self.server = server
        self.end = int(time.time()) // STEP * STEP
        self._by_time: dict[int, list[bytes]] = {}

    def tell(self, name: str, number: Any, begin: int = -HOUR, end: int = 0, **labels: str) -> None:
        """From `begin` to `end` seconds before now; `number`, or a function of that time."""
        named = remote_write.labels_of(name, training_job="llm", **labels)
        for back in range(begin, end + 1, STEP):
            value = number(back) if callable(number) else number
            at = self.end + back
            self._by_time.setdefault(at, []).append(remote_write.encode_series(named, value, at * 1000))

    def write(self) -> None:
        for at in sorted(self._by_time):
            self.server.write(self._by_time[at])


def a_slow_gpu(story: Story) -> None:
    """Half an hour ago rank 3 on host1 became 20 % slower, and with it the job."""
    for rank in range(8):
        story.tell("argus_rank_info", 1.0, rank=str(rank), node=f"host{rank // 2}", role="pp0")
        story.tell("argus_l3_rhythm_divergence", 0.3 if rank == 3 else 0.01, rank=str(rank))
        pattern = {"function": "forward", "distance": "differential"}
        story.tell("argus_l3_eroica_distance", 0.9 if rank == 3 else 0.0, rank=str(rank), **pattern)
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
    story.tell("argus_l3_anomaly", 0.2, -1500, 0, kernel="all", stream="all", replica="a", **anomaly)
    story.tell("argus_l3_anomaly", 0.21, -1400, 0, kernel="all", stream="all", replica="b", **anomaly)
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


def report(story: Story, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    common = ["--prometheus.url", story.server.url, "--training-job", "llm", "--time", str(story.end)]
    assert main(["diagnose", *common, "--since", "1h", *arguments]) == 0
    return capsys.readouterr().out


def test_a_slow_gpu_from_the_iteration_to_the_trace(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Class and beginning of the slowdown, who, where, what it cost, what to do, and where to look."""
    story = Story(prometheus)
    a_slow_gpu(story)
    page = tmp_path / "report.html"
    traces = ("--traces-url", "http://l3:9878/")
    found = json.loads(report(story, capsys, "--json", "--html", str(page), *traces))
    assert found["iteration_class"] == "regression"
    since = story.end - 1695
    assert found["slower"] == {"by": pytest.approx(0.2), "since": since, "before": False, "until": None}
    l2, l3 = found["suspects"]
    assert (l2["rank"], l2["node"], l2["lost"]) == ("3", "host1", 0.17)
    assert l2["where"] == [["forward of dp", 0.12], ["backward of dp", 0.05]]
    assert [(one["severity"], one["active"]) for one in l2["told"]] == [("info", False), ("page", True)]
    assert (l3["level"], l3["where"], l3["shift"]) == ("L3", [["all compute kernels", None]], 0.21)
    assert (l3["lost"], l3["first"], l3["active"]) == (None, story.end - 1500, True)
    assert [(one["rank"], one["by_rank"], one["active"]) for one in found["excused"]] == [
        ("6", "3", True), ("7", "3", True), ("4", "3", False)
    ]  # fmt: skip
    assert found["hosts"] == {"host1": ["3"]}
    hours = pytest.approx(0.17 * 8 * 1605 / HOUR, rel=0.02)
    assert (found["costs"]["gpu_hours"], found["costs"]["by_cause"]) == (hours, {"gpu-compute": hours})
    (accused,) = found["accused"]
    assert (accused["lost"], accused["gpus"]) == (0.17, pytest.approx(0.17 * 8))
    assert accused["gpu_seconds"] / HOUR == hours
    assert [(one["rank"], one["name"]) for one in found["cross_checks"]] == [("3", "EROICA"), ("3", "rhythm")]
    assert found["alerts"] == ["ArgusStragglerRank"]
    assert found["runbook_url"].endswith("ArgusStragglerRank.md")
    assert found["traces"][0]["url"] == "http://l3:9878/traces/llm/2026-11-21/3/w.perfetto-trace?ui=1"
    html = page.read_text()
    assert html.count("<polyline") == 2 and "slower, " in html
    assert "<script" not in html and 'ArgusStragglerRank.md">' in html
    assert '<a href="http://l3:9878/traces/llm/2026-11-21/3/w.perfetto-trace?ui=1">' in html


def test_the_text_can_be_read_to_somebody(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same story in sentences."""
    story = Story(prometheus)
    a_slow_gpu(story)
    said = report(story, capsys)
    for part in (
        "8 ranks", "iteration: regression; +20.0% since",
        "1. rank 3 on host1: computes slowly (gpu-compute, operations)",
        "costs 17.0% of the job's time, 1.4 GPUs; so far 0.61 GPU-hours",
        "L2 forward of dp 12.0%, backward of dp 5.0%, 17.0% of the time, since", "; page since",
        "L3 all compute kernels, +21.0%",
        "excused by gpu-compute of rank 3: ranks 6, 7 (collective-late)",
        "excused before by gpu-compute of rank 3: rank 4 (collective-late)",
        "not judged now: optimizer of dp: coverage",
        "cross-check rhythm: rank 3", "host host1: accused rank 3",
        "cost: 0.61 GPU-hours of the whole job; by cause gpu-compute 0.61",
        "what to do: https://", "argus-l3-worker trace llm/",
    ):  # fmt: skip
        assert part in said, said


def test_a_slow_link_is_one_subject_of_rules_and_worker(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group that loses in two phases, and in a kernel: it stands there once, both levels below."""
    story = Story(prometheus)
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
    story.write()
    said = report(story, capsys)
    for part in (
        "1. group edp:pp0.tp0.ep7, ranks 7, 15 on host1, host3: has a slow link (link-slow, operations)",
        "costs 12.0% of the job's time, 1.9 GPUs; so far 0.33 GPU-hours",
        "L2 reduce_scatter of edp:pp0.tp0.ep7 8.0%, all_gather of edp:pp0.tp0.ep7 4.0%, 12.0% of the time",
        "L3 ncclDevKernel_ReduceScatter, +140.0%",
        "ArgusCollectiveSlowLink.md",
    ):
        assert part in said, said
    assert "2. " not in said


def test_of_a_set_one_rank_is_meant(prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks that wait for one another within a phase: all are listed, and what they cost together once."""
    story = Story(prometheus)
    for rank in range(8):
        labels = {"rank": str(rank), "node": f"host{rank // 4}", "role": f"tp{rank % 4}"}
        story.tell("argus_rank_info", 1.0, dp=str(rank // 4), tp=str(rank % 4), **labels)
    finding = {"set": "tp:dp1", "cause": "gpu-compute", "team": "operations", "level": "L2", "most": "page"}
    story.tell("rank:argus_finding:lost_ratio", 0.25, -600, 0, **finding)
    for rank in ("4", "5", "6", "7"):
        part = {**finding, "row": "suspect-set", "rank": rank, "phase": "forward", "group": "stage:0"}
        story.tell("rank:argus_verdict:lost_ratio", 0.2 + int(rank) / 140, -600, 0, **part)
    story.write()
    said = report(story, capsys)
    for part in (
        "1. one of tp:dp1, ranks 4, 5, 6, 7 on host1: computes slowly; its ranks wait for one another",
        "costs 25.0% of the job's time, 2.0 GPUs", "L2 forward of stage:0, 25.0% of the time",
    ):  # fmt: skip
        assert part in said, said


def test_ranks_that_hold_up_the_same_step_do_so_at_the_same_time(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 costs 10 % by two causes, rank 2 8 %: the job loses 10 %. While it stands still, everything."""
    story = Story(prometheus)
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
    story.write()
    costs = json.loads(report(story, capsys, "--json"))["costs"]
    shares = {time - story.end: share for time, share in costs["shares"]}
    assert (shares[-1200], shares[0]) == (pytest.approx(0.1), 1.0)
    assert costs["by_cause"]["stalled"] == pytest.approx(4 * 900 / HOUR, rel=0.03)
    said = report(story, capsys)
    for part in (
        "1. rank 3 on host0: hangs (hang-host, operations)\n      costs 100.0% of the job's time, 4.0 GPUs",
        "rank 1 on host0: pauses to collect garbage (host-gc, operations), computes slowly",
        "ArgusTrainingStalled.md",
    ):
        assert part in said, said


def test_a_slowdown_that_is_over_has_an_end(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two regressions the report tells of the last; of one that was there before, that."""
    story = Story(prometheus)
    story.tell("argus_rank_info", 1.0, rank="0")
    evidence = {"cause": "regression", "detector": "change"}
    story.tell("rank:argus_evidence:lost_ratio", 0.2, -HOUR, -3000, **evidence)
    story.tell("rank:argus_evidence:lost_ratio", 0.1, -1800, -900, **evidence)
    story.write()
    slower = json.loads(report(story, capsys, "--json"))["slower"]
    assert (slower["since"] - story.end, slower["before"]) == (-1800, False)
    assert -900 <= slower["until"] - story.end <= -600  # what is gone without a mark is seen for five minutes
    assert slower["by"] == pytest.approx(1 / 0.9 - 1)
    earlier = ["--time", str(story.end - 3000), "--since", "10m"]
    slower = json.loads(report(story, capsys, "--json", *earlier))["slower"]
    assert (slower["before"], slower["until"]) == (True, None)


def test_a_healthy_job_has_a_short_report(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody accused, nothing to do, no plot without data."""
    story = Story(prometheus)
    for rank in range(4):
        story.tell("argus_rank_info", 1.0, rank=str(rank))
    story.tell("job:argus_iteration:class", 1.0, **{"class": "stable"})
    story.write()
    page = tmp_path / "report.html"
    said = report(story, capsys, "--html", str(page))
    assert "iteration: stable" in said and "no rank was accused" in said
    assert "what to do" not in said
    assert page.read_text().count("Nothing recorded.") == 2


def test_an_unknown_job_is_an_error(prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 and what to check."""
    assert main(["diagnose", "--prometheus.url", prometheus.url, "--training-job", "none"]) == 1
    assert "no argus_rank_info of job none" in capsys.readouterr().err


def test_links_lead_to_runbooks_that_exist() -> None:
    """Each alert that the report sends people to has a page, under the URL that alerts use."""
    pages = {*_RUNBOOK_OF_CAUSE.values(), *_RUNBOOK_OF_JOBS.values(), *_NOBODY.values()}
    for name in pages | {_OF_JOBS, _OF_KERNELS, _OF_GROUPS}:
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
    assert {cause for cause, _ in told} >= _RUNBOOK_OF_CAUSE.keys() | _RUNBOOK_OF_JOBS.keys()
    alerts_by_cause = {(cause, level): name for (cause, level), (name,) in told.items()}
    of_either = {"workload": "L2", **dict.fromkeys(("work-uneven", *HANGS), "L1")}
    for (cause, level), name in alerts_by_cause.items():
        assert page_of(cause, of_either.get(cause, level)) == name, cause


def alerts() -> list[dict[str, Any]]:
    return [
        rule
        for file in (ROOT / "rules").glob("*.yaml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
