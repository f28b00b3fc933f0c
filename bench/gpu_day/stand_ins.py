"""The fake libcuda and libcupti of native/injector/testing, built once for the dry runs."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from bench.gpu_day.machine import REPOSITORY
from bench.gpu_day.result import NotRun

FOLDER = REPOSITORY / "build" / "gpu-day"
VARIABLE = "GPU_DAY_STAND_INS"
"""Tells a program that its device is the stand-in, and where the libraries are."""


def libraries() -> Path:
    """The folder that they are in, for LD_LIBRARY_PATH.

    Raises:
        NotRun: as `build`.
    """
    return build("fake_cuda", "fake_cupti") / "injector" / "testing"


def build(*targets: str) -> Path:
    """Build these of native/; the folder of the build.

    Raises:
        NotRun: no CMake or compiler is here, or they did not build.
    """
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            raise NotRun(f"{tool} is not installed: the stand-ins cannot be built")
    FOLDER.mkdir(parents=True, exist_ok=True)
    source = str(REPOSITORY / "native")
    configure = ["cmake", "-S", source, "-B", str(FOLDER), "-DARGUS_INJECTOR_TESTING=ON"]
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Always: a target that is new since the last time is unknown to what was written then.
        _run([*configure, "-DCMAKE_BUILD_TYPE=Release"])
        _run(["cmake", "--build", str(FOLDER), "--target", *targets])
    return FOLDER


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="", flush=True)
    if done.returncode != 0:
        raise NotRun(f"`{' '.join(command[:2])}` ended with status {done.returncode}")
