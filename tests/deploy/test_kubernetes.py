"""Kubernetes manifests: valid, consistent with what the programs read, and no more rights than each needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from argus_core.settings import load
from argus_exporter.config import ExporterConfig
from argus_exporter.intake.listener import access_of, listen
from argus_l3_worker.config import Config
from argus_training import settings
from deploy.manifests import (
    FOLDER,
    ROOT,
    Manifest,
    containers,
    documents,
    manifests,
    ours,
    patched,
    pod_of,
    the,
)

OLDEST = "1.29"
"""Sidecars (restartPolicy of init containers) are on by default from here."""

EXPORTER = the("DaemonSet", "argus-exporter")
WORKER = the("Deployment", "argus-l3-worker")
SIDECAR = the("Job", "train", "sidecar")
TRAINING = the("Job", "train", "training")
WORKLOADS = {
    "daemonset": EXPORTER,
    "daemonset with stacks": patched(EXPORTER, "stacks"),
    "worker": WORKER,
    "sidecar": SIDECAR,
    "sidecar with stacks": patched(SIDECAR, "sidecar-stacks"),
    "training": TRAINING,
}

needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl (kustomize) is not on PATH"
)


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize(
    ("name", "manifest"), manifests(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_manifest_is_valid(name: str, manifest: Manifest, version: str) -> None:
    """Against the schemas of Kubernetes, unknown fields refused; the Operator's objects are checked below."""
    if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
        assert manifest["kind"] in ("PrometheusRule", "PodMonitor"), name
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if "stacks" in name])
def test_a_patched_workload_is_valid(workload: str) -> None:
    kubernetes_validate.validate(WORKLOADS[workload], OLDEST, strict=True)


def test_an_invalid_manifest_is_refused() -> None:
    """The schemas see a wrong type and an unknown field."""
    for field, value in (("replicas", "two"), ("replica", 2)):
        broken = yaml.safe_load(yaml.safe_dump(WORKER))
        broken["spec"][field] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, OLDEST, strict=True)


@pytest.mark.parametrize(
    "file",
    [
        "base/config/exporter.yaml",
        "stacks/exporter.yaml",
        "sidecar/exporter.yaml",
        "sidecar-stacks/exporter.yaml",
    ],
)
def test_the_exporter_accepts_its_configuration(file: str) -> None:
    """Stacks are on in the components alone; the port is the container's."""
    config = load(ExporterConfig, FOLDER / file)
    assert config.stacks.enabled is ("stacks" in file)
    port = int(config.web.listen_address.rpartition(":")[2])
    for workload in (EXPORTER, SIDECAR):
        [exporter] = [one for one in containers(workload) if one["name"] == "argus-exporter"]
        assert [one["containerPort"] for one in exporter["ports"]] == [port]


def test_the_worker_accepts_its_configuration() -> None:
    config = load(Config, FOLDER / "base/config/l3-worker.yaml")
    assert [one["containerPort"] for one in ours(WORKER)[0]["ports"]] == [config.web.port]
    writable = [mount["mountPath"] for mount in ours(WORKER)[0]["volumeMounts"] if not mount.get("readOnly")]
    assert any(str(config.write.spool_dir).startswith(folder) for folder in writable)


@pytest.mark.parametrize(
    ("workload", "config"), [(TRAINING, "base/config"), (SIDECAR, "sidecar")], ids=["host", "pod"]
)
def test_training_reaches_the_socket(workload: Manifest, config: str) -> None:
    """The socket that the job names is the exporter's, in a folder that both mount; no variable is new."""
    socket = load(ExporterConfig, FOLDER / config / "exporter.yaml").socket.path
    [train] = pod_of(workload)["spec"]["containers"]
    variables = {one["name"]: one for one in train["env"]}
    assert variables["ARGUS_SOCKET"]["value"] == str(socket)
    folders = {str(folder) for folder in socket.parents}
    assert folders & {mount["mountPath"] for mount in train["volumeMounts"]}
    known = {variable.name for variable in settings.TABLE} | {"PYTHONPATH", "POD_NAMESPACE", "POD_JOB"}
    assert set(variables) <= known
    names = list(variables)
    assert variables["ARGUS_JOB"]["value"] == "$(POD_JOB).$(POD_NAMESPACE)"
    assert names[:3] == ["ARGUS_SOCKET", "POD_NAMESPACE", "POD_JOB"], "Kubernetes fills in what stands before"
    exporter = EXPORTER if workload is TRAINING else SIDECAR
    mounts = [one["volumeMounts"] for one in containers(exporter) if one["name"] == "argus-exporter"]
    assert folders & {mount["mountPath"] for mount in mounts[0]}


def test_the_sidecar_can_listen_in_its_volume(tmp_path: Path) -> None:
    """Kubernetes opens an emptyDir to every user (0777, with an fsGroup 2777)."""
    config = load(ExporterConfig, FOLDER / "sidecar" / "exporter.yaml").socket
    assert config.path is not None
    mounts = {one["name"]: one["mountPath"] for one in ours(SIDECAR)[-1]["volumeMounts"]}
    tmp_path.chmod(0o2777)
    with listen(tmp_path / config.path.relative_to(mounts["argus-socket"]), access_of(config)):
        pass


def test_the_producer_is_where_training_looks_for_it() -> None:
    """Copied from the image's environment: its paths are the package's, and the image makes it there."""
    [copy] = [one for one in containers(TRAINING) if one["name"] == "argus-producer"]
    *sources, target = copy["command"][2:]
    image = (ROOT / "deploy/containers/Containerfile").read_text(encoding="utf-8")
    version = image.split("FROM python:")[1].split("-")[0]
    for source in sources:
        assert source.startswith(f"/opt/argus/lib/python{version}/site-packages/")
        assert (ROOT / "exporter" / Path(source).name).is_dir()
    assert "python -m venv /opt/argus" in image
    variables = {
        one["name"]: one.get("value", "") for one in pod_of(TRAINING)["spec"]["containers"][0]["env"]
    }
    boot = Path(variables["PYTHONPATH"]).relative_to(target)
    assert (ROOT / "exporter" / boot / "sitecustomize.py").is_file()
    # CUDA would meet a library that the image may be too old for; `producer.injector.place` looks first.
    assert "CUDA_INJECTION64_PATH" not in variables


@pytest.mark.parametrize(
    ("monitor", "workloads"),
    [("argus-exporter", [EXPORTER, SIDECAR]), ("argus-l3-worker", [WORKER])],
    ids=["exporter", "worker"],
)
def test_pod_monitors_find_what_is_deployed(monitor: str, workloads: list[Manifest]) -> None:
    """Label and port name as the pods have them; scraped as often as the rules expect."""
    spec = the("PodMonitor", monitor)["spec"]
    [endpoint] = spec["podMetricsEndpoints"]
    for workload in workloads:
        labels = pod_of(workload)["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        ports = [port["name"] for one in ours(workload) for port in one.get("ports", [])]
        assert ports == [endpoint["port"]]
        assert len(endpoint["port"]) <= 15, "what Kubernetes allows"
    assert endpoint["interval"] == "15s"


def test_what_is_not_ours_is_not_scraped() -> None:
    """Training beside the DaemonSet has no exporter of its own."""
    wanted = the("PodMonitor", "argus-exporter")["spec"]["selector"]["matchLabels"]
    assert not wanted.items() <= pod_of(TRAINING)["metadata"]["labels"].items()


OPERATOR_FIELDS = {
    "PodMonitor": {"namespaceSelector", "selector", "podMetricsEndpoints"},
    "PrometheusRule": {"groups"},
}
GROUP_FIELDS = {"name", "interval", "rules"}
RULE_FIELDS = {"record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations"}


def test_operator_objects_have_the_fields_of_their_definitions() -> None:
    """Of monitoring.coreos.com/v1, as far as they are used here."""
    operator = [one for _, one in manifests() if one["apiVersion"] == "monitoring.coreos.com/v1"]
    for one in operator:
        assert set(one["spec"]) <= OPERATOR_FIELDS[one["kind"]]
        for group in one["spec"].get("groups", []):
            assert set(group) <= GROUP_FIELDS
            assert all(set(rule) <= RULE_FIELDS for rule in group["rules"])
    assert {one["kind"] for one in operator} == set(OPERATOR_FIELDS)


def test_prometheus_rules_are_the_rule_files() -> None:
    """Every group of rules/, once."""
    files = [documents(file)[0] for file in sorted((ROOT / "rules").glob("*.yaml"))]
    objects = documents(ROOT / "rules/kubernetes/prometheusrule.yaml")
    expected = {group["name"]: group for file in files for group in file["groups"]}
    found = [group for one in objects for group in one["spec"]["groups"]]
    assert {group["name"]: group for group in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_our_containers_have_limits_and_no_more_rights_than_they_need(workload: Manifest) -> None:
    """A read-only image, no capability but py-spy's, no API token, memory and CPU bounded."""
    assert pod_of(workload)["spec"]["automountServiceAccountToken"] is False
    found = ours(workload)
    assert found
    for one in found:
        context = one["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, (
            "as the standard `restricted` wants it"
        )
        if one["name"] != "argus-producer":  # copies files and ends
            assert set(one["resources"]["limits"]) == {"cpu", "memory"}
            assert {"livenessProbe", "readinessProbe"} <= set(one)


@pytest.mark.parametrize("name", WORKLOADS)
def test_only_stacks_may_look_into_processes(name: str) -> None:
    """SYS_PTRACE and other pods' processes where py-spy runs alone; one user's own processes need neither."""
    spec = pod_of(WORKLOADS[name])["spec"]
    added = [
        cap for one in ours(WORKLOADS[name]) for cap in one["securityContext"]["capabilities"].get("add", [])
    ]
    assert added == (["SYS_PTRACE"] if name == "daemonset with stacks" else [])
    assert spec.get("hostPID", False) is (name == "daemonset with stacks")
    assert spec.get("shareProcessNamespace", False) is (name == "sidecar with stacks")


def test_two_workers_judge() -> None:
    """Each under a name of its own, which rules drop; one is there while a node is emptied."""
    assert WORKER["spec"]["replicas"] == 2
    [container] = ours(WORKER)
    assert "--worker=$(POD_NAME)" in container["args"]
    assert the("PodDisruptionBudget", "argus-l3-worker")["spec"]["maxUnavailable"] == 1


def test_the_network_is_open_where_it_must_be_and_closed_elsewhere() -> None:
    """Prometheus to both, the worker to Prometheus, to the exporters and to DNS."""
    exporter, worker = (the("NetworkPolicy", name)["spec"] for name in ("argus-exporter", "argus-l3-worker"))
    for policy, workload in ((exporter, EXPORTER), (worker, WORKER)):
        assert policy["podSelector"]["matchLabels"].items() <= pod_of(workload)["metadata"]["labels"].items()
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        [entry] = policy["ingress"]
        assert [port["port"] for port in entry["ports"]] == [ours(workload)[0]["ports"][0]["containerPort"]]
    assert exporter["egress"] == []
    [admitted] = [one["podSelector"] for one in exporter["ingress"][0]["from"] if "podSelector" in one]
    assert admitted["matchLabels"].items() <= pod_of(WORKER)["metadata"]["labels"].items()
    assert not any("argus-l3-worker" in str(value) for value in admitted["matchLabels"].values()), (
        "a name is of one release"
    )
    assert sorted(port["port"] for rule in worker["egress"] for port in rule["ports"]) == [53, 53, 9090, 9877]
    assert ":9090" in load(Config, FOLDER / "base/config/l3-worker.yaml").prometheus.url


def kustomize(folder: Path) -> list[Manifest]:
    run = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [one for one in yaml.safe_load_all(run.stdout) if one]


@needs_kubectl
def test_kustomize_builds_everything() -> None:
    """Base, rules and dashboards in their namespaces; configurations are mounted by their generated names."""
    found = kustomize(FOLDER / "all")
    kinds = [one["kind"] for one in found]
    assert kinds.count("PrometheusRule") == len(documents(ROOT / "rules/kubernetes/prometheusrule.yaml"))
    maps = {one["metadata"]["name"]: one for one in found if one["kind"] == "ConfigMap"}
    dashboards = [
        one for one in maps.values() if one["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    ]
    assert len(dashboards) == len(list((ROOT / "dashboards/generated").glob("*.json")))
    for one in found:
        if one["kind"] in ("DaemonSet", "Deployment"):
            names = [v["configMap"]["name"] for v in pod_of(one)["spec"]["volumes"] if "configMap" in v]
            assert names and set(names) <= set(maps)
            assert one["metadata"]["namespace"] == "argus"
        if one["kind"] == "PrometheusRule" or one in dashboards:
            assert one["metadata"]["namespace"] == "monitoring"


@needs_kubectl
@pytest.mark.parametrize(
    ("base", "component", "kind"), [("base", "stacks", "DaemonSet"), ("sidecar", "sidecar-stacks", "Job")]
)
def test_kustomize_patches_as_these_tests_do(tmp_path: Path, base: str, component: str, kind: str) -> None:
    """A component on its base: the same object as `patched`, and the component's configuration."""
    for folder in (base, component):
        shutil.copytree(FOLDER / folder, tmp_path / folder)
    (tmp_path / "site").mkdir()
    overlay = {"resources": [f"../{base}"], "components": [f"../{component}"]}
    (tmp_path / "site/kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")
    found = kustomize(tmp_path / "site")
    [built] = [one for one in found if one["kind"] == kind]
    name = built["metadata"]["name"]
    assert [one["securityContext"] for one in ours(built)] == [
        one["securityContext"] for one in ours(patched(the(kind, name, base), component))
    ]
    configuration = (FOLDER / component / "exporter.yaml").read_text(encoding="utf-8")
    assert configuration in [one["data"].get("exporter.yaml") for one in found if one["kind"] == "ConfigMap"]
