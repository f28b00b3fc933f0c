"""The committed manifests, read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"

Manifest = dict[str, Any]


def documents(file: Path) -> list[Manifest]:
    return [one for one in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader) if one]


def manifests() -> list[tuple[str, Manifest]]:
    """(name for messages, object) of every object, those of rules/kubernetes too; no kustomize files."""
    files = [*sorted(FOLDER.rglob("*.yaml")), *sorted((ROOT / "rules/kubernetes").glob("*.yaml"))]
    return [
        (f"{file.relative_to(ROOT)} {one['kind']} {one['metadata']['name']}", one)
        for file in files
        for one in documents(file)
        if "metadata" in one
    ]


def the(kind: str, name: str, folder: str = "base") -> Manifest:
    """The one object of that kind and name in a folder."""
    [found] = [
        one
        for file in sorted((FOLDER / folder).glob("*.yaml"))
        for one in documents(file)
        if one.get("kind") == kind and one["metadata"]["name"] == name
    ]
    return found


def pod_of(manifest: Manifest) -> Manifest:
    """The pod template."""
    template: Manifest = manifest["spec"]["template"]
    return template


def containers(manifest: Manifest) -> Iterator[Manifest]:
    """Every container of a workload, init containers and sidecars included."""
    spec = pod_of(manifest)["spec"]
    yield from spec.get("initContainers", [])
    yield from spec["containers"]


def ours(manifest: Manifest) -> list[Manifest]:
    """Its containers that run our images."""
    return [one for one in containers(manifest) if one["image"].startswith("argus-")]


def patched(manifest: Manifest, component: str) -> Manifest:
    """The object as a component's JSON patches make it; of RFC 6902, `add` to a list or an object."""
    kustomization = documents(FOLDER / component / "kustomization.yaml")[0]
    result: Manifest = yaml.safe_load(yaml.safe_dump(manifest))
    for patch in kustomization["patches"]:
        if patch["target"] != {"kind": manifest["kind"], "name": manifest["metadata"]["name"]}:
            continue
        for step in yaml.safe_load(patch["patch"]):
            assert step["op"] == "add"
            *path, last = step["path"].strip("/").split("/")
            target: Any = result
            for part in path:
                target = target[int(part)] if isinstance(target, list) else target[part]
            if last == "-":
                target.append(step["value"])
            else:
                target[last] = step["value"]
    return result
