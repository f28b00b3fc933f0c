"""Beyond one Prometheus: the configurations of docs/scale-out.md, loaded by the real programs that are here.

Prometheus (server, agent, receiver) and VictoriaMetrics run. Of Mimir and Thanos there is no program here:
their files are held against the limits that our rules need, and the schemas of Kubernetes.
"""

from __future__ import annotations

import contextlib
import functools
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


@pytest.mark.parametrize(
    "name", ["prometheus-shard.yaml", "prometheus-agent.yaml", "prometheus-central.yaml"]
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


def test_mimirs_limits_hold_our_rules() -> None:
    """20 rules a group and 70 groups a tenant are its defaults, and nobody has to raise them."""
    limits = load("mimir-overrides.yaml")["overrides"]["argus"]
    assert not [name for name in limits if name.startswith("ruler_max_rule")]
    assert max(len(group["rules"]) for group in rule_groups()) <= 20
    assert len(rule_groups()) <= 70


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
    assert {'--label=replica="$(POD_NAME)"', "--alert.label-drop=replica"} <= set(container["args"])
