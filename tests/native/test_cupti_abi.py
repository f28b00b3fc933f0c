"""Our offsets and constants of CUPTI's records, compared with NVIDIA's headers by the compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tools.cupti_headers import TARGET, WHEELS

from native.builds import SOURCE

CHECK = Path("injector/testing/abi_check.cpp")
OFFSETS = Path("injector/cupti_abi.hpp")

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="c++ is not installed")


@pytest.fixture(params=WHEELS)
def headers(request: pytest.FixtureRequest) -> Path:
    """Of one version of CUPTI, as `make setup` fetched them."""
    folder: Path = TARGET / request.param
    if not folder.is_dir():
        pytest.skip(f"NVIDIA's headers of CUPTI {request.param} are absent: python -m tools.cupti_headers")
    return folder


def compile_check(headers: Path, source: Path = SOURCE) -> subprocess.CompletedProcess[str]:
    """abi_check.cpp with these headers and the newest records that they have."""
    text = (headers / "cupti_activity.h").read_text(encoding="utf-8")
    newest = {}
    for kind in ("Kernel", "Memcpy", "Memset"):
        (newest[kind],) = re.findall(rf"^}} (CUpti_Activity{kind}\d+);", text, re.MULTILINE)
    defines = [f"-D{kind.upper()}={name}" for kind, name in newest.items()]
    command = ["c++", "-std=c++20", "-fsyntax-only", "-isystem", str(headers), *defines, str(source / CHECK)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_offsets_and_constants_are_those_of_the_headers(headers: Path) -> None:
    """Also those of the records that this version has added."""
    done = compile_check(headers)
    assert done.returncode == 0, done.stderr


def test_an_offset_that_is_not_is_named(headers: Path, tmp_path: Path) -> None:
    """The comparison can fail."""
    for file in (CHECK, OFFSETS):
        copy = tmp_path / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = (SOURCE / file).read_text(encoding="utf-8")
        copy.write_text(text.replace("kCorrelation = 92", "kCorrelation = 96"), encoding="utf-8")
    done = compile_check(headers, tmp_path)
    assert done.returncode != 0
    assert re.search(r"CUpti_ActivityKernel\d+\.correlationId", done.stderr) or "correlationId" in done.stderr
