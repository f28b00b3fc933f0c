"""The mixin in another jsonnet project, vendored as `jb install` does it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import _jsonnet
import pytest
import rjsonnet
import yaml

from deploy.manifests import ROOT


@pytest.fixture
def vendor(tmp_path: Path) -> Path:
    """A project's vendor folder: jsonnet-bundler puts a package under its repository's name."""
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor/argus").symlink_to(ROOT)
    return tmp_path / "vendor"


def evaluate(vendor: Path, expression: str) -> Any:
    source = f"local argus = import 'argus/mixin.libsonnet'; {expression}"
    return json.loads(rjsonnet.evaluate_snippet("site.jsonnet", source, jpathdir=[str(vendor)]))


def test_the_three_parts_of_a_mixin(vendor: Path) -> None:
    """Alerts, rules and dashboards are what is committed."""
    source = """{
        groups: [group.name for group in argus.prometheusRules.groups + argus.prometheusAlerts.groups],
        alerts: [
          rule.alert for group in argus.prometheusAlerts.groups for rule in group.rules
          if std.objectHas(rule, 'alert')
        ],
        dashboards: argus.grafanaDashboards,
    }"""
    found = evaluate(vendor, source)
    committed = [yaml.safe_load(file.read_text()) for file in (ROOT / "rules").glob("argus.*.rules.yaml")]
    names = [group["name"] for document in committed for group in document["groups"]]
    assert sorted(found["groups"]) == sorted(names)
    assert found["alerts"].count("ArgusStragglerRank") == 1
    folder = ROOT / "dashboards/generated"
    assert found["dashboards"] == {file.name: json.loads(file.read_text()) for file in folder.glob("*.json")}


def test_a_site_overrides_the_configuration(vendor: Path) -> None:
    """`_config+::` reaches the selectors and the links."""
    config = """{ argusSelector: 'cluster="a"', runbookUrl: 'https://wiki.example/%s' }"""
    site = f"(argus {{ _config+:: {config} }}).prometheusAlerts.groups"
    alerts = [rule for group in evaluate(vendor, site) for rule in group["rules"] if "alert" in rule]
    assert alerts[0]["annotations"]["runbook_url"] == f"https://wiki.example/{alerts[0]['alert']}"
    [down] = [rule for rule in alerts if rule["alert"] == "ArgusChannelDown"]
    assert 'argus_channel_up{cluster="a"}' in down["expr"]
    assert "argus_channel_up)" not in down["expr"]


def test_dashboards_take_the_configuration(vendor: Path) -> None:
    """What can be chosen lies within the selector, and traces are where the alerts say they are."""
    config = """{ argusSelector: 'site="a"', traceUrl: 'https://argus.example' }"""
    boards = evaluate(vendor, f"(argus {{ _config+:: {config} }}).grafanaDashboards")
    variables = {one["name"]: one["query"] for one in boards["argus-job.json"]["templating"]["list"]}
    assert variables["cluster"] == 'label_values(argus_rank_up{site="a"}, cluster)'
    assert (
        variables["training_job"]
        == 'label_values(argus_rank_up{site="a", cluster=~"$cluster|"}, training_job)'
    )
    assert variables["traces"] == "https://argus.example"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["prometheusRules", "prometheusAlerts"])
def test_a_users_import_is_rendered_in_seconds(vendor: Path, part: str) -> None:
    """Users have C++ jsonnet, which interprets `%` and std.findSubstr: alerts took 17 s of CPU with them.

    On a quiet core rules take 2.3 s and alerts 3.8, of 5 that are promised. That is 4 to 5 and 7 to 8 times
    as long as 50,000 objects, which slow or busy cores take longer for, too; 17 s were 33 times.
    """
    source = f"(import 'argus/mixin.libsonnet').{part}"
    objects = (
        "std.foldl(function(sum, at) sum + std.length({ name: 'rule' + at }.name), std.range(1, 50000), 0)"
    )
    before, rendering, after = (cpu_seconds(vendor, text) for text in (objects, source, objects))
    assert rendering < 13 * max(before, after)


def cpu_seconds(vendor: Path, source: str) -> float:
    """Of this process, for rendering it with C++ jsonnet."""
    begun = time.process_time()
    _jsonnet.evaluate_snippet("site.jsonnet", source, jpathdir=[str(vendor)])
    return time.process_time() - begun


def test_mixins_add_up(vendor: Path) -> None:
    """Beside another mixin nothing of either is lost."""
    other = "{ prometheusAlerts+:: { groups+: [{ name: 'other' }] }, grafanaDashboards+:: { 'b.json': {} } }"
    names = "[group.name for group in both.prometheusAlerts.groups]"
    groups, boards = evaluate(vendor, f"local both = {other} + argus; [{names}, both.grafanaDashboards]")
    assert groups[0] == "other"
    assert len(groups) > 1
    assert "b.json" in boards and "argus-job.json" in boards


def test_jsonnet_bundler_reads_the_package() -> None:
    """jsonnetfile.json at the root, so that `jb install` vendors dashboards with the rules."""
    file = json.loads((ROOT / "jsonnetfile.json").read_text())
    assert file == {"version": 1, "dependencies": [], "legacyImports": True}


@pytest.mark.slow
def test_an_older_jsonnet_understands_it(vendor: Path) -> None:
    """The jsonnet on PATH (Debian 12: 0.18, in C++) makes the same rules as the one of our generator."""
    jsonnet = shutil.which("jsonnet")
    if jsonnet is None:
        pytest.skip("jsonnet is absent: apt-get install jsonnet")
    rules = "[argus.prometheusRules, argus.prometheusAlerts]"
    source = f"local argus = import 'argus/mixin.libsonnet'; {rules}"
    command = [jsonnet, "-J", str(vendor), "-e", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == evaluate(vendor, rules)


@pytest.mark.long_form
def test_the_reference_jsonnet_makes_the_same_manifests() -> None:
    """Google's jsonnet, newest of the package index, against the one of our generator."""
    source = str(ROOT / "jsonnet/deploy.jsonnet")
    assert json.loads(_jsonnet.evaluate_file(source)) == json.loads(rjsonnet.evaluate_file(source))
