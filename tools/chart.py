"""`make chart`: the Helm chart as an archive, with the rules and dashboards in it, by Helm itself.

    python -m tools.chart [--output FOLDER]

Helm lints it and renders it by its default values; what comes of that is compared with what kustomize makes
of deploy/kubernetes/all: one source, two ways to install it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.generate_chart import CHART, ROOT

try:
    import helm_python as helm
except ImportError:
    helm = None

Manifest = dict[str, Any]
NEEDS_HELM: Final = "Helm is absent: `make helm` installs it (helm-python-sdk)"
_WARNING: Final = 2  # of Helm's severities: information, warning, error
RELEASE: Final = "argus"
KUSTOMIZED: Final = Path("deploy/kubernetes/all")
_OF_HELM: Final = frozenset(
    (
        "helm.sh/chart",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/version",
    )
)
_OF_PODS: Final = "checksum/config"
"""Kustomize names a ConfigMap by its hash instead, so pods follow it either way."""


class Refused(Exception):
    """The chart is not what it should be: one line."""


def assemble(folder: Path, root: Path = ROOT) -> Path:
    """The chart as a folder, with the files of rules/ and dashboards/generated as they are."""
    chart = folder / "argus"
    shutil.copytree(root / CHART, chart)
    for sources, target in (
        ("rules/argus.*.rules.yaml", "rules"),
        ("dashboards/generated/*.json", "dashboards"),
    ):
        (chart / target).mkdir()
        for file in sorted(root.glob(sources)):
            shutil.copyfile(file, chart / target / file.name)
    return chart


def package(output: Path) -> Path:
    """Lint and package; the archive.

    Raises:
        Refused: there is no Helm here, or it finds a fault.
    """
    if helm is None:
        raise Refused(NEEDS_HELM)
    with tempfile.TemporaryDirectory() as name:
        chart = assemble(Path(name))
        report = helm.lint(chart, strict=True)
        if said := [one["error"] for one in report["messages"] if one["severity"] >= _WARNING]:
            raise Refused(f"helm lint: {'; '.join([*said, *report['errors']])}")
        output.mkdir(parents=True, exist_ok=True)
        return Path(helm.package(chart, destination=output))


def rendered(
    chart: Path, values: Mapping[str, Any] | None = None, *, release: str = RELEASE, namespace: str = "argus"
) -> list[Manifest]:
    """The objects that a release has.

    Raises:
        HelmError: values that the schema refuses, or a template that fails.
    """
    with helm.Chart.load(chart) as loaded:
        files = loaded.render(dict(values or {}), name=release, namespace=namespace)
    texts = (text for name, text in sorted(files.items()) if name.endswith(".yaml"))
    return [one for text in texts for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def kustomized(folder: Path) -> Iterator[Manifest]:
    """What kustomize makes of a folder, as far as ours go; names of ConfigMaps are without their hash."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    for one in _resources(folder, kustomization):
        if "namespace" in kustomization and not one["kind"].startswith(("ClusterRole", "Namespace")):
            one["metadata"]["namespace"] = kustomization["namespace"]
        yield one


def _resources(folder: Path, kustomization: Mapping[str, Any]) -> Iterator[Manifest]:
    for resource in kustomization.get("resources", ()):
        path = folder / resource
        if path.is_dir():
            yield from kustomized(path)
        else:
            yield from yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    labels = kustomization.get("generatorOptions", {}).get("labels", {})
    for generator in kustomization.get("configMapGenerator", ()):
        pairs = (file.rpartition("=") for file in generator["files"])
        data = {key or path: (folder / path).read_text(encoding="utf-8") for key, _, path in pairs}
        metadata = {"name": generator["name"], "labels": dict(labels)}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def differences(chart: Sequence[Manifest], base: Sequence[Manifest]) -> list[str]:
    """What one has and the other has not, or has otherwise; of labels those that Helm adds are left out.

    The namespace itself is left out too: `helm install --create-namespace` makes it.
    """
    ours, theirs = _by_name(chart), _by_name(base)
    said = [f"{' '.join(name)}: not in the chart" for name in theirs if name not in ours]
    said += [f"{' '.join(name)}: not in {KUSTOMIZED}" for name in ours if name not in theirs]
    return said + [
        f"{' '.join(name)}: differs" for name in ours.keys() & theirs if ours[name] != theirs[name]
    ]


def _by_name(objects: Sequence[Manifest]) -> dict[tuple[str, ...], Manifest]:
    found: dict[tuple[str, ...], Manifest] = {}
    for one in objects:
        metadata = one["metadata"]
        if one["kind"] == "Namespace":
            continue
        if one["kind"] == "ConfigMap":  # the same settings, however they are written
            one = {
                **one,
                "data": {key: yaml.load(text, yaml.CSafeLoader) for key, text in one["data"].items()},
            }
        name = (one["kind"], metadata.get("namespace", ""), metadata["name"])
        if name in found:
            raise Refused(f"{' '.join(name)} is there twice")
        found[name] = _without(one)
    return found


def _without(value: Any) -> Any:
    """An object without what Helm adds, and without labels and annotations that are empty then."""
    if isinstance(value, list):
        return [_without(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without(inner) for key, inner in value.items() if key not in _OF_HELM and key != _OF_PODS}
    return {key: inner for key, inner in kept.items() if inner != {} or key not in ("labels", "annotations")}


def make(output: Path) -> tuple[Path, list[str]]:
    """Package, and compare with kustomize: the archive, and what differs.

    Raises:
        Refused: as `package`.
    """
    archive = package(output)
    return archive, differences(rendered(archive), list(kustomized(ROOT / KUSTOMIZED)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chart", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where to put it (dist/)")
    try:
        archive, differing = make(parser.parse_args().output.resolve())
    except Refused as problem:
        print(f"chart: {problem}", file=sys.stderr)
        return 1
    for line in differing:
        print(f"chart: {line}", file=sys.stderr)
    print(archive)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
