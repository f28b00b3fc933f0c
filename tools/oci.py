"""Container images as files, written without a daemon: an OCI layout that Docker reads too.

An archive holds an OCI image layout (`podman load`, `skopeo copy oci-archive:...`, containerd) and beside it
the manifest.json that `docker load` looks for; both name the same blobs. Files belong to root, have one date,
and all may do with them what their owner may but write: the same files make the same layer, whoever makes it,
and a container reads them as any user.

Source: github.com/opencontainers/image-spec 1.0, on configuration, layers and the image layout.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_DATE: Final = 315532800
"""1980-01-01, the oldest that a zip of Python has."""
_TYPE: Final = "application/vnd.oci.image."
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """Files on top of those of the layers below."""

    blob: bytes
    """gzip of a tar."""
    diff_id: str
    """Digest of the tar itself."""


def layer(tree: Path) -> Layer:
    """All below a folder, as root's."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(_below(tree)):
            member = archive.gettarinfo(path, arcname=str(path.relative_to(tree)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = _DATE
            member.mode |= (member.mode & 0o500) >> 3 | (member.mode & 0o500) >> 6
            if member.isreg():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    return Layer(gzip.compress(raw.getvalue(), compresslevel=6, mtime=0), _digest(raw.getvalue()))


def _below(tree: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(tree):
        yield from (Path(folder) / name for name in (*folders, *files))


def write(target: Path, name: str, layers: Sequence[Layer], config: Mapping[str, Any]) -> None:
    """An archive of one image.

    Args:
        target: the file to write.
        name: repository:tag.
        layers: from the lowest up.
        config: what a container of it runs: Entrypoint, Cmd, Env, User, ExposedPorts, Labels.
    """
    image = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
    }
    described = _Blob("config.v1+json", _json(image))
    blobs = [_Blob("layer.v1.tar+gzip", one.blob) for one in layers]
    manifest = _Blob(
        "manifest.v1+json",
        _json(
            {
                "schemaVersion": 2,
                "mediaType": f"{_TYPE}manifest.v1+json",
                "config": described.descriptor(),
                "layers": [blob.descriptor() for blob in blobs],
            }
        ),
    )
    named = {
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        "io.containerd.image.name": f"docker.io/library/{name}",
    }
    index = {"schemaVersion": 2, "manifests": [{**manifest.descriptor(), "annotations": named}]}
    docker = [{"Config": described.path, "RepoTags": [name], "Layers": [blob.path for blob in blobs]}]
    files = {blob.path: blob.content for blob in (described, *blobs, manifest)} | {
        "index.json": _json(index),
        "manifest.json": _json(docker),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }
    with tarfile.open(target, "w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(content), _DATE
            archive.addfile(member, io.BytesIO(content))


@dataclass(frozen=True)
class _Blob:
    kind: str
    content: bytes

    @property
    def path(self) -> str:
        return f"blobs/{_digest(self.content).replace(':', '/')}"

    def descriptor(self) -> dict[str, Any]:
        digest = _digest(self.content)
        return {"mediaType": f"{_TYPE}{self.kind}", "digest": digest, "size": len(self.content)}


def unpack(archive: Path, folder: Path) -> dict[str, Any]:
    """The files of an image as a container sees them, below `folder`; its config.

    Raises:
        ValueError: a blob is not what its digest says.
    """
    with tarfile.open(archive) as image:

        def blob(digest: str) -> bytes:
            file = image.extractfile(f"blobs/{digest.replace(':', '/')}")
            content = file.read() if file else b""
            if _digest(content) != digest:
                raise ValueError(f"{archive.name}: the blob {digest} has other content")
            return content

        index = image.extractfile("index.json")
        assert index is not None
        [found] = json.load(index)["manifests"]
        manifest = json.loads(blob(found["digest"]))
        config: dict[str, Any] = json.loads(blob(manifest["config"]["digest"]))
        for one, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            raw = gzip.decompress(blob(one["digest"]))
            if _digest(raw) != diff_id:
                raise ValueError(f"{archive.name}: the layer {diff_id} has other content")
            with tarfile.open(fileobj=io.BytesIO(raw)) as files:
                # /tmp is open to all. Python before 3.11.4 has no such argument, nor the check.
                files.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
                files.extractall(folder)
    inside: dict[str, Any] = config["config"]
    return inside


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
