"""`make dist`: what goes to machines that have no checkout and no compiler."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import chart, dist

COMMITTED = "pyproject.toml\nnative/CMakeLists.txt\ndocs/img/card.png\n"


@pytest.fixture
def index(tmp_path: Path) -> None:
    """Builds are isolated: pip fetches what pyproject.toml says they need."""
    fetch = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(tmp_path / "index"),
    )
    if subprocess.run([*fetch, "scikit-build-core"], capture_output=True, timeout=120).returncode:
        pytest.skip("no package index is reached from here")


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_all_is_made_checked_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From sdist to Debian 11 and the chart; the last line tells what came of it. Images: `make verify`."""
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    if chart.helm is None:
        pytest.skip(chart.NEEDS_HELM)
    monkeypatch.setattr(sys, "argv", ["dist", "--no-images", "--output", str(tmp_path / "dist")])
    assert dist.main() == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])

    assert tuple(map(int, measured["glibc"].split("."))) <= dist.NEWEST_GLIBC
    assert re.search(r"-py3-none-manylinux_2_28_(x86_64|aarch64)\.whl$", measured["wheel"])
    assert measured["pure_wheel"].endswith("-py3-none-any.whl")
    made = {file.name for file in (tmp_path / "dist").iterdir()}
    listed = {measured[name] for name in ("wheel", "aarch64_wheel", "pure_wheel", "sdist", "chart")}
    assert made == listed - {None}
    assert measured.get("aarch64_loads_on_debian_11") in (True, None)
    assert measured["chart_objects_equal"] is True and measured["image_serves"] is None
    assert max(measured["wheel_mb"], measured["sdist_mb"]) < 3.0
    if measured["loads_on_debian_11"] is None:
        pytest.skip("Debian 11's packages cannot be had here")


def test_a_library_for_a_newer_glibc_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "libargus_cupti.so"
    library.write_bytes(b"\x7fELF..\0GLIBC_2.2.5\0GLIBC_2.34\0libc.so.6\0")
    with pytest.raises(dist.Refused, match=r"libargus_cupti.so needs glibc 2\.34, allowed: 2\.28"):
        dist.check_library(library)


@pytest.mark.parametrize(
    ("inside", "refusal"),
    [
        (["pyproject.toml", "native/CMakeLists.txt", "PKG-INFO"], None),
        (["pyproject.toml", "PKG-INFO"], "lacks native/CMakeLists.txt"),
        (["pyproject.toml", "native/CMakeLists.txt", "PKG-INFO", "secrets.env"], "has secrets.env"),
    ],
)
def test_an_sdist_has_what_git_has(
    inside: list[str], refusal: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures are left out. A file that lies here and is in no commit would be published by mistake."""
    monkeypatch.setattr(dist, "_run", lambda *_: COMMITTED)
    sdist = tmp_path / "argus.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in inside:
            (tmp_path / "file").write_text(name)
            archive.add(tmp_path / "file", f"argus-1/{name}")
    if refusal is None:
        dist.check_sdist(sdist)
        return
    with pytest.raises(dist.Refused, match=refusal):
        dist.check_sdist(sdist)


def test_the_wheels_differ_by_the_libraries_only(tmp_path: Path) -> None:
    python = {"argus_core/wire.py", "argus_core/py.typed"}
    wheel, pure = tmp_path / "native.whl", tmp_path / "pure.whl"
    for file, names in ((wheel, {*python, *dist.LIBRARIES}), (pure, python)):
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(name, "")
    dist.check_same_python(wheel, pure)
    with zipfile.ZipFile(pure, "a") as archive:
        archive.writestr("argus_core/left_over.py", "")
    with pytest.raises(dist.Refused, match=r"differ by \[.*left_over"):
        dist.check_same_python(wheel, pure)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake")
def test_without_a_compiler_the_build_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    command = ("cmake", "-S", str(dist.ROOT / "native"), "-B", str(tmp_path))
    configured = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert configured.returncode == 1
    said = " ".join(configured.stderr.split())
    assert "no C++ compiler was found" in said
    assert "py3-none-manylinux_2_28_x86_64.whl" in said
    assert "ARGUS_NO_NATIVE=1" in said
