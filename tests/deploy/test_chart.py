"""The Helm chart, by Helm itself: what it installs, what it refuses, and that it is what kustomize makes."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import rjsonnet
import yaml

from argus_core.settings import load
from argus_exporter.config import ExporterConfig
from argus_l3_worker.config import Config
from deploy.manifests import FOLDER, ROOT, Manifest, containers, documents, patched, pod_of, the
from tools import chart, generate_chart

needs_helm = pytest.mark.skipif(chart.helm is None, reason=chart.NEEDS_HELM)

EVERYTHING = {
    "commonLabels": {"team": "ml"},
    "imagePullSecrets": [{"name": "registry"}],
    "prometheus": {"namespace": "watch", "serviceAccount": "prom", "url": "https://prometheus.example"},
    "exporter": {
        "image": {"registry": "registry.example", "digest": "sha256:0", "pullPolicy": "Always"},
        "stacks": {"enabled": True},
        "config": {"kernels": {"top_pairs": 7}, "web": {"config_file": "/more/web.yaml"}},
        "extraArgs": ["--log.format=json"],
        "extraEnv": [{"name": "AWS_REGION", "value": "eu-1"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podAnnotations": {"note": "x"},
        "podLabels": {"cost": "y"},
        "serviceAccount": {"name": "own", "annotations": {"iam": "z"}},
    },
    "l3Worker": {
        "replicas": 1,
        "image": {"tag": "2"},
        "config": {"prometheus": {"concurrency": 2}},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "nodeSelector": {"cpu": "yes"},
        "tolerations": [{"operator": "Exists"}],
    },
    "podMonitor": {"additionalLabels": {"release": "stack"}, "interval": "30s"},
    "prometheusRule": {"additionalLabels": {"release": "stack"}, "namespace": "rules"},
    "dashboards": {
        "namespace": "grafana",
        "label": "board",
        "labelValue": "yes",
        "annotations": {"folder": "A"},
    },
}
"""A value of one's own wherever there is one, but for what switches a part off."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chart.package(tmp_path_factory.mktemp("chart"))


def of(objects: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def alerts(objects: list[Manifest]) -> dict[tuple[str, int], dict[str, Any]]:
    """By name, and the number of the rule among those of that name."""
    groups = [group for one in objects if one["kind"] == "PrometheusRule" for group in one["spec"]["groups"]]
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        found[rule["alert"], sum(name == rule["alert"] for name, _ in found)] = rule
    return found


@needs_helm
def test_by_default_it_installs_what_kustomize_does(archive: Path) -> None:
    base = list(chart.kustomized(ROOT / chart.KUSTOMIZED))
    assert len(base) > 20
    assert chart.differences(chart.rendered(archive), base) == []


@needs_helm
def test_a_difference_is_seen(archive: Path) -> None:
    """An object less, one more, another port: each is named."""
    base = list(chart.kustomized(ROOT / chart.KUSTOMIZED))
    found = chart.rendered(archive, {"podMonitor": {"interval": "1m"}, "networkPolicy": {"enabled": False}})
    extra = copy.deepcopy(of(found, "Service", "argus-l3-worker"))
    extra["metadata"]["name"] = "more"
    assert sorted(chart.differences([*found, extra], base)) == [
        "NetworkPolicy argus argus-exporter: not in the chart",
        "NetworkPolicy argus argus-l3-worker: not in the chart",
        "PodMonitor argus argus-exporter: differs",
        "PodMonitor argus argus-l3-worker: differs",
        "Service argus more: not in deploy/kubernetes/all",
    ]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl (kustomize) is not on PATH")
def test_kustomize_makes_what_the_comparison_takes_it_to_make() -> None:
    """But for the hash in names of ConfigMaps, by which pods follow them."""
    command = ["kubectl", "kustomize", str(ROOT / chart.KUSTOMIZED)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    built = [one for one in yaml.load_all(run.stdout, yaml.CSafeLoader) if one]
    for one in built:
        named = [one["metadata"]] if one["kind"] == "ConfigMap" else []
        volumes = pod_of(one)["spec"]["volumes"] if one["kind"] in ("DaemonSet", "Deployment") else []
        for holder in [*named, *(volume["configMap"] for volume in volumes if "configMap" in volume)]:
            if not holder["name"].startswith("dashboard-"):
                holder["name"] = holder["name"].rpartition("-")[0]
    assert chart.differences(built, list(chart.kustomized(ROOT / chart.KUSTOMIZED))) == []


@needs_helm
def test_rules_and_dashboards_are_the_files_byte_for_byte(archive: Path) -> None:
    with chart.helm.Chart.load(archive) as loaded:
        texts = loaded.render({}, name="argus", namespace="argus")
    rules, boards = texts["argus/templates/rules.yaml"], texts["argus/templates/dashboards.yaml"]
    files = sorted((ROOT / "rules").glob("argus.*.rules.yaml"))
    assert files
    for file in files:
        assert f"spec:\n{textwrap.indent(file.read_text(), '  ', lambda _: True)}"[:-1] in rules
    files = sorted((ROOT / "dashboards/generated").glob("*.json"))
    assert files
    found = {one["metadata"]["name"]: one["data"] for one in yaml.load_all(boards, yaml.CSafeLoader) if one}
    assert {f"dashboard-{file.stem}": {file.name: file.read_text().rstrip("\n")} for file in files} == {
        name: {key: text.rstrip("\n") for key, text in data.items()} for name, data in found.items()
    }


@needs_helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"exporter": {"imag": {}}}, "'imag' not allowed"),
        ({"serviceMonitor": {"enabled": True}}, "'serviceMonitor' not allowed"),
        ({"l3Worker": {"replicas": "two"}}, "got string, want integer"),
        ({"exporter": {"image": {"tag": 1.5}}}, "got number, want string"),
        ({"commonLabels": {"prod": True}}, "got boolean, want string"),
        ({"commonLabels": {"app.kubernetes.io/part-of": "ml"}}, "part-of"),
        ({"exporter": {"podLabels": {"argus-exporter": "no"}}}, "argus-exporter"),
    ],
)
def test_a_typo_is_refused(values: dict[str, Any], said: str, archive: Path) -> None:
    with pytest.raises(chart.helm.HelmValuesError, match=said):
        chart.rendered(archive, values)


@needs_helm
def test_every_value_reaches_its_object(archive: Path) -> None:
    """All at once; what comes of it is valid, and our programs accept the files that they get."""
    found = chart.rendered(archive, EVERYTHING, release="gpu", namespace="ops")
    for one in found:
        if not one["apiVersion"].startswith("monitoring.coreos.com/"):
            kubernetes_validate.validate(one, "1.29", strict=True)
        assert one["metadata"]["labels"]["team"] == "ml"
    daemonset, deployment = (
        of(found, "DaemonSet", "gpu-argus-exporter"),
        of(found, "Deployment", "gpu-argus-l3-worker"),
    )
    exporter, worker = pod_of(daemonset), pod_of(deployment)
    [container] = containers(daemonset)
    assert container["image"] == "registry.example/argus-exporter@sha256:0"
    assert container["imagePullPolicy"] == "Always"
    assert container["args"][-1] == "--log.format=json"
    assert container["env"] == [{"name": "AWS_REGION", "value": "eu-1"}]
    assert container["volumeMounts"][-1] == {"name": "more", "mountPath": "/more"}
    assert container["securityContext"]["capabilities"] == {"add": ["SYS_PTRACE"], "drop": ["ALL"]}
    assert (
        exporter["metadata"]["labels"]["cost"] == "y" and exporter["metadata"]["annotations"]["note"] == "x"
    )
    spec = exporter["spec"]
    assert spec["volumes"][-1] == {"name": "more", "emptyDir": {}}
    assert (spec["hostPID"], spec["priorityClassName"], spec["serviceAccountName"]) == (True, "high", "own")
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true", "gpu": "yes"}, "Helm merges mappings"
    assert "tolerations" not in spec and spec["affinity"] == {"nodeAffinity": {}}
    assert spec["imagePullSecrets"] == worker["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert of(found, "ServiceAccount", "own")["metadata"]["annotations"] == {"iam": "z"}
    [container] = containers(deployment)
    assert container["image"] == "argus-l3-worker:2" and deployment["spec"]["replicas"] == 1
    assert [one["name"] for one in container["env"]] == ["POD_NAME", "HTTPS_PROXY"]
    assert worker["spec"]["nodeSelector"] == {"cpu": "yes"} and worker["spec"]["tolerations"]
    for one in found:
        if one["kind"] in ("PodMonitor", "PrometheusRule"):
            assert one["metadata"]["labels"]["release"] == "stack"
        if one["kind"] == "PrometheusRule":
            assert one["metadata"]["namespace"] == "rules"
    board = of(found, "ConfigMap", "dashboard-argus-job")["metadata"]
    assert (board["namespace"], board["labels"]["board"], board["annotations"]) == (
        "grafana",
        "yes",
        {"folder": "A"},
    )
    policy = of(found, "NetworkPolicy", "gpu-argus-l3-worker")["spec"]
    assert [one["ports"][0]["port"] for one in policy["egress"]] == [53, 443, 9877]
    [subject] = of(found, "ClusterRoleBinding", "gpu-argus-prometheus-discovery")["subjects"]
    assert subject == {"name": "prom", "kind": "ServiceAccount", "namespace": "watch"}


@needs_helm
def test_the_programs_accept_their_files(archive: Path, tmp_path: Path) -> None:
    """What a release configures goes over what the chart writes."""
    found = chart.rendered(archive, EVERYTHING, release="gpu", namespace="ops")
    (tmp_path / "exporter.yaml").write_text(
        of(found, "ConfigMap", "gpu-argus-exporter")["data"]["exporter.yaml"]
    )
    exporter = load(ExporterConfig, tmp_path / "exporter.yaml")
    assert (exporter.kernels.top_pairs, exporter.stacks.enabled) == (7, True)
    assert str(exporter.socket.path) == "/run/argus/exporter.sock"
    assert exporter.web.listen_address == ":9877", "what stands beside it stays"
    (tmp_path / "worker.yaml").write_text(
        of(found, "ConfigMap", "gpu-argus-l3-worker")["data"]["l3-worker.yaml"]
    )
    worker = load(Config, tmp_path / "worker.yaml")
    assert (worker.prometheus.url, worker.prometheus.concurrency) == ("https://prometheus.example", 2)


@needs_helm
def test_stacks_are_what_the_component_makes(archive: Path) -> None:
    """Of the pod; the file has them on as well."""
    found = chart.rendered(archive, {"exporter": {"stacks": {"enabled": True}}})
    made, base = (
        of(found, "DaemonSet", "argus-exporter"),
        patched(the("DaemonSet", "argus-exporter"), "stacks"),
    )
    assert pod_of(made)["spec"] == pod_of(base)["spec"]
    text = of(found, "ConfigMap", "argus-exporter")["data"]["exporter.yaml"]
    [file] = documents(FOLDER / "stacks/exporter.yaml")
    assert yaml.safe_load(text) == file


@needs_helm
def test_what_stands_in_a_mapping_is_taken_out_by_null(archive: Path) -> None:
    """Helm merges mappings, so a pool of another label needs that."""
    values = {
        "nodeSelector": {"nvidia.com/gpu.present": None, "pool": "gpu"},
        "resources": {"limits": {"cpu": None}},
    }
    found = of(chart.rendered(archive, {"exporter": values}), "DaemonSet", "argus-exporter")
    assert pod_of(found)["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert next(iter(containers(found)))["resources"]["limits"] == {"memory": "512Mi"}


@needs_helm
def test_sidecars_are_found_without_the_daemonset(archive: Path) -> None:
    found = chart.rendered(archive, {"exporter": {"enabled": False}})
    assert of(found, "PodMonitor", "argus-exporter")["spec"]["namespaceSelector"] == {"any": True}
    assert not [one for one in found if one["kind"] == "DaemonSet"]


@needs_helm
@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://[fd00::1]:9090", 9090),
        ("http://[fd00::1]/x", 80),
        ("https://prom.example", 443),
        ("http://user:word@prom.example:81/x", 81),
    ],
)
def test_the_worker_is_let_out_to_its_prometheus(archive: Path, url: str, port: int) -> None:
    more = [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 443, "protocol": "TCP"}]}]
    values = {"prometheus": {"url": url}, "networkPolicy": {"workerEgress": more}}
    policy = of(chart.rendered(archive, values), "NetworkPolicy", "argus-l3-worker")
    kubernetes_validate.validate(policy, "1.29", strict=True)
    egress = policy["spec"]["egress"]
    assert [one["ports"][0]["port"] for one in egress] == [53, port, 9877, 443]
    assert egress[-1:] == more


class OneKeyOnce(yaml.SafeLoader):
    """As the API server reads: a key that is there twice is an error."""


def _once(loader: OneKeyOnce, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    assert len(keys) == len(set(keys)), keys
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


OneKeyOnce.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _once)


@needs_helm
def test_a_label_of_both_kinds_is_there_once(archive: Path) -> None:
    """Of an object's own and of all: its own counts."""
    values = {
        "commonLabels": {"release": "all"},
        "podMonitor": {"additionalLabels": {"release": "own"}},
        "prometheusRule": {"additionalLabels": {"release": "own"}},
    }
    with chart.helm.Chart.load(archive) as loaded:
        files = loaded.render(values, name="argus", namespace="argus")
    for name in ("pod-monitors", "rules"):
        for one in yaml.load_all(files[f"argus/templates/{name}.yaml"], OneKeyOnce):
            assert one is None or one["metadata"]["labels"]["release"] == "own"


@needs_helm
@pytest.mark.parametrize("chosen", [{}, {"disabled": {"ArgusRankMissing": True}}], ids=["text", "chosen"])
def test_alerts_lead_where_the_site_has_it(archive: Path, chosen: dict[str, Any]) -> None:
    links = {"grafanaUrl": "https://grafana.example/", "runbookUrl": "https://wiki.example/%s?from=argus"}
    values = {"prometheusRule": chosen | links, "podMonitor": {"exporterEndpoint": {"scheme": "https"}}}
    found = chart.rendered(archive, values)
    for (name, _), rule in alerts(found).items():
        noted = rule["annotations"]
        assert noted["runbook_url"] == f"https://wiki.example/{name}?from=argus"
        assert noted["dashboard_url"].startswith("https://grafana.example/d/argus-")
        assert "argus-for-prometheus" not in noted.get("card", "")
    [endpoint] = of(found, "PodMonitor", "argus-exporter")["spec"]["podMetricsEndpoints"]
    assert endpoint == {"scheme": "https", "interval": "15s", "port": "argus-metrics"}


@needs_helm
def test_pods_follow_their_file(archive: Path) -> None:
    """Another configuration is another pod template."""
    sums = [
        pod_of(of(chart.rendered(archive, values), "DaemonSet", "argus-exporter"))["metadata"]["annotations"]
        for values in ({}, {"exporter": {"config": {"kernels": {"top_pairs": 7}}}})
    ]
    assert sums[0]["checksum/config"] != sums[1]["checksum/config"]


@needs_helm
def test_alerts_can_be_left_out_and_called_otherwise(archive: Path) -> None:
    """Nothing else of the rules changes."""
    every = alerts(chart.rendered(archive))
    chosen = {"disabled": {"ArgusStragglerRank": True}, "severities": {"page": "critical"}}
    left = alerts(chart.rendered(archive, {"prometheusRule": chosen}))
    assert every.keys() - left.keys() == {("ArgusStragglerRank", 0)}
    of_series = '{{ if eq $labels.severity "page" }}critical{{ else }}{{ $labels.severity }}{{ end }}'
    said = set()
    for name, rule in left.items():
        before = every[name].get("labels", {}).pop("severity", None)
        after = rule["labels"].pop("severity")
        assert after == {"page": "critical", None: of_series}.get(before, before), name
        said.add(after)
        assert {"labels": {}} | rule == {"labels": {}} | every[name]
    assert {"critical", "ticket", of_series} <= said


SEVERITIES = {"page": "critical", "ticket": "page"}
"""One is a name of ours for something else."""


def severities_of(text: str) -> tuple[set[str], set[str]]:
    """Of a dashboard: the severities that its queries ask for, and those that its tables colour."""
    asked = re.findall(r'severity=~?"([\w|]+)"', text.replace('\\"', '"'))
    coloured: set[str] = set()

    def look(value: Any) -> Any:
        coloured.update(value.keys() & {"page", "ticket", "critical"} if isinstance(value, dict) else ())
        return value

    json.loads(text, object_hook=look)
    return set(asked), coloured


@needs_helm
def test_dashboards_follow_the_severities(archive: Path) -> None:
    """By the chart and by the mixin: nothing is green because it has another name."""
    found = chart.rendered(archive, {"prometheusRule": {"severities": SEVERITIES}})
    boards = {
        name: text
        for one in found
        if one["kind"] == "ConfigMap"
        for name, text in one["data"].items()
        if name.endswith(".json")
    }
    mixin = f"(import 'mixin.libsonnet') {{ _config+:: {{ severities+: {json.dumps(SEVERITIES)} }} }}"
    made = json.loads(rjsonnet.evaluate_snippet("site", f"({mixin}).grafanaDashboards", jpathdir=[str(ROOT)]))
    assert {name: json.loads(text) for name, text in boards.items()} == made
    ours = (ROOT / "dashboards/generated/argus-job.json").read_text()
    assert severities_of(ours) == ({"page", "ticket", "info", "page|ticket"}, {"page", "ticket"})
    assert severities_of(boards["argus-job.json"]) == (
        {"critical", "page", "info", "critical|page"},
        {"critical", "page"},
    )


@needs_helm
def test_each_part_can_be_left_out(archive: Path) -> None:
    """Switched off, it leaves no object behind."""
    off: dict[str, Any] = {"enabled": False}
    parts = ("exporter", "l3Worker", "podMonitor", "prometheusRule", "dashboards", "networkPolicy")
    everything_off = dict.fromkeys(parts, off) | {"rbac": {"create": False}}
    assert chart.rendered(archive, everything_off) == []
    alone = chart.rendered(archive, everything_off | {"l3Worker": {"enabled": True}})
    assert {one["metadata"]["name"] for one in alone} == {"argus-l3-worker"}


@needs_helm
def test_notes_say_what_to_do_when_nothing_is_scraped(archive: Path) -> None:
    """With the label that kube-prometheus-stack wants, and the values as they are."""
    with chart.helm.Chart.load(archive) as loaded:
        notes = loaded.render({"prometheus": {"namespace": "watch"}}, name="argus", namespace="ops")[
            "argus/templates/NOTES.txt"
        ]
    values = (ROOT / generate_chart.CHART / "values.yaml").read_text()
    assert "podMonitor: {additionalLabels: {release:" in notes and "additionalLabels:" in values
    assert "prometheus.namespace is watch" in notes and "-n ops" in notes


@needs_helm
def test_a_chart_without_its_rules_says_so() -> None:
    """The folder in the repository has templates only."""
    with pytest.raises(chart.helm.HelmRenderError, match="make chart"):
        chart.rendered(ROOT / generate_chart.CHART)


@needs_helm
def test_helm_lints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that does not close is refused with Helm's words."""
    broken = shutil.copytree(ROOT / generate_chart.CHART, tmp_path / generate_chart.CHART)
    (broken / "templates/more.yaml").write_text("{{- if .Values.rbac.create }}\n")
    assemble = chart.assemble
    monkeypatch.setattr(chart, "assemble", lambda folder: assemble(folder, tmp_path))
    with pytest.raises(chart.Refused, match=r"helm lint:.*more\.yaml"):
        chart.package(tmp_path / "dist")


def test_five_ways_of_templates_in_strings() -> None:
    value = {
        "text": "a-{{ .A }}",
        "value": "{{= .B }}",
        "maybe": "{{? ternary \"x\" 'y' .C }}",
        "map": {"fixed": 1, "{{> .D }}": None},
        "list": ["fixed", "{{+ .E }}"],
    }
    assert generate_chart.template(value).splitlines() == [
        "text: a-{{ .A }}",
        "value: {{ .B | toJson }}",
        "{{- with ternary \"x\" 'y' .C }}",
        "maybe: {{ . | toJson }}",
        "{{- end }}",
        "map:",
        "  fixed: 1",
        "{{- with .D }}{{ toYaml . | nindent 2 }}{{- end }}",
        "list:",
        "- fixed",
        "{{- with .E }}{{ toYaml . | nindent 0 }}{{- end }}",
    ]


def test_a_value_without_a_type_is_refused() -> None:
    """The schema is made of values.yaml, where null says nothing."""
    with pytest.raises(TypeError, match="tag is None"):
        generate_chart.schema_of({"image": {"tag": None}})
