"""The report on a job, from what rules and worker have written to a real Prometheus."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.servers import PrometheusServer

from argus_core import remote_write
from argus_l3_worker.cli import main
from argus_l3_worker.commands.diagnose import RUNBOOK_URL
from argus_l3_worker.reports.diagnosis_report import _RUNBOOK_OF_CAUSE, _RUNBOOK_OF_LEVEL

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
    story.tell("job:argus_iteration:regression_ratio", 1.2, -1700, 0, window="10m")
    story.tell(
        "job:argus_iteration:regression_split_timestamp_seconds",
        float(story.end - 1800),
        -1700,
        0,
        window="10m",
    )
    verdict = {"rank": "3", "cause": "gpu-compute", "team": "operations", "verdict": "culprit", "level": "L2"}
    story.tell("rank:argus_verdict:active", 1.0, -1600, 0, phase="forward", group="dp", **verdict)
    story.tell("rank:argus_verdict:lost_ratio", 0.17, -1600, 0, phase="forward", group="dp", **verdict)
    waiting = {"rank": "4", "cause": "waiting", "team": "none", "verdict": "victim", "level": "L2"}
    story.tell("rank:argus_verdict:active", 1.0, -1600, -600, phase="backward", **waiting)
    anomaly = {key: value for key, value in verdict.items() if key != "level"}
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
    story.tell("job:argus_lost_gpus:current", 1.6, -1785, 0, cause="gpu-compute")
    story.tell("ALERTS", 1.0, -1500, 0, alertname="ArgusStragglerRank", alertstate="firing")
    story.write()


def report(story: Story, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    common = ["--prometheus.url", story.server.url, "--training-job", "llm", "--time", str(story.end)]
    assert main(["diagnose", *common, "--since", "1h", *arguments]) == 0
    return capsys.readouterr().out


def test_a_slow_gpu_from_the_iteration_to_the_trace(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Class and time of the change, who, where, since when, what it cost, what to do, and where to look."""
    story = Story(prometheus)
    a_slow_gpu(story)
    page = tmp_path / "report.html"
    traces = ("--traces-url", "http://l3:9878/")
    found = json.loads(report(story, capsys, "--json", "--html", str(page), *traces))
    assert (found["iteration_class"], found["changed"]) == ("regression", story.end - 1800)
    assert found["slower_by"] == pytest.approx(0.2)
    l2, l3, victim = found["suspects"]
    assert (l2["rank"], l2["node"], l2["where"], l2["lost"]) == ("3", "host1", "forward dp", 0.17)
    assert (l3["level"], l3["where"], l3["shift"], l3["lost"]) == ("L3", "all compute kernels", 0.21, None)
    assert (l3["first"], l3["active"]) == (story.end - 1500, True)
    assert (victim["verdict"], victim["active"]) == ("victim", False)
    assert found["hosts"] == {"host1": ["3"]}
    assert found["gpu_hours"] == {"gpu-compute": pytest.approx(1.6 * 0.5, rel=0.02)}
    assert [(one["rank"], one["name"]) for one in found["cross_checks"]] == [("3", "EROICA"), ("3", "rhythm")]
    assert found["alerts"] == ["ArgusStragglerRank"]
    assert found["runbook_url"].endswith("ArgusStragglerRank.md")
    assert found["traces"][0]["url"] == "http://l3:9878/traces/llm/2026-11-21/3/w.perfetto-trace?ui=1"
    html = page.read_text()
    assert html.count("<polyline") == 2 and "change, " in html
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
        "1. rank 3 on host1: gpu-compute (operations), 0.08 GPU-hours",
        "L2 forward dp, 17.0% of the iteration", "L3 all compute kernels, +21.0%", "waited before: rank 4",
        "cross-check rhythm: rank 3", "host host1: accused rank 3",
        "cost: 0.80 GPU-hours (gpu-compute 0.80)", "what to do: https://", "argus-l3-worker trace llm/",
    ):  # fmt: skip
        assert part in said, said


def test_a_slow_link_is_one_subject_of_rules_and_worker(
    prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two phases and a kernel of one process group: it stands there once, both levels below."""
    story = Story(prometheus)
    for rank in range(16):
        labels = {"rank": str(rank), "node": f"host{rank // 4}", "role": "pp0.tp0", "pp": "0", "tp": "0"}
        story.tell("argus_rank_info", 1.0, dp=str(rank), ep=str(rank % 8), **labels)
    link = {"cause": "link-slow", "team": "operations"}
    verdict = {**link, "verdict": "culprit", "level": "L2", "group": "edp:pp0.tp0.ep7"}
    for phase, share in (("reduce_scatter", 0.08), ("all_gather", 0.04)):
        story.tell("rank:argus_verdict:active", 1.0, -600, 0, phase=phase, **verdict)
        story.tell("rank:argus_verdict:lost_ratio", share, -600, 0, phase=phase, **verdict)
    where = {"role": "pp0.tp0", "coordinate": "ep", "value": "7", "stream": "nccl:edp"}
    story.tell("argus_l3_group_shift", 1.4, -300, 0, kernel="ncclDevKernel_ReduceScatter", **where, **link)
    story.write()
    said = report(story, capsys)
    for part in (
        "1. group edp:pp0.tp0.ep7, ranks 7, 15 on host1, host3: link-slow (operations), 0.03 GPU-hours",
        "L2 reduce_scatter edp:pp0.tp0.ep7, 8.0% of the iteration",
        "L2 all_gather edp:pp0.tp0.ep7, 4.0% of the iteration",
        "L3 ncclDevKernel_ReduceScatter, +140.0%",
        "ArgusCollectiveSlowLink.md",
    ):
        assert part in said, said
    assert "2. " not in said


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
    for name in {*_RUNBOOK_OF_CAUSE.values(), *_RUNBOOK_OF_LEVEL.values(), "ArgusKernelGroupShift"}:
        assert (ROOT / "docs" / "runbooks" / f"{name}.md").is_file()
    rules = yaml.safe_load((ROOT / "rules" / "argus.alerts.yaml").read_text())
    (some, *_) = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    assert some["annotations"]["runbook_url"] == RUNBOOK_URL % some["alert"]
