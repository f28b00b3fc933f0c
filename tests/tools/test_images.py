"""Images without a daemon: the archive, and what the Containerfile and the manifests say of it.

That they serve is tried by `make dist` and `make verify`: it takes minutes and packages of Debian.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tarfile
from pathlib import Path

import pytest
import yaml
from tools.generate_version import ROOT

from argus_exporter import cli as exporter
from argus_l3_worker import cli as worker
from tools import images, oci

CONFIG = {"Entrypoint": ["true"], "Env": ["A=b"]}
CONTAINERFILE = (ROOT / "deploy/containers/Containerfile").read_text(encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A program, a link to it, a folder that is open to all, and an empty one."""
    folder = tmp_path / "tree"
    for name in ("bin", "tmp", "empty"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o755)  # whatever the umask
    (folder / "bin/program").write_text("#!/bin/sh\n")
    (folder / "bin/program").chmod(0o755)
    (folder / "bin/link").symlink_to("program")
    (folder / "tmp").chmod(0o1777)
    return folder


@pytest.fixture
def image(tree: Path, tmp_path: Path) -> Path:
    upper = tmp_path / "upper"
    (upper / "bin").mkdir(parents=True)
    (upper / "bin/more").write_text("more\n")
    target = tmp_path / "image.tar"
    oci.write(target, "a:1", [oci.layer(tree), oci.layer(upper)], CONFIG)
    return target


def test_a_container_has_the_files_of_all_layers(image: Path, tmp_path: Path) -> None:
    """With their rights and links, and the config that was given."""
    root = tmp_path / "root"
    assert oci.unpack(image, root) == CONFIG
    assert (root / "bin/link").readlink() == Path("program")
    assert (root / "bin/program").stat().st_mode & 0o7777 == 0o755
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "empty").is_dir() and (root / "bin/more").read_text() == "more\n"


def test_layers_are_roots_and_of_one_date(tree: Path) -> None:
    """Whoever makes them whenever: the same files are the same layer."""
    made = oci.layer(tree)
    (tree / "bin/program").touch()
    assert oci.layer(tree) == made
    raw = gzip.decompress(made.blob)
    assert made.diff_id == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    (tree / "layer.tar").write_bytes(raw)
    with tarfile.open(tree / "layer.tar") as archive:
        assert {(one.uid, one.gid, one.mtime) for one in archive.getmembers()} == {(0, 0, 315532800)}


def test_any_user_reads_what_a_private_umask_made(tree: Path) -> None:
    """The worker is no root in its container."""
    open_to_all = oci.layer(tree)
    (tree / "bin").chmod(0o700)
    (tree / "bin/program").chmod(0o700)
    (tree / "empty").chmod(0o711)
    assert oci.layer(tree) == open_to_all


def test_docker_and_oci_name_the_same_blobs(image: Path) -> None:
    """By their digests, and with the sizes that they have."""
    with tarfile.open(image) as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive.getmembers()}  # type: ignore[union-attr]
    for name, content in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [entry] = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files[f"blobs/{entry['digest'].replace(':', '/')}"])
    [docker] = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == ["a:1"] and entry["annotations"]["org.opencontainers.image.ref.name"] == "1"
    for path, one in zip(
        (docker["Config"], *docker["Layers"]), (manifest["config"], *manifest["layers"]), strict=True
    ):
        assert path == f"blobs/{one['digest'].replace(':', '/')}"
        assert len(files[path]) == one["size"]


def test_a_damaged_archive_is_refused(image: Path, tmp_path: Path) -> None:
    with tarfile.open(image) as archive:
        [docker] = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        member = archive.getmember(docker["Layers"][0])
    content = bytearray(image.read_bytes())
    content[member.offset_data + 20] ^= 1
    image.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="has other content"):
        oci.unpack(image, tmp_path / "root")


@pytest.mark.parametrize("program", images.PROGRAMS, ids=lambda one: one.name)
def test_a_builder_makes_the_same_image(program: images.Program) -> None:
    """Extras, entry point, user and port of the Containerfile's stage of that name."""
    stage = CONTAINERFILE.split(f"AS {program.name.removeprefix('argus-')}\n")[1].split("\nFROM ")[0]
    config = program.config()
    assert f'"$1[{program.extras}]"' in stage
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", stage, re.M)[0]) == config["Entrypoint"]
    assert json.loads(re.findall(r"^CMD (.*)$", stage, re.M)[0]) == config["Cmd"]
    assert re.findall(r"^USER (.*)$", stage, re.M) == ([config["User"]] if "User" in config else [])
    assert config["ExposedPorts"] == {f"{re.findall(r'^EXPOSE (.*)$', stage, re.M)[0]}/tcp": {}}
    assert f"FROM python:{images.PYTHON}-slim-{images.SUITE}" in CONTAINERFILE
    variables = dict(one.split("=", 1) for one in config["Env"])
    for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        assert f"{name}={variables[name]}" in CONTAINERFILE


def test_the_init_container_finds_what_it_copies() -> None:
    """At the path that the image has, with a `cp` in it."""
    [job] = yaml.safe_load_all((ROOT / "deploy/kubernetes/training/job.yaml").read_text())
    copy = job["spec"]["template"]["spec"]["initContainers"][0]["command"]
    assert copy[0] == "cp" and "coreutils" in images._DEBIAN
    assert copy[2:4] == [f"{images.PACKAGES}/argus_core", f"{images.PACKAGES}/argus_training"]


@pytest.mark.parametrize("program", images.PROGRAMS, ids=lambda one: one.name)
def test_the_flags_of_the_trial_are_flags(
    program: images.Program, capsys: pytest.CaptureFixture[str]
) -> None:
    main = {"argus-exporter": exporter.main, "argus-l3-worker": worker.main}[program.name]
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = capsys.readouterr().out
    for flag in program.flags:
        assert flag.partition("=")[0] in said


def test_scripts_run_by_the_python_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip writes the Python that runs it into them; what is no script stays as it is."""

    def install(command: tuple[str, ...], **_: object) -> object:
        folder = Path(command[command.index("--target") + 1]) / "bin"
        folder.mkdir(parents=True)
        (folder / "argus-exporter").write_bytes(b"#!/home/me/.venv/bin/python\nimport sys\n")
        (folder / "py-spy").write_bytes(b"\x7fELF")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(images.subprocess, "run", install)
    images.environment(images.PROGRAMS[0], tmp_path / "argus.whl", tmp_path / "tree")
    programs = tmp_path / "tree/opt/argus/bin"
    assert (programs / "argus-exporter").read_bytes() == b"#!/opt/argus/bin/python\nimport sys\n"
    assert (programs / "py-spy").read_bytes() == b"\x7fELF"
    assert (programs / "python").readlink() == Path("/usr/bin/python3.11")
