"""Where the injector is, and what a command's environment needs for it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from argus_core import injection
from argus_training import injector, try_library

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path("/opt/argus/libargus_cupti.so")
SLOT = "CUDA_INJECTION64_PATH"
HERE = os.confstr("CS_GNU_LIBC_VERSION")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """One that any C library of this age loads."""
    path = tmp_path / "libargus_cupti.so"
    path.write_bytes(b"\x7fELF..\0GLIBC_2.2.5\0GLIBC_2.14\0libc.so.6\0")
    return path


@pytest.fixture
def too_new(tmp_path: Path) -> Path:
    path = tmp_path / "new" / "libargus_cupti.so"
    path.parent.mkdir()
    path.write_bytes(b"\x7fELF..\0GLIBC_2.2.5\0GLIBC_2.900\0GLIBC_2.36\0libc.so.6\0")
    return path


def test_a_free_slot_is_taken(library: Path) -> None:
    assert injector.environment({}, library) == ({SLOT: str(library)}, "")


def test_our_own_slot_is_no_conflict(library: Path) -> None:
    """`argus-exporter run` within `argus-exporter run`."""
    environ = {SLOT: str(library)}
    assert injector.environment(environ, library) == (environ, "")


def test_a_library_for_a_newer_glibc_is_not_named_to_cuda(too_new: Path) -> None:
    """Neither by `run` nor in the training process, which may be in another image; both versions are said."""
    detail = f"{too_new} needs glibc 2.900, here is {HERE}"
    assert injector.environment({}, too_new) == ({}, f"no kernels: {detail}")
    for environ in ({}, {SLOT: str(too_new)}):
        assert injection.place(environ, str(too_new), alone=True) == ("glibc", detail)
        assert environ == {}


def test_a_slot_that_another_tool_has_is_a_reason(library: Path) -> None:
    """It keeps it; the channel says so."""
    other = "/opt/nsys/inject.so"
    environ = {SLOT: other}
    assert injection.place(environ, str(library), alone=True) == (
        "slot_taken",
        f"{SLOT} is taken by {other}; ARGUS_NEXT_INJECTION={other}, without it, loads both",
    )
    assert environ == {SLOT: other}
    assert injection.place(environ, "", alone=True) == ("", ""), "there is none of ours to be loaded"


def test_musl_loads_nothing_that_needs_glibc(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alpine's Python does not know the question."""

    def unknown(_: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    assert injection.place({}, str(library), alone=True) == (
        "glibc",
        f"{library} needs glibc 2.14, here is another C library",
    )


def test_a_slot_that_leads_nowhere_is_emptied(tmp_path: Path) -> None:
    """Set outside of a container, where the path was."""
    environ = {SLOT: str(tmp_path / "libargus_cupti.so")}
    reason, _ = injection.place(environ, "", alone=True)
    assert (reason, environ) == ("missing", {})


def test_in_the_training_process_a_free_slot_is_taken(library: Path) -> None:
    """Without a library nothing is said: there was never to be one."""
    environ: dict[str, str] = {}
    assert injection.place(environ, "", alone=True) == ("", "")
    assert environ == {}
    assert injection.place(environ, str(library), alone=True) == ("", "")
    assert environ == {SLOT: str(library)}


def test_while_other_threads_run_the_environment_stays(library: Path, too_new: Path) -> None:
    """setenv would move what they read: the reason says that, or stays what it was."""
    environ: dict[str, str] = {}
    reason, why = injection.place(environ, str(library), alone=False)
    assert (reason, environ) == ("threads", {})
    assert why.startswith(f"{SLOT} cannot be set, as other threads run")
    environ = {SLOT: str(library)}
    assert injection.place(environ, str(library), alone=False) == ("", "")
    environ = {SLOT: str(too_new)}
    reason, why = injection.place(environ, str(library), alone=False)
    assert (reason, environ) == ("glibc", {SLOT: str(too_new)})
    assert f"{SLOT} stays, as other threads run" in why


def test_what_is_installed_here_loads_here() -> None:
    """The versions that are read from the file are those that the loader asks for."""
    installed = injector.library_path()
    if installed is None:
        pytest.skip("installed without a C++ compiler")
    assert injection.unfit(str(installed)) == ("", "")
    ctypes.CDLL(str(installed))


def test_a_taken_slot_is_left_alone() -> None:
    """One slot, one library: the message says how to have both."""
    added, why = injector.environment({"CUDA_INJECTION64_PATH": "/opt/nsys/inject.so"}, LIBRARY)
    assert added == {}
    assert "taken by /opt/nsys/inject.so" in why
    assert "ARGUS_NEXT_INJECTION=/opt/nsys/inject.so" in why


@pytest.mark.parametrize("name", ["ARGUS_DISABLE", "ARGUS_DISABLE_KERNELS"])
def test_switched_off_means_untouched(name: str) -> None:
    assert injector.environment({name: "1"}, LIBRARY) == ({}, "kernels are switched off")


def test_without_a_library_the_command_runs_without() -> None:
    added, why = injector.environment({}, None)
    assert added == {}
    assert "not installed" in why


def test_the_installed_library_is_found_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel: argus_core/libargus_cupti.so in site-packages."""
    monkeypatch.setattr(injector.sysconfig, "get_path", lambda _: str(tmp_path))
    library = tmp_path / "argus_core" / "libargus_cupti.so"
    before = injector.library_path()
    library.parent.mkdir()
    library.touch()
    assert injector.library_path() in (library, before)
    assert injector.library_path() is not None


def tried(library: Path) -> subprocess.CompletedProcess[str]:
    """As the init container of the manifests does it."""
    [job] = yaml.safe_load_all((ROOT / "deploy/kubernetes/training/job.yaml").read_text())
    containers = job["spec"]["template"]["spec"]["initContainers"]
    [command] = [one["command"] for one in containers if one["name"] == "argus-library"]
    script = command[2].replace('"$0"/argus_training', str(ROOT / "exporter/argus_training"))
    script = script.replace('"$0"/argus_core/libargus_cupti.so', str(library))
    return subprocess.run([*command[:2], script], capture_output=True, text=True, timeout=60)


def compiled(source: str, folder: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    path = folder / "libargus_cupti.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-o", str(path), "-"]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def test_what_loads_in_the_training_image_is_used(tmp_path: Path) -> None:
    """No note stays; one of an earlier trial goes."""
    library = compiled("int fine;", tmp_path)
    (tmp_path / "libargus_cupti.so.refused").write_text("before")
    assert tried(library).returncode == 0
    assert injection.place(environ := {}, str(library), alone=True) == ("", "")
    assert environ == {SLOT: str(library)}


def test_what_does_not_load_in_the_training_image_is_left_out(library: Path) -> None:
    """An ELF file of no machine: training starts, CUDA hears of nothing, the channel has a reason."""
    done = tried(library)
    assert done.returncode == 0
    for environ in ({}, {SLOT: str(library)}):
        reason, why = injection.place(environ, str(library), alone=True)
        assert reason == "load" and why.startswith(f"{library} does not load in this image: ")
        assert why.rpartition("image: ")[2] in done.stderr
        assert environ == {}
    assert injector.environment({}, library)[0] == {}


def test_a_library_that_kills_whoever_loads_it_is_left_out(tmp_path: Path) -> None:
    """The note is there before the trial."""
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void load(void) { abort(); }"
    library = compiled(source, tmp_path)
    assert tried(library).returncode == 0
    reason, why = injection.place({}, str(library), alone=True)
    assert reason == "load" and why.endswith("the process that tried it ended")


def test_the_note_has_one_name() -> None:
    """The trial stands alone in its file: it runs where nothing of ours can be imported."""
    assert try_library.REFUSED == injection.REFUSED
