"""Hosts without Kubernetes: systemd units and the Slurm prolog."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest

from argus_core import settings_file
from deploy.manifests import ROOT

UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
STACKS = ROOT / "deploy/systemd/argus-exporter.stacks.conf"
PROLOG = ROOT / "deploy/slurm/task-prolog.sh"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("drop_in", [None, STACKS], ids=["plain", "stacks"])
def test_systemd_accepts_the_unit(unit: Path, drop_in: Path | None, tmp_path: Path) -> None:
    """With a program that exists in place of ours; every complaint counts."""
    text = unit.read_text(encoding="utf-8")
    assert "/opt/argus/bin/argus-" in text
    copy = tmp_path / unit.name
    copy.write_text(
        text.replace("/opt/argus/bin/argus-exporter", "/bin/true").replace(
            "/opt/argus/bin/argus-l3-worker", "/bin/true"
        )
    )
    if drop_in is not None:
        (tmp_path / f"{unit.name}.d").mkdir()
        shutil.copy(drop_in, tmp_path / f"{unit.name}.d")
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in run.stderr.splitlines() if unit.name in line]
    assert (run.returncode, complaints) == (0, [])


def test_the_exporter_may_look_into_processes_only_with_stacks() -> None:
    """No capability in the unit; the drop-in adds the one of py-spy."""
    unit = (ROOT / "deploy/systemd/argus-exporter.service").read_text(encoding="utf-8")
    assert "CapabilityBoundingSet=\n" in unit
    assert "AmbientCapabilities" not in unit
    assert STACKS.read_text(encoding="utf-8").count("CAP_SYS_PTRACE") == 2


def test_each_unit_has_a_state_folder_of_its_own() -> None:
    """Of a dynamic user it lies in /var/lib/private: systemd would move it there and back at each start."""
    folders = [
        line
        for unit in UNITS
        for line in unit.read_text(encoding="utf-8").splitlines()
        if "StateDirectory=" in line
    ]
    assert len(folders) == len(set(folders)) == len(UNITS)


def test_settings_of_the_site_lie_where_training_looks() -> None:
    """Beside the socket, in a folder that the unit makes and keeps."""
    unit = (ROOT / "deploy/systemd/argus-exporter.service").read_text(encoding="utf-8")
    [copy] = [line for line in unit.splitlines() if line.startswith("ExecStartPre=-")]
    assert copy.split()[-1] == settings_file.beside("/run/argus/exporter.sock")
    assert "RuntimeDirectory=argus\n" in unit and "RuntimeDirectoryPreserve=yes\n" in unit


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """A host with an exporter's socket and an installed producer."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "s"))
    listener.close()
    (tmp_path / "site/argus_training/boot").mkdir(parents=True)
    (tmp_path / "site/argus_core").mkdir()
    (tmp_path / "site/argus_core/libargus_cupti.so").touch()
    return {
        "PATH": os.environ["PATH"],
        "ARGUS_ROOT": str(tmp_path / "site"),
        "ARGUS_SOCKET": str(tmp_path / "s"),
        "SLURM_JOB_NAME": "llm",
        "SLURM_JOB_ID": "4711",
    }


def exports(environment: dict[str, str]) -> dict[str, str]:
    """What the prolog has Slurm add to a task."""
    run = subprocess.run(["sh", str(PROLOG)], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert all(line.startswith("export ") for line in lines)
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def test_every_task_is_watched(host: dict[str, str]) -> None:
    root = host["ARGUS_ROOT"]
    assert exports(host) == {
        "ARGUS_SOCKET": host["ARGUS_SOCKET"],
        "ARGUS_JOB": "llm-4711",
        "PYTHONPATH": f"{root}/argus_training/boot",
    }


def test_what_the_job_set_stays(host: dict[str, str]) -> None:
    """Its own path goes behind ours, its name and its injection library are kept."""
    found = exports(
        {**host, "PYTHONPATH": "/mine", "ARGUS_JOB": "mine", "CUDA_INJECTION64_PATH": "/other.so"}
    )
    assert found["PYTHONPATH"].endswith("/boot:/mine")
    assert found["ARGUS_JOB"] == "mine"
    assert "CUDA_INJECTION64_PATH" not in found


def test_an_exporter_that_restarts_is_awaited(host: dict[str, str]) -> None:
    """Its folder is there, its socket is not: the ranks look for it until it is back."""
    Path(host["ARGUS_SOCKET"]).unlink()
    assert exports(host)["ARGUS_SOCKET"] == host["ARGUS_SOCKET"]


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"SLURM_STEP_ID": "0"}, "llm-4711"),
        ({"SLURM_STEP_ID": "1"}, "llm-4711.1"),
        ({"SLURM_STEP_ID": "4294967290"}, "llm-4711"),  # the shell of salloc
        ({"SLURM_STEP_ID": "3", "ARGUS_JOB": "llm-4711"}, "llm-4711.3"),  # a step that it starts
        ({"SLURM_STEP_ID": "3", "ARGUS_JOB": "mine"}, "mine"),
    ],
    ids=str,
)
def test_steps_side_by_side_are_told_apart(
    host: dict[str, str], environment: dict[str, str], name: str
) -> None:
    """Two steps of one allocation have the same job in Slurm, and are two trainings."""
    assert exports({**host, **environment})["ARGUS_JOB"] == name


def test_a_second_prolog_adds_nothing_to_the_path(host: dict[str, str]) -> None:
    assert "PYTHONPATH" not in exports({**host, **exports(host)})


def test_the_environment_is_found_whichever_python_made_it(host: dict[str, str], tmp_path: Path) -> None:
    """The one of them in /opt/argus that has ARGUS; a folder of its own stands for that here."""
    root = Path(host.pop("ARGUS_ROOT"))
    (tmp_path / "lib/python3.11/site-packages").mkdir(parents=True)
    newer = tmp_path / "lib/python3.13/site-packages"
    newer.parent.mkdir()
    root.rename(newer)
    prolog = tmp_path / "prolog.sh"
    prolog.write_text(PROLOG.read_text().replace("/opt/argus", str(tmp_path)))
    run = subprocess.run(["sh", str(prolog)], env=host, capture_output=True, text=True, check=True)
    assert f"export PYTHONPATH={newer}/argus_training/boot" in run.stdout.splitlines()


@pytest.mark.parametrize(
    "change", [{"ARGUS_DISABLE": "1"}, {"ARGUS_SOCKET": "/nowhere"}, {"ARGUS_ROOT": "/nowhere"}], ids=str
)
def test_without_argus_nothing_changes(host: dict[str, str], change: dict[str, str]) -> None:
    assert exports({**host, **change}) == {}


def test_images_install_extras_that_exist() -> None:
    """And the parts of the repository that the wheel is built from are in the build's context."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    image = (ROOT / "deploy/containers/Containerfile").read_text(encoding="utf-8")
    named = [extras.split("]")[0].split(",") for extras in image.split("$1[")[1:]]
    assert named == [["exporter", "trace", "stacks", "remote-write"], ["l3", "trace"]]
    assert {extra for extras in named for extra in extras} <= set(project["project"]["optional-dependencies"])
    context = (ROOT / "deploy/containers/Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    packages = project["tool"]["scikit-build"]["wheel"]["packages"]
    needed = {package.split("/")[0] for package in packages} | {
        project["tool"]["scikit-build"]["cmake"]["source-dir"],
        project["project"]["readme"],
        *project["project"]["license-files"],
        "pyproject.toml",
    }
    assert {line.removeprefix("!") for line in context if line.startswith("!")} == needed
