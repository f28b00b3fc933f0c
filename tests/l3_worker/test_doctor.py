"""The doctor against a real Prometheus: what is missing is named with a remedy, what is there is ok."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.servers import PrometheusServer, VictoriaMetricsServer

from argus_core import catalogue, remote_write
from argus_core.store.config import StoreConfig
from argus_l3_worker.cli import main
from argus_l3_worker.config import Config
from argus_l3_worker.reports import doctor
from argus_l3_worker.traces.config import TracesConfig
from l3_worker.backends import Backend, vector
from l3_worker.fleets import fleet
from l3_worker.published_fleet import Fleet

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.servers


def examined(
    capsys: pytest.CaptureFixture[str], url: str, folder: Path, *arguments: str, status: int
) -> dict[str, dict[str, Any]]:
    """Checks by name."""
    config = folder / "l3.yaml"
    config.write_text(yaml.safe_dump({"traces": {"store": {"folder": str(folder)}}}))
    common = ["--json", "--config", str(config), "--prometheus.url", url, "--settle", "0s"]
    spool = ["--spool.dir", str(folder / "spool")]
    assert main(["doctor", *common, *spool, *arguments]) == status
    content = json.loads(capsys.readouterr().out)
    assert content["healthy"] == (status == 0)
    return {check["name"]: check for check in content["checks"]}


def states(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: check["state"] for name, check in checks.items()}


def test_the_alerts_that_it_asks_for_are_those_of_the_rules() -> None:
    """No alert of the files is forgotten, none is made up."""
    assert set(doctor.ALERTS) == names_in_rules("alert")


def test_the_records_that_it_asks_for_are_recorded() -> None:
    """A name that no rule has would be missing for ever."""
    assert set(doctor.RECORDED) <= names_in_rules("record")


def names_in_rules(kind: str) -> set[str]:
    """Names of all rules of a kind, `record` or `alert`."""
    contents = [yaml.load(file.read_text(), yaml.CSafeLoader) for file in (ROOT / "rules").glob("*.yaml")]
    groups = [group for content in contents for group in content["groups"]]
    return {rule[kind] for group in groups for rule in group["rules"] if kind in rule}


def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules loaded, a fleet publishing, a folder for traces and spool: nothing to do, exit 0."""
    server = PrometheusServer(tmp_path, rules=[ROOT / "rules" / "argus*.yaml"])
    try:
        server.start()
        Fleet(server).publish(time.time(), 64, fleet(8))
        found = examined(capsys, server.url, tmp_path, status=0)
    finally:
        server.stop()
    rules = found["rules"]  # nearly all of them wait for their interval
    assert rules["state"] == "ok" or "not evaluated yet" in rules["detail"]
    assert {state for name, state in states(found).items() if name != "rules"} == {"ok"}
    assert set(found) == {
        "prometheus", "clock", "remote write", "rules", "series of llm", "ranks of llm", "windows of llm",
        "trace store", "spool",
    }  # fmt: skip


def test_an_empty_prometheus_lacks_rules_and_exporters(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reachable, but without rules and series: two failures with what to do, exit 1."""
    found = examined(capsys, prometheus.url, tmp_path, status=1)
    assert [name for name, check in found.items() if check["state"] == "fail"] == ["rules", "series"]
    assert "rule_files" in found["rules"]["remedy"]
    assert "argus-exporter" in found["series"]["remedy"]


@pytest.mark.skipif(not shutil.which("victoria-metrics"), reason="victoria-metrics is not on PATH")
def test_rules_that_another_evaluates_are_known_by_what_they_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VictoriaMetrics lists no rules unless it is told where vmalert is; without any rule it is not well."""
    server = VictoriaMetricsServer(tmp_path).start()
    try:
        now = time.time() - 5.0  # it answers from what is a second old
        Fleet(server).publish(now, 64, fleet(8))
        server.flush()
        assert states(examined(capsys, server.url, tmp_path, status=1))["rules"] == "fail"
        info = remote_write.labels_of("argus_rules_info", flavour="rules", version="9.9")
        server.write([remote_write.encode_series(info, 1.0, round(now * 1000))])
        server.flush()
        found = examined(capsys, server.url, tmp_path, status=0)
    finally:
        server.stop()
    assert found["rules"]["detail"].endswith("this backend lists none: rules 9.9")
    assert set(states(found).values()) == {"ok"}


def test_a_store_that_keeps_the_modes_of_some_ranks_alone_is_told(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cortex keeps 50,000 series of a metric: those of 1,280 ranks."""
    now = time.time()
    Fleet(prometheus).publish(now, 64, fleet(4))
    for rank in range(4, 8):
        of_rank = {"training_job": "llm", "rank": str(rank)}
        prometheus.write(
            [
                remote_write.encode_series(remote_write.labels_of(name, **of_rank), value, round(now * 1000))
                for name, value in (
                    (catalogue.RANK_INFO.name, 1.0),
                    (catalogue.KERNEL_WINDOW_LAST_STEP.name, 64.0),
                )
            ]
        )
    told = examined(capsys, prometheus.url, tmp_path, status=1)["modes of llm"]
    assert told["state"] == "warn" and "max_global_series_per_metric" in told["remedy"]
    assert told["detail"] == "kernel modes are there of 4 of 8 ranks that publish windows"


@pytest.mark.parametrize(
    ("status", "page"),
    [(404, {}), (200, {"status": "success", "data": {"groups": []}})],
    ids=["no such page", "no groups"],
)
def test_backends_that_list_no_rules_are_asked_for_what_rules_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, page: dict[str, Any]
) -> None:
    """As a query side without a ruler; half of a Thanos is a warning, and ranks of two tenants are no job."""
    info = [
        {"metric": {"training_job": "llm", "rank": str(rank), "__tenant_id__": tenant}, "value": [0, "1"]}
        for rank, tenant in enumerate("ab")
    ]
    rules = {"metric": {"flavour": "rules", "version": "9.9"}, "value": [0, "1"]}

    def answer(query: str) -> tuple[int, Any]:
        if query == "argus_rules_info":
            return 200, vector(rules)
        if query.startswith("argus_rank_info"):
            return 200, vector(*info)
        if query.startswith("count by (training_job) (argus_rank_info"):
            return 200, vector({"metric": {"training_job": "llm"}, "value": [0, "2"]})
        return 200, vector()

    with Backend(answer, pages={"/api/v1/rules": (status, page)}) as backend:
        found = examined(capsys, backend.url, tmp_path, status=1)
        assert found["rules"]["state"] == "ok"
        assert (
            found["series of llm"]["state"] == "fail" and "__tenant_id__" in found["series of llm"]["detail"]
        )
    partial = vector(warnings=["remote query warning (10.0.0.2:10901): store 10.0.0.3:10901 is away"])
    with Backend(lambda _: (200, partial), pages={"/api/v1/rules": (status, page)}) as backend:
        found = examined(capsys, backend.url, tmp_path, status=1)
    assert (found["prometheus"]["state"], found["series"]["state"]) == ("warn", "fail")


def test_nobody_there_is_one_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What needs Prometheus is not asked; what does not, is."""
    found = examined(capsys, "http://127.0.0.1:1", tmp_path, status=1)
    assert states(found) == {"prometheus": "fail", "trace store": "ok", "spool": "ok"}


def test_a_receiver_that_is_off_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag that switches it on."""
    server = PrometheusServer(tmp_path, receiver=False)
    try:
        found = examined(capsys, server.start().url, tmp_path, status=1)
    finally:
        server.stop()
    assert found["remote write"]["state"] == "fail"
    assert "--web.enable-remote-write-receiver" in found["remote write"]["remedy"]


def test_ranks_that_are_lost_silent_or_elsewhere_are_counted(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four of eight publish, of which each another window; one is lost."""
    now = time.time()
    modes: dict[str, Any] = fleet(8)
    for rank in "4567":
        modes[rank] = {}
    Fleet(prometheus).publish(now, 64, modes, last_steps={"0": 64, "1": 128, "2": 192, "3": 256})
    lost = remote_write.labels_of(catalogue.RANK_UP.name, training_job="llm", rank="7")
    prometheus.write([remote_write.encode_series(lost, 0.0, round(now * 1000))])
    found = examined(capsys, prometheus.url, tmp_path, status=1)
    assert found["ranks of llm"]["detail"] == "50% of the ranks publish kernel windows, 1 are lost"
    assert states(found)["windows of llm"] == states(found)["ranks of llm"] == "warn"


def test_a_job_that_is_not_judged_for_its_name_is_not_well(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker refuses a name that is in two clusters; the other job is judged."""
    now = time.time()
    for cluster in ("x", "y"):
        Fleet(prometheus, cluster=cluster).publish(now, 64, fleet(4))
    Fleet(prometheus, "other", cluster="y").publish(now, 64, fleet(4))
    found = examined(capsys, prometheus.url, tmp_path, status=1)
    assert (states(found)["series of llm"], states(found)["series of other"]) == ("fail", "ok")
    assert "differ in cluster: x, y" in found["series of llm"]["detail"]
    assert "ranks of llm" not in found


def test_scrapes_that_are_too_far_apart_for_the_rules_are_told(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by Prometheus' default of a minute; a job that has just begun has few, too, and is none of these."""
    now = time.time()
    Fleet(prometheus).publish(now, 64, fleet(4))
    for job, every, since in (("llm", 60, 240), ("often", 15, 240), ("young", 60, 60)):
        labels = remote_write.labels_of(catalogue.RANK_UP.name, training_job=job, rank="0")
        info = remote_write.labels_of(catalogue.RANK_INFO.name, training_job=job, rank="0")
        for back in range(since, -1, -every):
            stamp = round((now - back) * 1000)
            series = (labels,) if job == "llm" else (labels, info)  # the fleet has said who that rank is
            prometheus.write([remote_write.encode_series(one, 1.0, stamp) for one in series])
    found = examined(capsys, prometheus.url, tmp_path, status=1)
    told = {name: check for name, check in found.items() if name.startswith("scrapes of")}
    assert list(told) == ["scrapes of llm"]
    assert told["scrapes of llm"]["state"] == "warn" and "15s" in told["scrapes of llm"]["remedy"]


@pytest.mark.parametrize(("reason", "state"), [("glibc", "fail"), ("launch_rate", "warn")])
def test_kernels_that_are_off_are_named(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str, state: str
) -> None:
    """Ranks, but no kernel modes, and a channel that could not start or is off on purpose: with reasons."""
    now = time.time()
    Fleet(prometheus).publish(now, 64, {str(rank): {} for rank in range(4)})
    of_rank = {"training_job": "llm", "rank": "2", "channel": "kernels"}
    down = remote_write.labels_of(catalogue.CHANNEL_UP.name, **of_rank)
    why = remote_write.labels_of(catalogue.CHANNEL_INFO.name, **of_rank, reason=reason)
    stamp = round(now * 1000)
    prometheus.write(
        [remote_write.encode_series(down, 0.0, stamp), remote_write.encode_series(why, 1.0, stamp)]
    )
    found = examined(capsys, prometheus.url, tmp_path, status=1)["series of llm"]
    assert found["state"] == state
    assert found["detail"] == f"4 ranks, but no kernel modes: the channel is down on 1 ({reason})"


def test_what_is_off_on_purpose_is_what_no_alert_tells_of() -> None:
    """One list for the alert and the doctor."""
    config = (ROOT / "jsonnet" / "config.libsonnet").read_text("utf-8")
    [reasons] = re.findall("ignoredReasons: '(.*)'", config)
    assert reasons == doctor._ON_PURPOSE.pattern


def test_what_has_not_come_yet_is_not_broken(
    prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exporters without a rank, then ranks without a channel, then a first window: with what to do else."""
    stamp = round(time.time() * 1000)
    build = remote_write.labels_of(catalogue.EXPORTER_BUILD_INFO.name, version="0.1.0", instance="a")
    prometheus.write([remote_write.encode_series(build, 1.0, stamp)])
    early = examined(capsys, prometheus.url, tmp_path, "--training-job", "early", status=1)
    assert early["series"]["state"] == "wait" and "1 exporters are scraped" in early["series"]["detail"]
    Fleet(prometheus, "young").publish(time.time(), 64, {str(rank): {} for rank in range(4)})
    born = examined(capsys, prometheus.url, tmp_path, "--training-job", "young", status=1)
    assert born["series of young"]["state"] == "wait" and "yet" in born["series of young"]["detail"]
    for rank in range(4):
        up = {"training_job": "young", "rank": str(rank), "channel": "kernels"}
        labels = remote_write.labels_of(catalogue.CHANNEL_UP.name, **up)
        prometheus.write([remote_write.encode_series(labels, 1.0, stamp)])
    young = examined(capsys, prometheus.url, tmp_path, "--training-job", "young", status=1)
    assert young["series of young"]["state"] == "wait"
    assert [name for name, check in young.items() if check["state"] == "fail"] == ["rules"]


def test_a_trace_folder_that_is_not_there_is_not_ok(tmp_path: Path) -> None:
    """The default folder of a worker that no exporter shares a host with."""
    missing = Config(traces=TracesConfig(store=StoreConfig(folder=tmp_path / "none")))
    assert doctor._store(missing).state == "wait"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file where the spool should be."""
    (tmp_path / "spool").write_text("")
    found = examined(capsys, "http://127.0.0.1:1", tmp_path, status=1)
    assert (found["spool"]["state"], "--spool.dir" in found["spool"]["remedy"]) == ("fail", True)


def test_a_wrong_clock_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A backend a minute ahead: the difference, and what to do."""
    with Backend(lambda _: (200, vector())) as backend:
        backend.clock_offset = 60.0
        found = examined(capsys, backend.url, tmp_path, status=1)
    assert found["clock"]["state"] == "fail"
    assert "+60" in found["clock"]["detail"] or "+59" in found["clock"]["detail"]
    assert found["rules"]["state"] == "warn"


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """State, name, detail, and the remedy below."""
    assert main(["doctor", "--prometheus.url", "http://127.0.0.1:1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fail  prometheus")
    assert lines[1].lstrip().startswith("-> check prometheus.url")
