"""Builds of native/injector and native/nccl with stand-ins, also under sanitizers, once a test session."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "native"

_FLAGS = {
    "plain": ("-DCMAKE_BUILD_TYPE=Release",),
    # -O1: what the sanitizers' own documentation advises; readable stacks, and builds in half the time.
    "thread": ("-DARGUS_SANITIZE=thread", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1"),
    # -O0: the optimizer takes half of this build's time with what two sanitizers add.
    "address": ("-DARGUS_SANITIZE=address,undefined", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0"),
}
FORMER_VERSIONS = range(1, 8)
_TARGETS = (
    *("argus_cupti", "fake_cuda", "fake_cupti", "training_app"),
    *("argus_nccl", "fake_nccl", "fake_rccl", "nccl_app", "launch_app", "nccl_event_recorder"),
    *(f"former_v{version}" for version in FORMER_VERSIONS),
)


@dataclass(frozen=True)
class Build:
    """One build folder."""

    sanitizer: str
    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / "injector" / "libargus_cupti.so"

    @property
    def nccl(self) -> Path:
        return self.folder / "nccl" / "libargus_nccl.so"

    @property
    def nccl_app(self) -> Path:
        return self.folder / "nccl" / "testing" / "nccl_app"

    @property
    def launch_app(self) -> Path:
        """NCCL and CUDA in one process, with both libraries."""
        return self.nccl_app.with_name("launch_app")

    @property
    def event_recorder(self) -> Path:
        """A profiler plugin that writes down what it is told."""
        return self.nccl_app.with_name("libnccl_event_recorder.so")

    def former(self, version: int) -> Path:
        """The profiler plugin of one version that was there before ours."""
        return self.folder / "nccl" / "testing" / f"libformer_v{version}.so"

    @property
    def stand_ins(self) -> Path:
        return self.folder / "injector" / "testing"

    @property
    def app(self) -> Path:
        return self.stand_ins / "training_app"

    @property
    def unit(self) -> Path:
        return self.stand_ins / "unit"

    def environment(self) -> dict[str, str]:
        """What a process needs to meet the stand-ins and the injector."""
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.stand_ins),
            "CUDA_INJECTION64_PATH": str(self.library),
            # exit status 66 tells a report of a sanitizer from every other failure
            "TSAN_OPTIONS": "exitcode=66 halt_on_error=0",
            "ASAN_OPTIONS": "exitcode=66 detect_leaks=1",
            "UBSAN_OPTIONS": "halt_on_error=1 print_stacktrace=1",
        }


def build(factory: pytest.TempPathFactory, sanitizer: str) -> Build:
    """Configure and build; skips where there is no compiler, CMake or sanitizer runtime."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: the native injector is not tested here")
    shared = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent  # one build for all workers
    folder = shared / f"injector-{sanitizer}"
    folder.mkdir(exist_ok=True)
    with (shared / f"injector-{sanitizer}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            if sanitizer != "plain" and not _links(folder, sanitizer):
                pytest.skip(f"this compiler has no {sanitizer} sanitizer")
            generator = ("-G", "Ninja") if shutil.which("ninja") else ()
            _run(
                "cmake",
                *generator,
                "-S",
                SOURCE,
                "-B",
                folder,
                "-DARGUS_INJECTOR_TESTING=ON",
                *_FLAGS[sanitizer],
            )
            targets = (*_TARGETS, "unit") if sanitizer == "plain" else _TARGETS
            _run("cmake", "--build", folder, "--parallel", "2", "--target", *targets)
            (folder / "done").touch()
    return Build(sanitizer, folder)


def _links(folder: Path, sanitizer: str) -> bool:
    flag = "-fsanitize=" + {"address": "address,undefined"}.get(sanitizer, sanitizer)
    command = ("c++", flag, "-x", "c++", "-", "-o", str(folder / "probe"))
    return subprocess.run(command, input=b"int main() {}", capture_output=True, check=False).returncode == 0


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
