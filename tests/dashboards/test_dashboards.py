"""Generated dashboards: what Grafana accepts, what Prometheus can answer, what a reader needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from argus_core.catalogue import SAMPLE_NAMES
from argus_core.causes import TEAMS, WORDS

# First: it puts dashboards/ on the path.
from tools.generate_dashboards import DASHBOARDS, FOLDER, main, render  # isort: skip
from argus_dashboards.inspection import interpolate, metric_names, panels, queries
from argus_dashboards.theme import TEAM_COLOURS

REPOSITORY = FOLDER.parent
SCHEMA = REPOSITORY.parent / "shared" / "prototypes" / "dashboards" / "grafana_dashboard.schema.json"
RULES = REPOSITORY / "rules"

PROMETHEUS_OWN = {
    "ALERTS",
    "ALERTS_FOR_STATE",
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "prometheus_tsdb_head_series",
    "prometheus_rule_group_last_duration_seconds",
    "prometheus_rule_group_interval_seconds",
    "prometheus_rule_group_iterations_missed_total",
    "prometheus_rule_group_rules",
}
"""Series that Prometheus itself writes: of alerting rules, of scrapes, of itself."""
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
"""What every exporter made with prometheus_client says of its process."""
NO_JOB = {"argus-jobs", "argus-itself"}
"""Dashboards of all jobs."""
ONLY_PROMETHEUS = ("expr", "step", "titleFormat", "textFormat", "tagKeys", "useValueForTime")
"""Keys of an annotation that belong to its data source: Grafana keeps them, its schema names none of them.

Source: grafana, packages/grafana-prometheus/src/annotations.ts
"""

VALUES = {
    "training_job": "llm",
    "cluster": ".*",
    "phase": ".+",
    "rank": "0|1|2",
    "window": "2m",
    "role": ".*",
    "kernel": "gemm-0a1b2c3d",
    "coordinate": "node",
    "gpu": "GPU-0",
    **{f"card_{name}": "x" for name in ("rank", "cause", "phase", "part_group", "row", "node")},
    "card_set": "",
    "card_group": "",
    "card_lasted": "15",
    "card_step": "15",
    "traces": "http://worker",
    "map_phase": "forward",
    "map_statistic": "rank:argus_phase_duration_seconds:median_ratio",
    "map_step": "[0-9]",
    "__interval": "15s",
    "__rate_interval": "1m",
    "__range": "1h",
}
"""What Grafana would put in place of each variable."""

GRID_WIDTH = 24

every_dashboard = pytest.mark.parametrize("uid", sorted(DASHBOARDS))


def generated(uid: str) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(render(DASHBOARDS[uid]))
    return dashboard


def names(uid: str) -> set[str]:
    return {variable["name"] for variable in generated(uid)["templating"]["list"]}


def rule_files() -> list[Path]:
    return sorted(RULES.glob("*.yaml"))


def rules() -> Iterable[dict[str, Any]]:
    for file in rule_files():
        for group in yaml.load(file.read_text(), yaml.CSafeLoader)["groups"]:
            yield from group["rules"]


def test_committed_files_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` finds no difference between the sources and dashboards/generated."""
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_a_changed_file_is_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` names the file that differs, exits 1 and leaves it alone."""
    file = tmp_path / "generated" / "argus-job.json"
    file.parent.mkdir()
    file.write_text("{}\n")
    monkeypatch.setattr("tools.generate_dashboards.FOLDER", tmp_path)

    assert main(["--check"]) == 1
    assert "argus-job.json is out of date" in capsys.readouterr().err
    assert file.read_text() == "{}\n"


def test_nothing_but_generated_files_is_committed() -> None:
    """A dashboard that was renamed leaves no old file behind."""
    assert {file.stem for file in (FOLDER / "generated").glob("*.json")} == set(DASHBOARDS)


@every_dashboard
def test_grafana_accepts_it(uid: str) -> None:
    """It is valid under the JSON schema made from the types of @grafana/schema."""
    if not SCHEMA.exists():
        pytest.skip(f"the schema of Grafana dashboards is absent: no file {SCHEMA}")
    schema = json.loads(SCHEMA.read_text())
    dashboard = generated(uid)
    for mark in dashboard["annotations"]["list"]:
        for key in ONLY_PROMETHEUS:
            del mark[key]

    errors = [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        for error in jsonschema.Draft7Validator(schema).iter_errors(dashboard)
    ]

    assert errors == []


@every_dashboard
def test_uid_is_the_file_name(uid: str) -> None:
    """Alerts and other dashboards link to the uid."""
    assert generated(uid)["uid"] == uid


@every_dashboard
def test_panel_ids_are_unique(uid: str) -> None:
    """Rows included: Grafana drops one of two panels with the same id."""
    dashboard = generated(uid)
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    ids = [panel["id"] for panel in [*rows, *panels(dashboard)]]

    assert len(ids) == len(set(ids))


@every_dashboard
def test_panels_fill_the_grid_without_overlap(uid: str) -> None:
    """Every cell of the grid belongs to one panel at most, and no panel leaves it."""
    dashboard = generated(uid)
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    taken: dict[tuple[int, int], str] = {}
    for panel in [*rows, *panels(dashboard)]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID_WIDTH, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


@every_dashboard
def test_every_panel_says_what_to_conclude(uid: str) -> None:
    """A title, and a description of whole sentences on one line."""
    for panel in panels(generated(uid)):
        assert panel["title"]
        assert re.fullmatch(r"\S.{40,}\.", panel["description"]), panel["title"]


@every_dashboard
def test_every_number_has_a_unit(uid: str) -> None:
    """Each value column of a table, and each other panel that shows numbers rather than states."""
    for panel in panels(generated(uid)):
        config = panel["fieldConfig"]
        if panel["type"] == "state-timeline":
            assert config["defaults"]["mappings"], panel["title"]
        elif panel["type"] == "heatmap":
            assert panel["options"]["cellValues"]["unit"], panel["title"]
        elif panel["type"] == "table" and panel["transformations"][-1]["id"] == "organize":
            headings = panel["transformations"][-1]["options"]["renameByName"]
            with_unit = {
                override["matcher"]["options"]
                for override in config["overrides"]
                for property_ in override["properties"]
                if property_["id"] == "unit"
            }
            values = {heading for name, heading in headings.items() if name.startswith("Value")}
            assert values <= with_unit, panel["title"]
        else:
            assert config["defaults"]["unit"], panel["title"]


@every_dashboard
def test_every_table_column_override_names_a_column(uid: str) -> None:
    """An override of a heading that was renamed would silently do nothing."""
    for panel in panels(generated(uid)):
        if panel["type"] == "table" and panel["transformations"][-1]["id"] == "organize":
            headings = set(panel["transformations"][-1]["options"]["renameByName"].values())
            overridden = {
                override["matcher"]["options"]
                for override in panel["fieldConfig"]["overrides"]
                if override["matcher"]["id"] == "byName"
            }
            assert overridden <= headings, panel["title"]


@every_dashboard
def test_every_query_reads_known_series(uid: str) -> None:
    """Each name is in the catalogue, recorded by a rule of rules/*.yaml, or Prometheus's own."""
    if not rule_files():
        pytest.skip(f"no generated rules in {RULES}: run `make generate`")
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    hardware = {name for rule in rules() for name in metric_names(rule["expr"]) if name.startswith("DCGM_")}
    known = SAMPLE_NAMES | recorded | PROMETHEUS_OWN | PROCESS | hardware

    unknown = {
        (query.panel, name)
        for query in queries(generated(uid))
        for name in metric_names(interpolate(query.expr, VALUES)) - known
    }

    assert unknown == set()


@every_dashboard
def test_promtool_parses_every_query(uid: str, tmp_path: Path) -> None:
    """As rules, with Grafana's variables replaced. A variable that does not exist fails here too."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is absent: apt-get install prometheus")
    file = tmp_path / "queries.yaml"
    recorded = [
        {"record": f"dashboard:query{index}:value", "expr": interpolate(query.expr, VALUES)}
        for index, query in enumerate(queries(generated(uid)))
    ]
    file.write_text(yaml.safe_dump({"groups": [{"name": uid, "rules": recorded}]}))

    checked = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@every_dashboard
def test_grafana_recognises_every_variable_query(uid: str) -> None:
    """By the patterns of its Prometheus data source, whose dot stops at a newline."""
    patterns = (r"label_values\((?:(.+),\s*)?([a-zA-Z_$][\w|:]*)\)\s*", r"query_result\((.+)\)\s*")
    for variable in generated(uid)["templating"]["list"]:
        if variable["type"] == "query":
            assert any(re.fullmatch(pattern, variable["query"]) for pattern in patterns), variable["name"]


@every_dashboard
def test_every_query_is_of_one_job(uid: str) -> None:
    """Each selector of a rank, group or job series names the job; only the L3 worker's own state has none."""
    if uid in NO_JOB:
        pytest.skip("it shows all jobs")
    for query in queries(generated(uid)):
        if query.panel in {"L3 worker", "variable training_job", "variable cluster"}:
            continue
        assert "$training_job" in query.expr or 'UUID="$gpu"' in query.expr, query


@every_dashboard
def test_no_query_returns_a_series_per_rank_of_a_large_job(uid: str) -> None:
    """Results by rank are cut by topk or by the variable `rank`, which holds a top-k itself."""
    for query in queries(generated(uid)):
        whole = r"(max|sum|count|avg|quantile)( by \((?![^)]*\brank\b)[^)]*\))? ?\("
        if re.search(r"\bby \([^)]*\brank\b", query.expr) and not re.match(whole, query.expr):
            assert "topk" in query.expr or 'rank=~"$rank"' in query.expr, query


@every_dashboard
def test_links_lead_to_dashboards_with_these_variables(uid: str) -> None:
    """Path and var-... parameters of every data link exist, and keep the data source and the time."""
    for panel in panels(generated(uid)):
        for override in panel["fieldConfig"]["overrides"]:
            for property_ in override["properties"]:
                for link in property_["value"] if property_["id"] == "links" else ():
                    path = re.match(r"/d/([\w-]+)/\1\?", link["url"])
                    if path is None:
                        assert link["url"].startswith(("https://", "${traces}/")), link
                        continue
                    variables = set(re.findall(r"var-(\w+)=", link["url"]))
                    assert variables <= names(path[1]), link
                    assert {"${datasource:queryparam}", "${__url_time_range}"} <= set(
                        re.findall(r"\$\{[^}]+\}", link["url"])
                    )


def test_one_click_leads_from_jobs_to_job_to_rank_to_kernel() -> None:
    """Each dashboard links to the next."""
    way = ["argus-jobs", "argus-job", "argus-rank", "argus-kernel", "argus-rank"]
    for uid, following in pairwise(way):
        assert f"/d/{following}/" in json.dumps(generated(uid)), uid


@every_dashboard
def test_alerts_and_slowdowns_are_marked(uid: str) -> None:
    """Pages on every dashboard, tickets where they are few; when a job is slower than it was."""
    marks = {mark["name"]: mark for mark in generated(uid)["annotations"]["list"]}
    for name, severity in (("Alerts", "page"), ("Tickets", "ticket")):
        assert re.search(rf'ALERTS{{.*severity="{severity}"', marks[name]["expr"])
    assert marks["Alerts"]["enable"]
    assert marks["Tickets"]["enable"] == (uid == "argus-itself")
    assert ("Slowdowns" in marks) == (uid not in NO_JOB)


@every_dashboard
def test_no_variable_offers_all_ranks(uid: str) -> None:
    """At 10,000 ranks a list of ranks is a list that nobody reads: it is a top-k."""
    for variable in generated(uid)["templating"]["list"]:
        if variable["name"] == "rank":
            assert "topk(" in variable["query"]
        elif variable["type"] == "query":
            assert not variable["query"].rstrip(")").endswith(", rank")


@every_dashboard
def test_causes_are_shown_in_the_words_of_the_table(uid: str) -> None:
    """Where a text stands for a cause, it is that which alerts tell; a team that acts has a colour."""
    mappings = [
        (text, shown.get("text"))
        for panel in panels(generated(uid))
        for override in panel["fieldConfig"]["overrides"]
        for property_ in override["properties"]
        for mapping in (property_["value"] if property_["id"] == "mappings" else ())
        if mapping["type"] == "value"
        for text, shown in mapping["options"].items()
    ]
    assert {(cause, text) for cause, text in mappings if cause in WORDS} <= set(WORDS.items())
    assert TEAM_COLOURS.keys() == set(TEAMS.values())


@every_dashboard
def test_jobs_of_one_name_in_two_clusters_are_apart(uid: str) -> None:
    """What matches series of one job with another, or lists jobs, does so by cluster too."""
    for query in queries(generated(uid)):
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", query.expr):
            assert ("training_job" in labels) <= ("cluster" in labels), query


def test_a_job_opens_in_its_own_cluster() -> None:
    """And not in those that are chosen where the jobs are listed: another may have a job of that name."""
    [table] = [panel for panel in panels(generated("argus-jobs")) if panel["title"] == "Training jobs"]
    [link] = re.findall(r"/d/argus-job/argus-job\?[^\"]*", json.dumps(table))
    assert "var-cluster=${__data.fields.Cluster}" in link
    assert "${cluster:queryparam}" not in link


@every_dashboard
def test_marks_are_of_the_chosen_cluster_and_say_whose_they_are(uid: str) -> None:
    """Two clusters may have jobs of one name."""
    for mark in generated(uid)["annotations"]["list"]:
        assert "$cluster" in mark["expr"], mark["name"]
        if mark["name"] != "Slowdowns":
            assert "{{training_job}} {{cluster}}" in mark["textFormat"], mark["name"]


def test_the_age_of_the_worker_is_known_for_as_long_as_its_alert_stands() -> None:
    """Of a worker that is dead for days, the day after."""
    [expr] = [rule["expr"] for rule in rules() if rule.get("alert") == "ArgusL3WorkerBehind"]
    [lookback] = re.findall(r"max_over_time\(argus_l3_last_success_timestamp_seconds\[(\w+)\]", expr)
    for uid in ("argus-job", "argus-itself"):
        [age] = [query.expr for query in queries(generated(uid)) if "last_success" in query.expr]
        assert f"[{lookback}]" in age, uid


def test_alerts_link_to_a_dashboard_with_these_variables() -> None:
    """Path and var-... parameters of each alert's dashboard_url exist."""
    alerts = [rule["annotations"] for rule in rules() if "alert" in rule]
    links = {annotations["dashboard_url"] for annotations in alerts if "dashboard_url" in annotations}
    if not links:
        pytest.skip(f"no generated alerts in {RULES}: run `make generate`")
    for link in links:
        path = re.match(r"/d/([\w-]+)/", link)
        assert path is not None, link
        assert path[1] in DASHBOARDS, link
        assert set(re.findall(r"var-(\w+)=", link)) <= names(path[1]), link
