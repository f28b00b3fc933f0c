"""Beyond one Prometheus: the configurations of docs/scale-out.md and docs/engines, in the real programs.

Prometheus (server, pair, agent, receiver) and VictoriaMetrics run. Of Mimir, Cortex and Thanos there is no
program here: their files are held against the rules, the budget, and the schemas of Kubernetes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from argus_core.catalogue import CATALOGUE
from argus_exporter.budget.forecast import forecast
from argus_exporter.budget.series import A_RANK, Fleet, of_family
from argus_simulator.stack.processes import start_server
from argus_simulator.stack.prometheus import PrometheusApi
from argus_simulator.stack.waiting import wait_for
from deploy.manifests import ROOT, documents

FOLDER = ROOT / "deploy/scale-out"
PATIENCE_S = 60.0
JOBS = [f"job-{number}" for number in range(20)]

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on PATH")
needs_victoria = pytest.mark.skipif(
    shutil.which("victoria-metrics") is None or shutil.which("vmalert") is None,
    reason="victoria-metrics and vmalert are not on PATH",
)


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return document


@contextlib.contextmanager
def two_hosts() -> Iterator[list[str]]:
    """Two exporters, each with one rank of every job, as host:port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            rank = self.server.server_port
            lines = ["# TYPE argus_rank_up gauge"]
            lines += [f'argus_rank_up{{training_job="{job}",rank="{rank}"}} 1' for job in JOBS]
            body = "\n".join([*lines, "argus_exporter_connections 2", ""]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) for _ in range(2)]
        for server in servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        yield [f"127.0.0.1:{server.server_port}" for server in servers]


def adapted(name: str, folder: Path, targets: list[str]) -> Path:
    """The configuration with its targets and rules here, scraping each second."""
    config = load(name)
    config["global"] |= {"scrape_interval": "1s"} if "scrape_configs" in config else {}
    for scrape in config.get("scrape_configs", []):
        assert scrape.pop("file_sd_configs")
        scrape["static_configs"] = [{"targets": targets}]
    if "rule_files" in config:
        config["rule_files"] = [str(ROOT / "rules/argus.*.yaml")]
        config["alerting"]["alertmanagers"] = []
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


@functools.cache
def agent_flag() -> str:
    """What Prometheus 3 calls by one name, and 2 by another."""
    run = subprocess.run(["prometheus", "--help"], capture_output=True, text=True, check=False)
    return "--agent" if "--[no-]agent" in run.stdout + run.stderr else "--enable-feature=agent"


@contextlib.contextmanager
def prometheus(config: Path, *flags: str) -> Iterator[str]:
    """A Prometheus with that configuration; its URL."""
    data = "--storage.agent.path" if agent_flag() in flags else "--storage.tsdb.path"
    server = start_server(
        "prometheus",
        lambda port: [
            "prometheus",
            f"--config.file={config}",
            f"{data}={config.parent / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            *flags,
        ],
        "/-/ready",
        config.parent / "log",
    )
    try:
        yield server.url
    finally:
        server.child.stop()


@needs_prometheus
@pytest.mark.servers
def test_each_job_is_whole_on_one_shard(tmp_path: Path) -> None:
    """Two servers scrape the same hosts: every job is on one of them, with both of its ranks."""
    text = (FOLDER / "prometheus-shard.yaml").read_text(encoding="utf-8")
    assert "regex: ';.*|.+;0'" in text
    found = []
    with two_hosts() as targets:
        for shard in range(2):
            config = adapted("prometheus-shard.yaml", tmp_path / str(shard), targets)
            config.write_text(config.read_text().replace(";.*|.+;0", f";.*|.+;{shard}"), encoding="utf-8")
            with prometheus(config) as url:
                api = PrometheusApi(url)
                wait_for(lambda api=api: len(api.query("up == 1")) == 2, PATIENCE_S, "both hosts")
                ranks = api.query("count by (training_job) (argus_rank_up)")
                found.append({labels["training_job"]: value for labels, value in ranks})
                assert len(api.query("argus_exporter_connections")) == 2, "what has no job is on every shard"
                assert api.query('{__tmp_shard!=""}') == []
    assert found[0].keys() | found[1].keys() == set(JOBS)
    assert not found[0].keys() & found[1].keys()
    assert all(value == 2 for jobs in found for value in jobs.values())
    assert len(found[0]) > 3 < len(found[1])


@needs_prometheus
@pytest.mark.servers
def test_an_agent_writes_to_where_the_rules_are(tmp_path: Path) -> None:
    """The agent scrapes and has no rules; the receiver gets its series and evaluates the mixin."""
    assert not {"rule_files", "alerting"} & set(load("prometheus-agent.yaml"))
    with two_hosts() as targets:
        central = adapted("prometheus-central.yaml", tmp_path / "central", [])
        with prometheus(central, "--web.enable-remote-write-receiver") as url:
            agent = adapted("prometheus-agent.yaml", tmp_path / "agent", targets)
            text = agent.read_text().replace("http://prometheus-central:9090", url)
            agent.write_text(text, encoding="utf-8")
            with prometheus(agent, agent_flag()):
                api = PrometheusApi(url)
                wait_for(
                    lambda: len(api.query('argus_rank_up{cluster="a"}')) == 2 * len(JOBS),
                    PATIENCE_S,
                    "its series",
                )
                wait_for(
                    lambda: len(api.query("job:argus_ranks:count")) == len(JOBS),
                    PATIENCE_S,
                    "a rule's series",
                )
                assert api.rule_errors() == []


@needs_prometheus
@pytest.mark.servers
def test_a_pair_sends_alerts_of_the_same_labels(tmp_path: Path) -> None:
    """So Alertmanager has one; what either remembers or sends on still has its name."""
    rule = {"alert": "Up", "expr": 'count by (training_job) (argus_rank_up{training_job="job-1"}) == 2'}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [rule]}]}))
    with two_hosts() as targets, alerts_received() as (address, received):
        for name in ("a", "b"):
            file = adapted("prometheus-pair.yaml", tmp_path / name, targets)
            config = yaml.safe_load(file.read_text())
            config["global"] |= {"evaluation_interval": "1s"}
            config["global"]["external_labels"]["prometheus_replica"] = name
            config["rule_files"] = [str(tmp_path / "rules.yaml")]
            config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [address]}]}]
            file.write_text(yaml.safe_dump(config), encoding="utf-8")
            before = len(received)
            with prometheus(file):
                wait_for(lambda before=before: len(received) > before, PATIENCE_S, "its alert")
    labels = {tuple(sorted(alert["labels"].items())) for alert in received}
    assert labels == {(("alertname", "Up"), ("cluster", "a"), ("training_job", "job-1"))}


@contextlib.contextmanager
def alerts_received() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What stands for Alertmanager: its host:port, and the alerts that it was sent."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", received
        server.shutdown()


@pytest.mark.parametrize(
    "name",
    ["prometheus-shard.yaml", "prometheus-pair.yaml", "prometheus-agent.yaml", "prometheus-central.yaml"],
)
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_promtool_accepts_the_configuration(name: str) -> None:
    agent = ["--agent"] if "agent" in name else []
    command = ["promtool", "check", "config", "--syntax-only", *agent, str(FOLDER / name)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@needs_victoria
@pytest.mark.servers
def test_victoria_metrics_accepts_scraping_and_the_rules() -> None:
    """Unknown fields are refused by both."""
    scrape = f"-promscrape.config={FOLDER / 'victoria-metrics-scrape.yaml'}"
    for command in (
        ["victoria-metrics", "-dryRun", scrape],
        ["vmalert", "-dryRun", f"-rule={ROOT / 'rules/*.yaml'}"],
    ):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


def rule_groups() -> list[dict[str, Any]]:
    """Those of every file, the optional ones too."""
    return [
        group for file in sorted((ROOT / "rules").glob("*.yaml")) for group in documents(file)[0]["groups"]
    ]


ENGINES = ("mimir", "cortex")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tenants_limits_hold_what_the_budget_forecasts(engine: str) -> None:
    """10,000 ranks: samples a second, one push of every exporter at once, series, those of a metric."""
    limits = load(f"{engine}-overrides.yaml")["overrides"]["argus"]
    fleet = Fleet(ranks=10_000)
    cost = forecast(fleet)
    assert cost.samples_per_second < limits["ingestion_rate"] < 2 * cost.samples_per_second
    assert limits["ingestion_burst_size"] > cost.samples_per_second * 5, "what five seconds bring"
    assert cost.series < limits["max_global_series_per_user"] < 2 * cost.series
    largest = max(
        fleet.ranks * of_family(family, fleet) / len(family.sample_names)
        for family in CATALOGUE
        if family.name in A_RANK
    )
    assert limits["max_fetched_series_per_query"] > 2 * largest
    if engine == "cortex":  # whose defaults are a limit; Mimir has none
        assert limits["max_series_per_metric"] == limits["max_series_per_user"] == 0
        assert largest < limits["max_global_series_per_metric"] < 2 * largest


@pytest.mark.parametrize("engine", ENGINES)
def test_rules_are_within_the_limits_of_rules(engine: str) -> None:
    """20 rules a group and 70 groups a tenant are Mimir's defaults: nobody has to raise them."""
    limits = load(f"{engine}-overrides.yaml")["overrides"]["argus"]
    assert not [name for name in limits if name.startswith("ruler_max_rule")]
    groups, most = len(rule_groups()), max(len(group["rules"]) for group in rule_groups())
    assert most <= 20
    assert groups <= 70
    text = (FOLDER / f"{engine}-overrides.yaml").read_text(encoding="utf-8")
    assert f"ours are {groups} groups of at most {most} rules" in text


def test_rules_are_within_those_of_amazon() -> None:
    """2,000 rules a workspace (docs/engines/managed.md)."""
    assert sum(len(group["rules"]) for group in rule_groups()) < 2000


def test_groups_have_no_field_that_some_engine_refuses() -> None:
    """As Prometheus 2.42 knows them, and vmalert, Thanos and Mimir beside it."""
    for group in rule_groups():
        assert set(group) == {"name", "interval", "rules"}, group["name"]
        for rule in group["rules"]:
            assert set(rule) <= {"record", "alert", "expr", "for", "labels", "annotations"}, group["name"]


def test_rules_hold_where_results_are_seen_late() -> None:
    """Nothing in them depends on the end of a query, or looks ahead: engines differ in both."""
    for group in rule_groups():
        for rule in group["rules"]:
            assert not re.search(r"@ (end|start|\d)|offset -", rule["expr"]), group["name"]


def test_thanos_has_a_ruler_without_state() -> None:
    """A valid object whose flags name the files that it mounts; replicas do not double alerts."""
    [ruler] = documents(FOLDER / "thanos-rule.yaml")
    kubernetes_validate.validate(ruler, "1.29", strict=True)
    [container] = ruler["spec"]["template"]["spec"]["containers"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    files = [flag.split("=", 1)[1] for flag in container["args"] if "=/" in flag]
    assert files
    for file in files:
        assert any(file.startswith(folder) for folder in mounted), file
    assert {
        '--label=replica="$(POD_NAME)"',
        "--alert.label-drop=replica",
        "--alert.label-drop=tenant_id",
        "--restore-ignored-label=replica",
    } <= set(container["args"])


def vmalert_flags() -> list[str]:
    [deployment] = documents(FOLDER / "vmalert.yaml")
    kubernetes_validate.validate(deployment, "1.29", strict=True)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def test_vmalert_outlives_a_stall_and_refuses_half_an_answer() -> None:
    """It ends an alert four intervals, or four delays, ahead: no less than Prometheus' four minutes."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in vmalert_flags())
    delay_s = 60 * int(flags["rule.resendDelay"].removesuffix("m"))
    shortest_s = min(float(group["interval"].rstrip("sm")) for group in rule_groups())
    assert 4 * shortest_s < 60 and 4 * delay_s >= 240
    assert flags["datasource.url"].endswith("?deny_partial_response=1")
    assert flags["datasource.queryStep"] == "5m" and "remoteRead.url" in flags


@needs_victoria
@pytest.mark.servers
def test_vmalert_knows_its_flags() -> None:
    """Debian's, which is years older than the image that the manifest names."""
    flags = [flag for flag in vmalert_flags() if not flag.startswith("-rule=")]
    command = ["vmalert", "-dryRun", f"-rule={ROOT / 'rules/argus.*.yaml'}", *flags]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_tenants_alertmanager_names_no_file() -> None:
    """Templates by their bare name, and every secret to be filled in: Mimir and Cortex refuse all else."""
    text = (FOLDER / "alertmanager-tenant.yaml").read_text(encoding="utf-8")
    assert "_file" not in text and "/etc/" not in text
    config = yaml.safe_load(text)
    assert config["templates"] == ["argus.tmpl"]
    complete = documents(ROOT / "alertmanager/alertmanager.slack.yaml")[0]
    assert {one["name"] for one in config["receivers"]} == {one["name"] for one in complete["receivers"]}
    assert (config["route"], config["inhibit_rules"]) == (complete["route"], complete["inhibit_rules"])
    configs = [one for receiver in config["receivers"] for one in receiver["slack_configs"]]
    assert all("REPLACE-slack-" in one["api_url"] for one in configs)
    pagers = [one for receiver in config["receivers"] for one in receiver.get("pagerduty_configs", [])]
    assert len(pagers) == 3 and all(one["routing_key"].startswith("REPLACE-pagerduty-") for one in pagers)


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not on PATH")
def test_amtool_accepts_the_tenants_alertmanager(tmp_path: Path) -> None:
    """Beside its template, as both are uploaded."""
    for file in (FOLDER / "alertmanager-tenant.yaml", ROOT / "alertmanager/templates/argus.tmpl"):
        shutil.copy(file, tmp_path)
    command = ["amtool", "check-config", str(tmp_path / "alertmanager-tenant.yaml")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 templates" in run.stdout
